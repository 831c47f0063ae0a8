"""The fused model: PRIMUS for IMU windows, the fusion network, and the backbone that reads its tokens."""

"""The fused model as ONNX graphs: one for frames, one for sensors, one for IMU windows, one for prefill and decode."""

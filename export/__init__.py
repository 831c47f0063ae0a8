"""The fused model in torch: backbones, sensors, training, and its conversion into a bundle that needs no torch."""

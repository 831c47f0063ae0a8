"""Torch against ONNX Runtime: the same numbers, the same answers, and what quantisation costs."""

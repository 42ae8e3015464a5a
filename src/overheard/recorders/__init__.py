"""Recorders for federations that run elsewhere: Flower, NVIDIA FLARE, any loop, checkpoints."""

"""Shared mathematics of the attacks: linear measurements and how to decode them. No I/O."""

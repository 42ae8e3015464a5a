"""Kernels: how the networks of each architecture are computed, fast where it is known how."""

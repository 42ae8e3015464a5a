"""Measures comparisons and growth curves, one process at a time."""

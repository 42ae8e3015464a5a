"""Driouich et al. 2022: a model-based attribute inference attack."""

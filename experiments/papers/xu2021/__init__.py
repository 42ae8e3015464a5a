"""Xu et al. 2021: what eavesdropping on federated learning leaks."""

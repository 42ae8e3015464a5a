"""Boosted trees as a client's program: reading models, their equations, training, merging."""

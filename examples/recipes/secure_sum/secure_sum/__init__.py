"""A Flower app."""

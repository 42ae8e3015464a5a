"""Lyu and Chen 2021: attribute reconstruction by matching gradients."""

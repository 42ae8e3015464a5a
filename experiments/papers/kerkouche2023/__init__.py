"""Kerkouche et al. 2023: property inference against secure aggregation (PROLIN)."""

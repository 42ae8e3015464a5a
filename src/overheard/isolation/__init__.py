"""Strangers' attacks in a process of their own that holds the view and can reach nothing else."""

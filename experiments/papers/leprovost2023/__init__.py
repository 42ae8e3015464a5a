"""Le Provost et al. 2023: label leakage from the gradients of regressions."""

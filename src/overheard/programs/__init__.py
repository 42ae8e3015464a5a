"""What a client does with what it receives: programs, their rules, losses and kernels."""

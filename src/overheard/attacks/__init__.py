"""A folder per question an adversary asks, a file per published method."""

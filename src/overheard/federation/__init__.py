"""Makes recordings: the simulator, its algorithms, and what a config file says."""

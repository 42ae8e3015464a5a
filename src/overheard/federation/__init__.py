"""Makes recordings: the simulator, its algorithms, and what it is told in a config file."""

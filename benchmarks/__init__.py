"""How fast is it, beside what others would run? Ratios of one run, never absolute times."""

"""How fast is it, beside what others would run? Ratios of one run, never absolute times."""

import experiments  # noqa: F401  # its data sources are benchmarked too

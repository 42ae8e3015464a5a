"""The lines of mathematics that the report shows say what the attacks do."""

from __future__ import annotations

import re

from overheard.attacks.equations import EQUATIONS


def test_a_gradient_is_a_difference_of_models_over_the_rate() -> None:
    """Where a gradient is set equal to, or is subtracted from, what was heard; a cosine knows no
    length, and a map from models to updates knows no gradient."""
    for name, line in EQUATIONS.items():
        for place in re.finditer(r"θₜ?\s*−\s*θ′ₜ?\)?", line):
            before, after = line[: place.start()], line[place.end() :]
            scaled = after.lstrip().startswith(("/ rate", "m / rate"))
            free = "cos(" in before or "φ" in before
            assert scaled or free, f"{name}: {line}"

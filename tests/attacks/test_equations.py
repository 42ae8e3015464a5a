"""The lines of mathematics that the report shows say what the attacks do."""

from __future__ import annotations

import re

from overheard.attacks import all_attacks, attack_named, equation, words


def test_a_gradient_is_a_difference_of_models_over_the_rate() -> None:
    """Where a gradient is set equal to, or is subtracted from, what was heard; a cosine knows no
    length, and a map from models to updates knows no gradient."""
    lines = {name: equation(attack) for name, attack in all_attacks().items()}
    assert sum("θ′" in line for line in lines.values()) >= 10
    for name, line in lines.items():
        for place in re.finditer(r"θₜ?\s*−\s*θ′ₜ?\)?", line):
            before, after = line[: place.start()], line[place.end() :]
            scaled = after.lstrip().startswith(("/ rate", "m / rate"))
            free = "cos(" in before or "φ" in before
            assert scaled or free, f"{name}: {line}"


def test_the_equation_is_the_paragraph_of_the_docstring_that_says_so() -> None:
    assert equation(attack_named("exact_linear")).startswith("θ′ = θ − W(θ − θ*)")
    # on one line, however it is wrapped; and the first paragraph is what the attack does
    assert equation(attack_named("ols")).endswith("(kerkouche2023, section 5.2)")
    assert "Solves" not in words(attack_named("ols"))
    assert equation(attack_named("majority")) == ""

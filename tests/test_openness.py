"""Nobody asks which architecture, algorithm or payload it has, but who defines them.

A new layer, update rule or kind of message is then one file. What a client does is asked of the
recipe (``sends_gradient``, ``one_step``, ``rate``, ``pull``), what a network can of its kernel
(`overheard.programs.networks.Network`), what a loss is of the loss, what a link carries of it.
"""

from __future__ import annotations

import re
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "overheard"

CASES = re.compile(
    r"algorithm (==|!=|in)|payload (==|!=)|loss (==|!=)"
    r"|isinstance\([a-z_.]*model, (Dense|LeNet|Module)"
)
# where they are defined, and where networks and their steps are computed
DEFINED = ("programs/", "transcript/messages.py")


def cases(source: str) -> list[int]:
    """Lines that ask."""
    return [n for n, line in enumerate(source.splitlines(), 1) if CASES.search(line)]


def asking() -> dict[str, list[int]]:
    """Files outside the defining places, and the lines in which they ask."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        if not name.startswith(DEFINED) and (lines := cases(path.read_text(encoding="utf-8"))):
            found[name] = lines
    return found


def test_nobody_asks_what_it_has() -> None:
    assert not asking()


def test_the_checker_sees_a_case_and_leaves_the_rest_alone() -> None:
    asking = (
        'if recipe.algorithm == "fedsgd":',
        'plain = recipe.algorithm in ("fedavg", "fedsgd")',
        'if link.payload != "model":',
        'if recipe.loss == "cross_entropy":',
        "heavy = isinstance(recipe.model, LeNet)",
    )
    assert cases("\n".join(asking)) == [1, 2, 3, 4, 5]
    assert cases('algorithm: Literal["fedavg"]\nrate = recipe.rate\nif link.gradients:\n') == []

"""Numeric secrets: into which ranges they are cut, for every kind of column, and in which words."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from federations import planned
from generated import changing

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.evaluation.audit import audit
from overheard.federation.plan import Plan
from overheard.programs.records import OneHot, Records, Scaled, positions
from overheard.questions.attribute import ranges
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.threat import EAVESDROPPER

COLUMNS = {"many": 500, "few": 12, "three": 3, "coin": 2}
"""How many values each column of numbers has."""


def people() -> Dataset:
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, n, 600).astype(float) for name, n in COLUMNS.items()}
    text = np.array(["a", "b", "c", "d", "e"])[rng.integers(0, 5, 600)]
    rest = {"text": text, "x": rng.normal(size=600), "y": rng.normal(size=600)}
    records = Records({**columns, **rest, "at": np.arange(600) % 3})
    return Dataset("people", records, "at", "y", "regression", (), "generated")


def asking(*attributes: str, **audit: int) -> Plan:
    content = {
        "data": {"source": "file"},
        "model": {"name": "linear"},
        "training": {"rounds": 2, "learning_rate": 0.1},
        "audit": {"attributes": list(attributes), **audit},
    }
    return planned(content, people())


@pytest.mark.parametrize("column", ["many", "few"])
@pytest.mark.parametrize("bins", [2, 5, 8])
def test_bins_that_are_asked_for_are_made(column: str, bins: int) -> None:
    assert len(asking(column, bins=bins).attributes[column].values) == bins


@pytest.mark.parametrize(
    ("columns", "asked", "counts"),
    [
        (("many", "few"), {}, [4, 12]),  # one of many values is cut in four
        (("few", "coin", "text"), {"bins": 3}, [3, 2, 5]),
    ],
)
def test_what_is_no_number_or_has_few_values_is_not_cut(
    columns: tuple[str, ...], asked: dict[str, int], counts: list[int]
) -> None:
    ready = asking(*columns, **asked)
    assert [len(ready.attributes[column].values) for column in columns] == counts
    blocks = {block.column: block for block in ready.recipe.encoding.blocks}
    assert isinstance(blocks["few"], Scaled if asked else OneHot)


@pytest.mark.parametrize("columns", [("coin",), ("text",), ("three", "coin"), ()])
def test_bins_without_effect_are_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(FixConfig, match=r"audit\.bins = 3 has no effect"):
        asking(*columns, bins=3)


def test_ranges_in_words_are_the_bins() -> None:
    """Whoever reads the words sorts every number as the score does."""
    rng = np.random.default_rng(1)
    for scale in (1e-3, 1.0, 1e6):
        for count in (2, 4, 7):
            middles = tuple(np.cumsum(rng.random(count) + 0.05) * scale)
            words = ranges(AttributeDomain("z", middles, (1.0,) * count))
            assert words[0].startswith("up to ")
            assert words[-1].startswith("above ")
            edges = [float(w.split()[-1]) for w in words[:-1]]
            assert [float(w.split()[0]) for w in words[1:-1]] == edges[:-1]
            assert all(a < e < b for a, e, b in zip(middles, edges, middles[1:], strict=False))
            exact = [(a + b) / 2 for a, b in pairwise(middles)]
            drawn = rng.uniform(0, middles[-1] * 1.2, 500)
            unclear = np.any(
                [(drawn - e) * (drawn - x) <= 0 for e, x in zip(edges, exact, strict=True)], axis=0
            )
            told = np.searchsorted(edges, drawn)
            assert np.array_equal(told[~unclear], positions(drawn, middles)[~unclear])
            assert unclear.mean() < 0.01
    assert ranges(AttributeDomain("s", (0.0, 1.0))) == ("0.0", "1.0")
    assert ranges(AttributeDomain("s", ("no", "yes"), (1.0, 1.0))) == ("no", "yes")
    assert ranges(AttributeDomain("z", (3.0, 1.0), (1.0, 1.0))) == ("above 2", "up to 2")


def test_an_audit_says_the_ranges_in_words(federate) -> None:
    ages = np.random.default_rng(8).integers(18, 90, 480).astype(float)
    change = changing(age=lambda _: ages)
    recording = federate(change=change, audit={"attributes": ["age"], "bins": 3}, rounds=3)
    record = audit(recording, EAVESDROPPER, ["majority"])
    assert record.findings[0].details["right_is"].startswith("the right one of 3 ranges: up to ")
    assert any("the right one of 3 ranges: up to " in note for note in record.notes)

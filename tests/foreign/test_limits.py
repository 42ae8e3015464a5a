"""Limits are stated, can be moved, and name themselves where they bite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from overheard.errors import FixConfig, FixData, FixRecording
from overheard.foreign.limits import LIMITS, check, limit, variable

SECURITY = Path(__file__).parents[2] / "SECURITY.md"


@pytest.mark.parametrize(("given", "means"), [("1000", 1000), ("2e9", 2 * 10**9), ("1.5e3", 1500)])
def test_a_limit_is_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, given: str, means: int
) -> None:
    assert limit("rows") == LIMITS["rows"].default
    monkeypatch.setenv("OVERHEARD_MAX_ROWS", given)
    assert limit("rows") == means
    check("rows", means, "table")
    with pytest.raises(FixData, match=rf"table: {means + 1} rows.*limit is {means}.*MAX_ROWS"):
        check("rows", means + 1, "table", FixData)


@pytest.mark.parametrize("given", ["0", "-1", "many", "1e99", "nan", "1 2", "0x10", "4GiB"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("OVERHEARD_MAX_ROWS", given)
    with pytest.raises(FixConfig, match=r"OVERHEARD_MAX_ROWS is .*; give a whole number of rows"):
        limit("rows")


def test_an_absurd_number_is_not_spelled_out() -> None:
    with pytest.raises(FixRecording, match=r"10\^18 or more rows"):
        check("rows", 10**4000, "table")


def test_security_states_every_limit() -> None:
    """The table in SECURITY.md is what the program does."""
    text = SECURITY.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(OVERHEARD_MAX_\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    assert list(rows) == [variable(name) for name in LIMITS]
    units = {"MiB": 1 << 20, "GiB": 1 << 30}
    for name, known in LIMITS.items():
        number, unit = rows[variable(name)].split(" ", 1)
        assert int(number.replace(",", "")) * units.get(unit, 1) == known.default, name

"""The page about reliability says what the files of results say, and nothing else in figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trials as made

ROOT = made.FOLDER.parent
ROW = {"what": "killed | torn", "trials": 1200, "faults": 3, "outcome": "0 of <3> lost"}


def write(folder: Path, name: str, **changes: Any) -> None:
    content = {"title": name.title(), "command": f"make {name}", "rows": [ROW]} | changes
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_every_row_is_there_in_the_order_that_is_stated(tmp_path: Path) -> None:
    for name in ("zoo", "fuzz", "chaos"):
        write(tmp_path, name)
    text = made.reliability_tables(tmp_path)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Chaos", "Fuzz", "Zoo"]
    assert text.count("| killed \\| torn | 1,200 | 3 | 0 of &lt;3> lost |") == 3
    assert "1,200 trials, 3 kills that hit, by `make chaos`:" in text
    assert made.TRIALS["fuzz"] in text


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": [{**ROW, "trials": "many"}]},
        {"rows": [{**ROW, "trials": 1.5}]},
        {"rows": [{**ROW, "more": 1}]},
        {"note": "more"},
    ],
)
def test_a_file_of_another_form_is_an_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    write(tmp_path, "chaos", **changes)
    with pytest.raises(ValueError, match=r"chaos\.json: is not of the form"):
        made.reliability_tables(tmp_path)


def test_the_page_has_no_figure_of_its_own() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- table: reliability -->")
    typed = before + rest.partition("<!-- end -->")[2]
    assert re.findall(r"\d[\d,.]*%?", re.sub(r"`[^`]*`", "", typed)) == []


def test_quoted_code_is_text() -> None:
    assert made._cell("a[0][:n] | b < c") == "a&#91;0]&#91;:n] \\| b &lt; c"


def test_nothing_is_called_exposed_where_there_is_nothing_to_learn() -> None:
    """At most 5 of 100 whole audits, for few and many clients."""
    rows = made.results()["null_audits"]["rows"]
    shapes = [re.match(r"(\d+) clients of (\d+) records", row["what"]) for row in rows]
    assert [shape and shape.groups() for shape in shapes] == [
        ("6", "30"), ("20", "100"), ("100", "30")
    ]  # fmt: skip
    for row in rows:
        assert row["trials"] >= 500
        assert row["faults"] <= 0.05 * row["trials"]


def test_a_rise_is_seen_and_no_wolf_is_cried() -> None:
    """A rise of 10 points with 6 x 1000 records in 80% of comparisons, at most 2% false ones."""
    rows = {row["what"]: row for row in made.results()["compare"]["rows"]}
    shown = {w: float(re.findall(r"shown in ([\d.]+)%", r["outcome"])[0]) for w, r in rows.items()}
    assert shown["a rise of 10 points, 6 x 1000 records, by record"] >= 80
    false = {what: share for what, share in shown.items() if what.startswith("no rise")}
    assert len(false) >= 10
    assert max(false.values()) <= 2
    assert all(row["trials"] >= 1000 and not row["faults"] for row in rows.values())


def test_preflight_called_nothing_ok_that_the_audit_then_exposed() -> None:
    rows = made.results()["preflight"]["rows"]
    federations = [row for row in rows if re.match(r"\d+: ", row["what"])]
    assert len(federations) >= 30
    assert not any(row["faults"] for row in rows)
    assert sum("Audit exposes: nothing" not in row["outcome"] for row in federations) >= 10


def test_networks_are_decoded_as_well_as_they_say_on_tables_that_nobody_had_used() -> None:
    """No answer surer than right without a flag, and not half of the answers flagged."""
    rows = made.results()["unseen"]["rows"]
    plain = [r for r in rows if re.match("fair|loanapp", r["what"])]
    assert sum(row["trials"] for row in plain) == 40
    flagged = [int(re.findall(r"(\d+) flagged", row["outcome"])[0]) for row in plain]
    assert sum(flagged) < 20
    assert [row["what"] for row in rows if row["faults"]] == []
    assert sum("reached" in row["outcome"] for row in rows) == 2


def test_who_trained_as_declared_is_hardly_ever_called_unfit() -> None:
    rows = made.results()["replays"]["rows"]
    honest = [row for row in rows if row["what"].startswith("as declared")]
    assert len(honest) >= 4
    for row in honest:
        unfit, clients = map(int, re.findall(r"(\d+) of (\d+) clients", row["outcome"])[0])
        assert unfit <= 0.01 * clients
    assert len(rows) > len(honest)
    assert not any(row["faults"] for row in rows)


def test_killing_was_tried_often_enough_and_nothing_was_lost() -> None:
    rows = made.results()["chaos"]["rows"]
    assert sum(row["trials"] for row in rows) >= 200
    assert {"live" if "message by message" in r["what"] else r["what"].split("`")[1].split()[1]
            for r in rows} == {"live", "simulate", "audit", "sweep", "report"}  # fmt: skip
    assert all(" 0 trials went wrong" in row["outcome"] for row in rows)

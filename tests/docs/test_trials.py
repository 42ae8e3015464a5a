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


def test_killing_was_tried_often_enough_and_nothing_was_lost() -> None:
    rows = made.results()["chaos"]["rows"]
    assert sum(row["trials"] for row in rows) >= 200
    assert {"live" if "message by message" in r["what"] else r["what"].split("`")[1].split()[1]
            for r in rows} == {"live", "simulate", "audit", "sweep", "report"}  # fmt: skip
    assert all(" 0 trials went wrong" in row["outcome"] for row in rows)

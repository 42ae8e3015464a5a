"""What the papers' pages say does not reproduce is what the committed results say."""

from __future__ import annotations

import json
import re
from statistics import fmean
from typing import Any

import pytest
from pages import ROOT

PAPERS = ROOT / "papers"


def measured(file: str, **where: Any) -> float:
    """The mean of what was measured in the rows of which all that is given holds."""
    rows = json.loads((PAPERS / file).read_text(encoding="utf-8"))["rows"]
    found = [r["measured"] for r in rows if all(r[key] == value for key, value in where.items())]
    assert found, (file, where)
    return fmean(found)


def said(page: str) -> str:
    return " ".join((PAPERS / page / "README.md").read_text(encoding="utf-8").split())


def words(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0") if value < 1 else f"{value:g}"


FARES = {"file": "driouich2022/driouich2022-table1-flights.json", "client": "mean"}
ADULT = {"file": "driouich2022/driouich2022-table1-adult.json", "client": "mean"}
FIGURE1 = {"file": "driouich2022/driouich2022-fig1.json", "setting": "linear"}
FIGURE3 = {"file": "driouich2022/driouich2022-fig3.json", "client": "mean", "measure": "accuracy"}
ONE_TARGET = {
    "file": "kerkouche2023/fashion-10-full/kerkouche2023-fig3.json",
    "client": "round 50",
    "measure": "F1",
}
SIZES = [f"{n} records" for n in (10, 50, 100, 500, 1000)]
MAP = {
    "file": "xu2021/xu2021-fig1.json",
    "method": "learned_map",
    "measure": "map loss (equation 9)",
}


@pytest.mark.parametrize(
    ("page", "sentence", "cells", "digits"),
    [
        (
            "driouich2022",
            "# against # on the fares (`direct`), # against # on Adult",
            [
                {**FARES, "setting": "direct", "method": "l2_lbfgs"},
                {**FARES, "setting": "direct", "method": "local"},
                {**ADULT, "method": "l2_lbfgs"},
                {**ADULT, "method": "local"},
            ],
            3,
        ),
        (
            "driouich2022",
            "#, #, #, # and # at 10, 50, 100, 500 and 1,000 records",
            [{**FIGURE1, "method": "local", "client": size} for size in SIZES],
            3,
        ),
        (
            "driouich2022",
            "(Figure 3: #, # and #; the analytical model, computed from the records themselves, "
            "has #)",
            [
                {**FIGURE3, "method": method}
                for method in ("local", "last returned", "global", "analytical")
            ],
            3,
        ),
        (
            "driouich2022",
            "that gives # and # (`direct`; the paper .735 and .706), `local` #",
            [
                {**FARES, "setting": "direct", "method": method}
                for method in ("global", "last returned", "local")
            ],
            3,
        ),
        (
            "kerkouche2023",
            "Here OLS (#) and BASELINE (#) do, but PROLIN and REG have # there",
            [{**ONE_TARGET, "method": method} for method in ("OLS", "BASELINE", "PROLIN")],
            2,
        ),
    ],
)
def test_sentences(page: str, sentence: str, cells: list[dict[str, Any]], digits: int) -> None:
    for cell in cells:
        sentence = sentence.replace("#", words(measured(**cell), digits), 1)
    assert sentence in said(page)


def test_the_maps_loss_falls_with_the_batch() -> None:
    """xu2021 Figure 1b, in equation (9)'s units: as the paper says."""
    losses = [
        measured(**MAP, setting=f"batches of {size}", client="1") for size in (32, 64, 128, "all")
    ]
    assert losses == sorted(losses, reverse=True)
    shown = re.search(r"falls with the size of the batch, (.*?) for batches", said("xu2021"))
    assert shown is not None
    printed = [float(number) for number in re.findall(r"[\d.]+e-\d+", shown[1])]
    assert printed == pytest.approx(losses, rel=0.2)

"""The table of the demo: the file that comes with the package, and the people in it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
from pathlib import Path

import numpy as np

from overheard.data import bundled


def test_the_file_is_the_one_that_the_text_beside_it_describes() -> None:
    with bundled.FILE.open("rb") as packed:
        content = gzip.decompress(packed.read())
    text = (Path(bundled.__file__).parent / "randhie.txt").read_text(encoding="utf-8")
    (stated,) = re.findall(r"\b[0-9a-f]{64}\b", text)
    assert hashlib.sha256(content).hexdigest() == stated
    assert f"({len(content):,} bytes)" in text
    names = content.partition(b"\n")[0].decode().split(",")
    assert len(names) == 45
    described = {line.split(" ")[0] for line in text.splitlines()}
    assert set(names) <= described
    assert "public domain" in text


def test_nobody_appears_twice_and_the_secrets_are_yes_or_no() -> None:
    found = bundled.randhie()
    records = found.records
    assert len(records) == 5831
    sites, people = np.unique(records["site"], return_counts=True)
    assert sites.tolist() == [f"site {k}" for k in range(1, 7)]
    assert people.sum() == 5831
    for name in bundled.SENSITIVE:
        assert set(np.unique(records[name])) == {0.0, 1.0}
    for name in bundled.PUBLIC:
        assert np.isfinite(records[name]).all()
    assert found.licence == "public domain"


def test_a_mean_that_fills_a_gap_is_not_counted_as_a_limitation() -> None:
    """The file has means of .02 to .20 where people gave no answer: 416 of those kept."""
    records = bundled.randhie().records
    with bundled.FILE.open("rb") as packed:
        rows = list(csv.DictReader(gzip.decompress(packed.read()).decode().splitlines()))
    people: dict[str, dict[str, str]] = {}
    for row in sorted(rows, key=lambda row: (float(row["zper"]), float(row["year"]))):
        people.setdefault(row["zper"], row)
    answers = [float(row["physlm"]) for row in people.values() if float(row["black"]) in (0, 1)]
    assert sum(0 < answer < 1 for answer in answers) == 416
    assert records["physlm"].tolist() == [float(answer == 1) for answer in answers]


def test_no_site_lacks_a_column() -> None:
    """A column that is the same for everybody at a site was filled in there."""
    records = bundled.randhie().records
    for site in np.unique(records["site"]):
        here = records["site"] == site
        for name in bundled.PUBLIC:
            assert len(np.unique(records[name][here])) > 1, (site, name)

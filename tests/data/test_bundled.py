"""The sources that come with the package, and how records are dealt."""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from overheard.data import bundled
from overheard.data import source as source_module
from overheard.data.bundled import VICTIM, deal, digits
from overheard.data.source import Source, load
from overheard.errors import FixConfig


def test_unknown_sources_and_options_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package knows its own and no others, unless they are added."""
    monkeypatch.setattr(source_module, "_PACKAGES", [])
    with pytest.raises(FixConfig, match=r"'adult'; known: randhie, digits, digits_images, file$"):
        load("adult")
    with pytest.raises(FixConfig, match="did you mean 'digits'"):
        load("digit")
    for source in ("randhie", "digits", "digits_images"):
        with pytest.raises(FixConfig, match=rf"'{source}': got an unexpected keyword .* 'colour'"):
            load(source, colour="red")


def test_a_smaller_victim_is_the_beginning_of_a_larger_one() -> None:
    small, large = (digits(victim=v).by_client()[VICTIM] for v in (20, 70))
    for name, values in small.columns.items():
        assert values.tolist() == large[name][:20].tolist()
    other = digits(victim=20, seed=1).by_client()[VICTIM]
    assert any(v.tolist() != other[n].tolist() for n, v in small.columns.items())


def test_participants_and_public_are_disjoint() -> None:
    numbers = np.arange(60.0)
    source = Source("numbers", "here", "some", "none", "made")
    data = deal(
        source, [numbers], numbers % 3, victim=10, attributes=("c000",), participants=4, public=15
    )
    clients = data.by_client()
    assert list(clients) == ["participant 2", "participant 3", "participant 4", VICTIM]
    assert {len(r) for r in clients.values()} == {10}
    assert data.outside is not None
    everybody = [*data.records["c000"].tolist(), *data.outside["c000"].tolist()]
    assert len(set(everybody)) == len(everybody) == 55
    assert len(data.population().records) == 55


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"victim": 0}, "of 0 records.*at least 1 client"),
        ({"participants": 0}, "0 client.*at least 1 client"),
        ({"public": -1}, "-1 of nobody's"),
        ({"attributes": ("c999",)}, "no column 'c999'; the columns are c000 to c063"),
        ({"victim": 1298}, r"1 client\(s\) of 1298 records and 500 .* dealt of 1797"),
    ],
)
def test_impossible_deals_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(FixConfig, match=f"digits: .*{words}"):
        digits(**options)


def test_digits_are_images_without_any_file() -> None:
    made = load("digits_images", clients=4, records=3, auxiliary=20)
    assert made.images == {"image": (1, 16, 16)}
    assert list(made.by_client()) == [f"client {number}" for number in range(4)]
    one = made.records["image"][0].reshape(16, 16)
    assert np.array_equal(one[::2, ::2], one[1::2, 1::2])
    assert made.records["image"].max() == 255


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

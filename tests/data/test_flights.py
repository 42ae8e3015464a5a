from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.data import flights
from overheard.errors import FixConfig, FixData

HEADER = (
    ",airline,flight,source_city,departure_time,stops,arrival_time,destination_city,class,duration,"
    "days_left,price"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Made-up fares of two airlines, in an archive as it is published."""
    stops = ["zero", "one", "two_or_more"]
    rows = [
        f"{i},{'AB'[i % 2]},X-{i},Delhi,Evening,{stops[i % 3]},Night,Mumbai,"
        f"{'Business' if i % 4 == 1 else 'Economy'},{2 + i}.5,{1 + i},{1000 + i}"
        for i in range(12)
    ]
    with zipfile.ZipFile(tmp_path / "Clean_Dataset.csv.zip", "w") as archive:
        archive.writestr("Clean_Dataset.csv", "\n".join([HEADER, *rows, ""]))
    return tmp_path


def test_secrets_are_zero_or_one_and_nothing_else_tells_the_stops(folder: Path) -> None:
    data = flights.load(folder)
    fares = data.by_client()
    assert [len(r) for r in fares.values()] == [6, 6]
    assert fares["B"]["class"].tolist() == [1, 0, 1, 0, 1, 0]
    assert fares["A"]["direct"].tolist() == [1, 0, 0, 1, 0, 0]
    assert not {"stops", "flight", ""} & set(data.records.columns)
    assert "duration" not in flights.load(folder, drop=["duration"]).records.columns


def test_limit_draws_a_seeded_part_in_order(folder: Path) -> None:
    draws = [flights.load(folder, seed=s, limit=3).records["price"].tolist() for s in (0, 0, 1)]
    assert len(draws[0]) == 6
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][:3] == sorted(draws[0][:3])
    assert len(flights.load(folder, limit=0).records) == 12


def test_wrong_options_and_files_are_named(folder: Path) -> None:
    with pytest.raises(FixConfig, match="cannot drop 'class'"):
        flights.load(folder, drop=["class"])
    with pytest.raises(FixConfig, match="negative"):
        flights.load(folder, limit=-1)
    (folder / "Clean_Dataset.csv.zip").write_bytes(b"PK no")
    with pytest.raises(FixData, match=r"no Clean_Dataset\.csv can be read"):
        flights.load(folder)


def test_the_real_table(need: Callable[[str], None]) -> None:
    need("flights")
    fares = flights.load().by_client()
    assert [len(r) for r in fares.values()] == [16_098, 20_000, 20_000, 20_000, 9_011, 20_000]
    assert [c for c, r in fares.items() if r["class"].any()] == ["Air_India", "Vistara"]
    assert all(0.05 < r["direct"].mean() < 0.3 for r in fares.values())

"""The sources with one victim: what they read, refuse and keep apart."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from overheard.data import digits, location30, purchase100, splice
from overheard.data.catalogue import about
from overheard.data.source import Source
from overheard.data.victim import VICTIM, Split, deal
from overheard.errors import FixConfig, FixData

pytestmark = pytest.mark.slow


def binary_table(rows: int, columns: int, classes: int) -> str:
    """Made-up people in the published layout: a quoted label, then zeros and ones."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 2, (rows, columns)).astype(str)
    return "".join(f'"{1 + i % classes}",{",".join(row)}\n' for i, row in enumerate(cells))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A small dataset_location.tgz."""
    (tmp_path / "bangkok").write_text(binary_table(90, location30.COLUMNS, location30.CLASSES))
    with tarfile.open(tmp_path / "dataset_location.tgz", "w:gz") as packed:
        packed.add(tmp_path / "bangkok", "bangkok")
    (tmp_path / "bangkok").unlink()
    return tmp_path


def test_location_reads_the_archive_and_the_bare_table_alike(archive: Path) -> None:
    packed = location30.load(archive, victim=20, public=30)
    plain = archive / "plain"
    plain.mkdir()
    (plain / "bangkok").write_text(binary_table(90, location30.COLUMNS, location30.CLASSES))
    bare = location30.load(plain, victim=20, public=30)
    assert packed.records["c445"].tolist() == bare.records["c445"].tolist()
    assert set(packed.records["class"].tolist()) <= set(range(1, 31))
    assert packed.sensitive == ("c001", "c069")


@pytest.mark.parametrize(
    "text",
    ["", "1,0,1\n", binary_table(3, 446, 30).replace("0", "7"), binary_table(40, 446, 40), "a,b\n"],
)
def test_location_refuses_other_tables(tmp_path: Path, text: str) -> None:
    (tmp_path / "bangkok").write_text(text)
    with pytest.raises(FixData, match="bangkok"):
        location30.load(tmp_path, victim=1, public=0)


def test_location_refuses_an_archive_without_the_table(tmp_path: Path) -> None:
    (tmp_path / "dataset_location.tgz").write_bytes(b"not an archive")
    with pytest.raises(FixData, match="bangkok"):
        location30.load(tmp_path)


def test_the_published_locations_have_the_papers_variances(need: Callable[[str], None]) -> None:
    need("location30")
    data = location30.load(victim=4010)
    assert len(data.population().records) == 5010
    for column, printed in (("c001", 2.6e6), ("c069", 2070.0)):
        ones = data.population().records[column].sum()
        assert np.var([ones, 5010 - ones]) == pytest.approx(printed, rel=0.03)


def sequences(rows: int) -> str:
    rng = np.random.default_rng(0)
    lines = [", ".join(rng.choice(list("ACGT"), 60)) for _ in range(rows)]
    return "".join(f"{line}, {splice.KINDS[i % 3]}\n" for i, line in enumerate(lines))


def test_splice_drops_uncertain_sequences_and_merges_classes(tmp_path: Path) -> None:
    text = sequences(30)
    (tmp_path / "splice_keel.dat").write_text(text + text.splitlines()[0].replace("A", "N") + "\n")
    three = splice.load(tmp_path, victim=20, public=10)
    assert set(three.population().records["class"].tolist()) == set(splice.KINDS)
    two = splice.load(tmp_path, victim=20, public=10, classes=2)
    assert set(two.population().records["class"].tolist()) == {"junction", "neither"}
    with pytest.raises(FixConfig, match="there are 30"):
        splice.load(tmp_path, victim=21, public=10)
    with pytest.raises(FixConfig, match="neither 2"):
        splice.load(tmp_path, classes=4)


def test_splice_refuses_other_files(tmp_path: Path) -> None:
    (tmp_path / "splice_keel.dat").write_text("A, C, G\n")
    with pytest.raises(FixData, match="splice junctions"):
        splice.load(tmp_path)


def test_splice_is_called_by_its_own_name(need: Callable[[str], None]) -> None:
    need("splice")
    data = splice.load(victim=1000)
    assert "hs3d" not in f"{data.name} {data.origin} {about('splice')}".lower()


def test_purchases_without_the_file_are_a_labelled_stand_in(nowhere: Path) -> None:
    made = purchase100.load(victim=500)
    assert "generated" in made.name
    assert "generated" in made.origin
    assert "GENERATED" in about("purchase100").note
    values, labels = purchase100.make()
    assert values.shape[1] == 600
    assert set(labels.tolist()) == set(range(1, 101))
    for column, share in purchase100.SHARES.items():
        assert values[:, column].mean() == pytest.approx(share, abs=0.02)
    with pytest.raises(FixData, match="dataset_purchase"):
        purchase100.load(generated=False)


def test_purchases_in_two_classes(nowhere: Path) -> None:
    assert set(purchase100.load(victim=200, classes=2).records["class"].tolist()) == {1.0, 2.0}
    with pytest.raises(FixConfig, match="neither 2 nor 100"):
        purchase100.load(classes=3)


def test_purchases_read_the_published_layout(tmp_path: Path) -> None:
    (tmp_path / "dataset_purchase").write_text(binary_table(110, 600, 100))
    data = purchase100.load(tmp_path, victim=50, public=20)
    assert data.name == "purchase100"


def test_a_smaller_victim_is_the_beginning_of_a_larger_one() -> None:
    small, large = (digits.load(victim=v).by_client()[VICTIM] for v in (20, 70))
    for name, values in small.columns.items():
        assert values.tolist() == large[name][:20].tolist()
    other = digits.load(victim=20, seed=1).by_client()[VICTIM]
    assert any(v.tolist() != other[n].tolist() for n, v in small.columns.items())


def test_participants_and_public_are_disjoint() -> None:
    numbers = np.arange(60.0)
    source = Source("numbers", "some", "none", "made")
    data = deal(source, [numbers], numbers % 3, Split(10, ("c000",), 4, 15))
    clients = data.by_client()
    assert list(clients) == ["participant 2", "participant 3", "participant 4", VICTIM]
    assert {len(r) for r in clients.values()} == {10}
    assert data.outside is not None
    everybody = [*data.records["c000"].tolist(), *data.outside["c000"].tolist()]
    assert len(set(everybody)) == len(everybody) == 55
    assert len(data.population().records) == 55


@pytest.mark.parametrize(
    "options",
    [
        {"victim": 0},
        {"participants": 0},
        {"public": -1},
        {"attributes": ("c999",)},
        {"victim": 1798},
    ],
)
def test_impossible_deals_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(FixConfig, match="digits"):
        digits.load(**options)

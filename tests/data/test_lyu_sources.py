"""The sources with one victim: what they read, refuse and keep apart."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.data import location30, purchase100, splice
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
    with pytest.raises(FixConfig, match="cannot be dealt of 30"):
        splice.load(tmp_path, victim=21, public=10)
    with pytest.raises(FixConfig, match="neither 2"):
        splice.load(tmp_path, classes=4)


def test_purchases_without_the_file_are_a_labelled_stand_in(nowhere: Path) -> None:
    made = purchase100.load(victim=500)
    assert "generated" in made.name
    assert "generated" in made.origin
    assert "GENERATED" in purchase100.SOURCE.note
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

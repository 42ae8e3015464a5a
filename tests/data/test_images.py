"""The papers' images: readers that refuse what is not theirs, and equal clients by seed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.data import cifar10, fashion, mnist
from overheard.data.source import load
from overheard.errors import FixConfig, FixData

Image = pytest.importorskip("PIL.Image", reason="pip install 'overheard[experiments]'")
FEW: dict[str, Any] = {"clients": 3, "records": 2, "auxiliary": 5}


def idx(values: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return gzip.compress(head + values.astype(np.uint8).tobytes())


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with twelve images in the form of each source."""
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (12, 28, 28)), np.arange(12) % 10
    for name in ("mnist", "fashion_mnist"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train-images-idx3-ubyte.gz").write_bytes(idx(pixels))
        (tmp_path / name / "train-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    return tmp_path


def test_clients_are_equal_and_nobody_holds_the_auxiliary_images(small: Path) -> None:
    for module in (mnist, fashion):
        made, again, other = (module.load(small, seed=seed, **FEW) for seed in (3, 3, 4))
        assert {name: len(r) for name, r in made.by_client().items()} == {
            "client 0": 2, "client 1": 2, "client 2": 2,
        }  # fmt: skip
        assert made.outside is not None
        assert made.outside["image"].shape == (5, 784)
        held = {r.tobytes() for r in made.records["image"]}
        assert len(held) == 6
        assert not held & {r.tobytes() for r in made.outside["image"]}
        assert made.images == {"image": (1, 28, 28)}
        assert np.array_equal(again.records["image"], made.records["image"])
        assert not np.array_equal(other.records["image"], made.records["image"])
    with pytest.raises(FixConfig, match="cannot be dealt of 12"):
        mnist.load(small, clients=4, records=2, auxiliary=5)


def test_other_files_are_refused(small: Path) -> None:
    file = small / "mnist" / "train-images-idx3-ubyte.gz"
    for raw in (b"not gzip", idx(np.zeros((12, 28, 27))), idx(np.zeros((12, 28, 28)))[:-9]):
        file.write_bytes(raw)
        with pytest.raises(FixData, match=r"ubyte\.gz: "):
            mnist.load(small, **FEW)


def test_the_fetched_table_is_the_same_data(small: Path, tmp_path: Path) -> None:
    raw = gzip.decompress((small / "mnist/train-images-idx3-ubyte.gz").read_bytes())
    pixels = np.frombuffer(raw, np.uint8, offset=16).reshape(12, -1)
    table = tmp_path / "table"
    table.mkdir()
    lines = [",".join(["label", *(f"p{k}" for k in range(784))])]
    lines += [",".join(map(str, [k % 10, *row])) for k, row in enumerate(pixels)]
    (table / "mnist_train.csv").write_text("\n".join(lines))
    one, other = mnist.load(small, **FEW), mnist.load(table, **FEW)
    assert np.array_equal(one.records["image"], other.records["image"])
    assert np.array_equal(one.records["class"], other.records["class"])
    (table / "mnist_train.csv").write_text("label,a\n1,2")
    with pytest.raises(FixData, match=r"mnist_train\.csv.*fetch it again"):
        mnist.load(table)


def test_photographs_come_channel_by_channel(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (4, 1024, 3)).astype(np.uint8)
    batch, labels = tmp_path / "data_batch_1.png", tmp_path / "train_lables.json"
    Image.fromarray(pixels).save(batch)
    labels.write_text(json.dumps([3, 1, 4, 1, 5]))
    made = cifar10.load(tmp_path, clients=2, records=1, auxiliary=2)
    assert made.images == {"image": (3, 32, 32)}
    read = cifar10.read_batch(batch)
    assert np.array_equal(read.reshape(4, 3, 1024), pixels.transpose(0, 2, 1))
    labels.write_text("[1, 2]")
    with pytest.raises(FixData, match="2 labels for 4 images; fetch it again"):
        cifar10.load(tmp_path, clients=2, records=1, auxiliary=2)
    batch.write_bytes(b"nothing")
    with pytest.raises(FixData, match="is not a PNG file"):
        cifar10.read_batch(batch)


@pytest.mark.parametrize(
    ("source", "rows"), [("mnist", 6000), ("fashion", 6000), ("cifar10", 5000)]
)
def test_the_real_files_are_read(need: Callable[[str], None], source: str, rows: int) -> None:
    need(source)
    made = load(source)
    assert len(made.by_client()) == 50
    assert made.outside is not None
    assert len(made.outside) == rows
    assert sorted(set(made.outside["class"].tolist())) == list(range(10))
    # every class is about as common as every other
    assert np.bincount(made.outside["class"].astype(int)).min() > 0.08 * rows

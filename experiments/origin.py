"""What a file of results says of how it was made: the command, the commit and the date."""

from __future__ import annotations

import datetime
import shutil
import subprocess  # nosec B404
from pathlib import Path


def origin(command: str) -> dict[str, str]:
    """Of what this command measures today with the checkout that holds this package.

    ``commit`` ends in ``+`` where code in the checkout is not as committed, and is empty where
    there is no checkout.
    """
    return {"command": command, "commit": _commit(), "date": datetime.date.today().isoformat()}


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return ""

    def said(*words: str) -> str:
        return subprocess.run(  # nosec B603  (git, and words of our own)
            [git, *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = said("status", "--porcelain", "--untracked-files=no", "--", ":/*.py")
    return said("rev-parse", "--short=12", "HEAD") + "+" * bool(changed)

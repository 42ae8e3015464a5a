"""How long until ``overheard --help`` has answered, beside Python doing nothing?"""

from __future__ import annotations

import subprocess  # nosec B404  # this interpreter is run again, by list and without a shell
import sys
from pathlib import Path

from benchmarks.runner.entry import Check, Entry, Facts, Job, Opponent, Side, Sizes

CLI = "overheard.cli"
HEAVY = ("torch", "scipy", "sklearn", "pandas")


def _help(sizes: Sizes, folder: Path) -> Job:
    asked = (
        "import sys\n"
        f"from {CLI} import main\n"
        "sys.argv = ['overheard', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run(  # nosec B603  # this interpreter, and words of ours
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    )
    heavy = sorted(set(HEAVY) & set(done.stderr.split()))
    command = str(Path(sys.executable).with_name("overheard"))

    def run() -> Facts:
        subprocess.run(  # nosec B603  # our own command
            [command, "--help"], stdout=subprocess.DEVNULL, check=True
        )
        return {"heavy": heavy}

    return Job(run, spawns=True)


def _nothing(sizes: Sizes, folder: Path) -> Job:
    def run() -> Facts:
        subprocess.run([sys.executable, "-c", "pass"], check=True)  # nosec B603  # constants
        return {}

    return Job(run, spawns=True)


ENTRIES = (
    Entry(
        "start-up",
        "overheard --help",
        Side("ours", _help),
        (
            Opponent(
                Side("python -c pass", _nothing),
                seconds_more=0.25,
                checks=(
                    Check("neither torch nor scipy is imported", lambda ours, _: not ours["heavy"]),
                ),
            ),
        ),
        {},
        {},
    ),
)

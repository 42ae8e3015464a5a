"""The command line: no logic. Every import that costs time happens inside of the commands."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Annotated

# One thread per process: on small problems more threads only wait for each other. Must be set
# before numpy is first imported; a value that the user has set is kept.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import typer
from typer import Option

from overheard import terminal
from overheard.cli import (
    audit,
    catalogue,
    check,
    describe,
    preflight,
    recording,
    report,
)
from overheard.cli import sweep as sweeps
from overheard.errors import OverheardError

app = typer.Typer(
    name="overheard",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="What can somebody who only listens learn about each client's data in federated learning?",
)


@app.callback()
def _options(
    debug: Annotated[bool, Option("--debug", help="Show an error's traceback (anywhere).")] = False,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print only the paths written (anywhere).")
    ] = False,
    json: Annotated[bool, Option("--json", help="Print one JSON object (anywhere).")] = False,
    trust: Annotated[
        list[str],
        Option(
            metavar="MODULE:FUNCTION",
            help="Code that a config or recording names and that may be imported and run (repeat; "
            "before the command).",
        ),
    ] = [],
) -> None:
    for factory in trust:
        from overheard.programs import trusted

        trusted.trust(factory)


# Each with an example, whose first word is its name.
for _example, _command in (
    ("preflight client.toml --limit 0.1", preflight.preflight),
    ("sweep sweep.toml --out sweep --workers 2", sweeps.sweep),
    ("frontier sweep", sweeps.frontier),
    ("import checkpoints --out run", recording.import_checkpoints),
    ("check people.csv --client hospital --target cost", check.check),
    ("init run --data people.csv --client site --target y", describe.init),
    ("demo --out demo-out", audit.demo),
    ("simulate federation.toml --out run", recording.simulate),
    ("audit run --threat eavesdropper --out audit", audit.audit),
    ("share run --target attribute.sex --out shared", recording.share),
    ("report audit/audit.json --out report.html", report.report),
    ("compare before/audit.json after/audit.json", report.compare),
    ("detect run --property poisoning", audit.detect),
    ("verify run", recording.verify),
    ("attacks max_entropy", catalogue.attacks),
    ("explain training.epochs", catalogue.explain),
    ("doctor", catalogue.doctor),
):
    app.command(_example.partition(" ")[0], epilog=f"Example: `overheard {_example}`")(_command)


def main() -> None:
    """Entry point."""
    run(app, "overheard")


def run(app: typer.Typer, name: str) -> None:
    """Run commands: one clear line on a user's error, the traceback only with ``--debug``."""
    # typer raises click's errors up to 0.20 or so, and later those of a copy of its own
    usage = sys.modules[typer.BadParameter.__module__]
    debug = "--debug" in sys.argv
    sys.excepthook = terminal.show_error
    warnings.showwarning = terminal.show_warning
    sys.argv = terminal.take_flags([word for word in sys.argv if word != "--debug"])
    try:
        code = app(prog_name=name, standalone_mode=False)
    except usage.NoArgsIsHelpError as help_text:
        help_text.show()
        sys.exit(2)
    except (OverheardError, OSError, usage.ClickException) as error:
        if debug:
            raise
        words, code = _of_the_system(error) if isinstance(error, OSError) else str(error), 1
        if isinstance(error, usage.UsageError):
            path = error.ctx.command_path if error.ctx else name
            words, code = f"{error.format_message()} See `{path} --help`.", 2
        terminal.complain(f"error: {words}")
    if code == 130:
        typer.echo("stopped; what was finished is kept", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _of_the_system(error: OSError) -> str:
    """An error of the disk or the system: where, what, and what to do about it."""
    remedy = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "; make room: what was finished is kept"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        remedy = "; choose a file that may be read, or a folder that may be written"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}{remedy}"

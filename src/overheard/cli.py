"""The command line: thin commands, no logic. Every import that costs time happens inside."""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

# One thread per process: on small problems more threads only wait for each other. Must be set
# before numpy is first imported; a value that the user has set is kept.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import typer  # noqa: E402  (after the threads are settled)

from overheard import terminal  # noqa: E402
from overheard.about_cli import attacks, doctor  # noqa: E402
from overheard.audit_cli import audit, run_audit, summary  # noqa: E402
from overheard.data_cli import DataDir, data_app  # noqa: E402
from overheard.detect_cli import detect  # noqa: E402
from overheard.guard_cli import preflight  # noqa: E402
from overheard.import_cli import import_checkpoints, init  # noqa: E402
from overheard.outside_cli import OPTIONS_OUTSIDE, bench, reproduce  # noqa: E402
from overheard.report_cli import compare, report  # noqa: E402
from overheard.share_cli import share  # noqa: E402
from overheard.sweep_cli import frontier, sweep  # noqa: E402

if TYPE_CHECKING:
    from overheard.evaluation.record import Audit
    from overheard.federation.config import Config

app = typer.Typer(
    name="overheard",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="What can somebody who only listens learn about each client's data in federated learning?",
)
app.add_typer(data_app, name="data")
app.command(epilog="Example: `overheard preflight client.toml --limit 0.1`")(preflight)
app.command(epilog="Example: `overheard sweep sweep.toml --out sweep --workers 2`")(sweep)
app.command(epilog="Example: `overheard frontier sweep`")(frontier)
app.command(**OPTIONS_OUTSIDE)(bench)
app.command(**OPTIONS_OUTSIDE)(reproduce)
app.command("import", epilog="Example: `overheard import checkpoints --out run`")(
    import_checkpoints
)
app.command(epilog="Example: `overheard init run`")(init)

Seed = Annotated[int | None, typer.Option(help="Seed of every random choice.", show_default="0")]
# For commands that draw nothing at random: scripts may pass the same --seed to all of them.
NoSeed = Annotated[int | None, typer.Option("--seed", hidden=True)]
Out = Annotated[Path, typer.Option(help="Where to write; must not exist yet.")]


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (anywhere).")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the paths written (anywhere).")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else (anywhere).")
    ] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Code that a config or recording names as its model's factory and that may be "
            "imported and run (repeat; before the command).",
        ),
    ] = None,
) -> None:
    gc.enable()  # see main: help is printed without coming here
    for factory in trust or ():
        from overheard.programs import trusted

        trusted.trust(factory)


@app.command(epilog="Example: `overheard demo --out demo-out`")
def demo(
    out: Out = Path("overheard-demo"),
    seed: Seed = None,
) -> None:
    """Record and audit two federations of real people, and write the report.

    Six sites of the RAND Health Insurance Experiment train a linear regression together, then a
    small network; an eavesdropper of each site's link asks who is female, black or physically
    limited.
    """
    import tomllib
    from importlib import resources

    from overheard.errors import ChooseAnotherOutput
    from overheard.federation.config import parse_config
    from overheard.report.html import write_report
    from overheard.transcript.store import Recording

    if out.exists():
        raise ChooseAnotherOutput(f"{out} exists already; choose another path or remove it")
    records: list[Audit] = []
    for name, chosen in DEMO.items():
        file = f"demo-{name}.toml"
        text = (resources.files("overheard") / file).read_text(encoding="utf-8")
        config = _with_seed(parse_config(tomllib.loads(text), file), seed)
        _simulate(config, out / name / "run")
        recording = Recording.open(out / name / "run")
        record = run_audit(recording, "eavesdropper", chosen, [], [], config.seed)
        _write(out / name / "audit.json", record.to_json())
        write_report(record, out / name / "report.html")
        records.append(record)
        summary(record, title=f"{name}: what the eavesdropper learns, all clients together")
    write_report(records[-1], out / "report.html", beside=records[:-1])
    terminal.say(f"recordings {out}/*/run", f"audits     {out}/*/audit.json")
    terminal.wrote("report", out / "report.html")
    audits = [str(out / name / "audit.json") for name in DEMO]
    terminal.emit({"audits": audits, "report": str(out / "report.html")})


DEMO = {
    "linear": [
        "exact_linear",
        "last_returned",
        "global_model",
        "majority",
        "model_based_linear",
        "max_entropy",
    ],
    "network": ["majority", "model_based_global", "model_based_last_returned", "max_entropy"],
}
"""The demo's federations and the attacks it runs on each: those that take seconds."""


@app.command(epilog="Example: `overheard simulate federation.toml --out run`")
def simulate(
    config: Annotated[Path, typer.Argument(help="TOML file that describes the federation.")],
    out: Out,
    seed: Seed = None,
    data_dir: DataDir = None,
) -> None:
    """Run a federation on this machine and record everything that it sends."""
    from overheard.federation.config import read_config

    _simulate(_with_seed(read_config(config), seed), out)
    terminal.wrote("recording", out)
    terminal.say(f"next       overheard audit {out} --out {out}-audit")
    terminal.emit({"recording": str(out)})


app.command(epilog="Example: `overheard audit run --threat eavesdropper --out audit`")(audit)
app.command(epilog="Example: `overheard share run --target attribute.sex --out shared`")(share)
app.command(epilog="Example: `overheard report audit/audit.json --out report.html`")(report)
app.command(epilog="Example: `overheard compare before/audit.json after/audit.json`")(compare)


app.command(epilog="Example: `overheard detect run --property poisoning --chart who.svg`")(detect)


@app.command(epilog="Example: `overheard verify run`")
def verify(run: Annotated[Path, typer.Argument(help="A recording.")], seed: NoSeed = None) -> None:
    """Check every byte of a recording against its index; exit 1 if anything is wrong."""
    from overheard.transcript.verify import verify as check

    with terminal.waiting("checking every byte"):
        found = check(run)
    for line in found.problems:
        terminal.complain(f"damaged: {line}")
    for line in found.unfinished:
        terminal.complain(f"unfinished: {line}")
    state = "sound" if found.sound else "damaged" if found.problems else "unfinished"
    terminal.say(f"{run}: {state} ({found.files} files, {found.rounds} rounds)")
    terminal.emit({"recording": str(run), "state": state, "problems": list(found.problems)})
    if not found.sound:
        raise typer.Exit(1)


app.command(epilog="Example: `overheard attacks max_entropy`")(attacks)
app.command(epilog="Example: `overheard doctor`")(doctor)


def _with_seed(config: Config, seed: int | None) -> Config:
    return config if seed is None else config.model_copy(update={"seed": seed})


def _simulate(config: Config, out: Path) -> None:
    from overheard.federation.plan import plan
    from overheard.federation.simulate import simulate as run

    with terminal.waiting("reading the data"):
        ready = plan(config)
    with terminal.progress() as bar:
        task = bar.add_task("recording rounds", total=config.training.rounds)
        run(ready, out, lambda done, total: bar.update(task, completed=done, total=total))


def _write(path: Path, text: str) -> None:
    from overheard.files import write_durably

    write_durably(path, [text.encode()])


def main() -> None:
    """Entry point: one clear line on a user's error, the traceback only with ``--debug``."""
    from overheard.errors import OverheardError

    # typer raises click's errors up to 0.20 or so, and later those of a copy of its own
    usage = sys.modules[typer.BadParameter.__module__]
    debug = "--debug" in sys.argv
    sys.excepthook = terminal.show_error
    warnings.showwarning = terminal.show_warning
    sys.argv = terminal.take_flags([word for word in sys.argv if word != "--debug"])
    gc.disable()  # until a command begins: what is imported stays, and looking it over takes time
    try:
        code = app(prog_name="overheard", standalone_mode=False)
    except usage.NoArgsIsHelpError as help_text:
        help_text.show()
        sys.exit(2)
    except (OverheardError, OSError, usage.ClickException) as error:
        if debug:
            raise
        words, code = _of_the_system(error) if isinstance(error, OSError) else str(error), 1
        if isinstance(error, usage.UsageError):
            path = error.ctx.command_path if error.ctx else "overheard"
            words, code = f"{error.format_message()} See `{path} --help`.", 2
        terminal.complain(f"error: {words}")
    finally:
        gc.enable()
    if code == 130:
        typer.echo("stopped; what was finished is kept", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _of_the_system(error: OSError) -> str:
    """An error of the disk or the system: where, what, and what to do about it."""
    remedy = {
        errno.ENOSPC: "; make room: what was finished is kept",
        errno.EDQUOT: "; make room: what was finished is kept",
        errno.EFBIG: "; make room: what was finished is kept",
        errno.EROFS: "; choose a folder that may be written",
        errno.EACCES: "; choose a file that may be read, or a folder that may be written",
        errno.EPERM: "; choose a file that may be read, or a folder that may be written",
    }.get(error.errno or 0, "")
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}{remedy}"

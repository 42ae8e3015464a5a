"""``overheard simulate``: a federation on this machine, and everything that it sends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from overheard import terminal
from overheard.cli.options import Out, Seed, argument, taking

if TYPE_CHECKING:
    from overheard.federation.federation import Federation


@dataclass(frozen=True)
class Options:
    out: Out
    config: Path = argument("TOML file that describes the federation.")
    seed: Seed = None


@taking(Options)
def simulate(options: Options) -> None:
    """Run a federation on this machine and record everything that it sends."""
    from overheard.federation.federation import read_config

    out = options.out
    record(with_seed(read_config(options.config), options.seed), out)
    terminal.wrote("recording", out)
    terminal.say(f"next       overheard audit {out} --out {out}-audit")
    terminal.emit({"recording": str(out)})


def with_seed(config: Federation, seed: int | None) -> Federation:
    return config if seed is None else config.model_copy(update={"seed": seed})


def record(config: Federation, out: Path) -> None:
    from overheard.federation.plan import plan
    from overheard.federation.simulate import simulate as run

    with terminal.waiting("reading the data"):
        ready = plan(config)
    with terminal.progress() as bar:
        task = bar.add_task("recording rounds", total=config.training.rounds)
        run(ready, out, lambda done, total: bar.update(task, completed=done, total=total))

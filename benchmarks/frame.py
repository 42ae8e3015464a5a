"""What the scripts of benchmarks/ and reliability/ share: options, people, rows that are kept."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import overheard
from overheard.data.dataset import Dataset
from overheard.evaluation.record import Audit
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.origin import origin
from overheard.programs.records import Records
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER, Threat
from overheard.transcript.view import Attack

Row = dict[str, Any]


def options(about: str | None, file: str, **defaults: Any) -> argparse.Namespace:
    """``--NAME`` for every default: several values where it is a list (of words: these and no
    others), a switch where it is False; and ``--out``, beside the script. ``command`` says how the
    script was started."""
    script = Path(file)
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    for name, default in {**defaults, "out": script.with_suffix(".json")}.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        elif isinstance(default, list):
            kind = type(default[0]) if default else int
            known = default if kind is str else None
            parser.add_argument(f"--{name}", nargs="+", type=kind, default=default, choices=known)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args()
    module = f"{script.parent.name}.{script.stem}"
    given.command = shlex.join(["python", "-m", module, *sys.argv[1:]])
    return given


def people(columns: Mapping[str, Any], classes: bool, **more: Any) -> Dataset:
    """A table of people of clients ``at`` with a label ``y`` and a secret ``s``."""
    settings = {"name": "people", "origin": "generated", "licence": "none", **more}
    task: Any = "classification" if classes else "regression"
    records = Records(dict(columns))
    return Dataset(
        records=records, client="at", target="y", task=task, sensitive=("s",), **settings
    )


def federation(config: Mapping[str, Any], data: Dataset | None, folder: Path) -> Recording:
    """The recording of a federation, simulated into the folder."""
    return Recording.open(simulate(plan(parse_config(dict(config)), data), folder))


def audited(
    config: Row,
    data: Dataset,
    attack: Attack,
    threat: Threat = EAVESDROPPER,
    clients: Sequence[str] = ("client",),
) -> tuple[Audit, float]:
    """What an attack learns about these clients of a simulated federation, and the processor
    seconds from the messages to the answer."""
    with tempfile.TemporaryDirectory() as folder:
        recording = federation(config, data, Path(folder) / "run")
        began = time.process_time()
        alone = overheard.AuditOptions(seed=config["seed"], rounds=False)
        secrets = config["audit"]["attributes"]
        found = overheard.audit(recording, threat, [attack], clients, secrets, alone)
        return found, time.process_time() - began


class Results:
    """A file of rows by name: what is there already is not measured again."""

    def __init__(self, path: Path, command: str) -> None:
        self.path, self.command = path, command
        self.rows: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}

    def row(self, key: str, measure: Callable[[], Row]) -> Row:
        """One row."""
        if key not in self.rows:
            self.rows[key] = {**origin(self.command), **measure()}
            self.write()
        return self.rows[key]

    def runs(self, key: str, count: int, measure: Callable[[int], Row]) -> list[Row]:
        """The first runs of a row, each written as soon as it is measured."""
        row = self.rows.setdefault(key, {**origin(self.command), "runs": []})
        while len(row["runs"]) < count:
            row["runs"].append(measure(len(row["runs"])))
            self.write()
        return list(row["runs"][:count])

    def write(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.rows, indent=1) + "\n")


def show(key: str, runs: Sequence[Row], *names: str) -> None:
    """A line: the means of some figures, and how many answers flagged themselves."""
    means = [f"{name} {fmean(run[name] for run in runs):.3f}" for name in names]
    flagged = sum(bool(run.get("flag")) for run in runs)
    print(f"{key}: {', '.join(means)}, flagged {flagged} of {len(runs)}", flush=True)


def counted(what: str, trials: int, faults: int, outcome: str) -> Row:
    """A row of a table of trials, printed."""
    print(f"{what}: {faults} of {trials}; {outcome}", flush=True)
    return {"what": what, "trials": trials, "faults": int(faults), "outcome": outcome}


def finish(given: argparse.Namespace, title: str, rows: Sequence[Row]) -> int:
    """Write a table of trials; 1 if there is a fault in it."""
    content = {"title": title, **origin(given.command), "rows": list(rows)}
    given.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any(row["faults"] for row in rows))

"""Do Flower's and FLARE's examples arrive at a true report, with one line and two commands?

``python -m experiments.robustness.real_apps --flower DIR --nvflare DIR --out OUT [NAME ...]``

takes checkouts of adap/flower and NVIDIA/NVFlare and fetches nothing. Every example runs as it is,
but for its data (`real_data`, or files that its own preparation would have written; settings of its
own are named in `APPS`) and the one line that records it; then `overheard init` and `overheard
audit` as printed. Needs pandas and tensorboardX. Run it in a network namespace of its own
(``unshare -rn sh -c 'ip link set lo up && exec python ...'``): Ray listens on every interface.

The table: recorded (rounds), described (do the replays that `init` makes fit?), measured (by the
attack on the first secret; the baseline beside it), true (is who-is-who as the nodes said, and each
key of the description as in the example's own code?), minutes of `init` and `audit`, edits (of the
example beside its data; what `init` writes is audited as it is).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess  # nosec B404  # the examples run as processes of their own
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, NamedTuple, cast

import numpy as np
from sklearn.datasets import load_digits, load_iris

from experiments.data import adult
from experiments.pages import ROOT, table
from experiments.recordings import write_csv
from experiments.robustness import real_data
from overheard.attacks import attack_named, listens
from overheard.data.bundled import randhie
from overheard.evaluation.record import read_audit


class App(NamedTuple):
    """An example; what each field is: real_apps.toml."""

    folder: str
    line: str
    rows: str
    given: list[str]
    true: dict[str, Any]
    before: str = ""
    sites: int = 3
    settings: dict[str, Any] = {}
    words: tuple[str, ...] = ()


KNOWN = tomllib.loads((Path(__file__).parent / "real_apps.toml").read_text())
APPS = {name: App(**about) for name, about in KNOWN["apps"].items()}


def columns_of(kind: str, size: int) -> dict[str, Any]:
    """Columns of so many rows."""
    some = np.random.default_rng(0).permutation
    if kind == "images":  # 8 x 8 made 32 x 32, in three channels: numbers between -1 and 1
        digits, labels = load_digits(return_X_y=True)
        large = np.kron(digits[:size].reshape(-1, 8, 8) / 8 - 1, np.ones((4, 4))).reshape(size, -1)
        return {**{f"p{k}": v for k, v in enumerate(np.tile(large, 3).T)}, "label": labels[:size]}
    if kind == "iris":
        (inputs, labels), rows = load_iris(return_X_y=True), some(150)[:size]
        names = ("sepal_length", "sepal_width", "petal_length", "petal_width")
        return {**dict(zip(names, inputs[rows].T, strict=True)), "species": labels[rows]}
    if kind == "people":
        records = randhie(above_median=True).records
        rows = some(len(records))[:size]
        labels = records["high_spending"][rows]
        inputs = {name: np.round(records[name][rows], 2) for name in KNOWN["columns"]["people"]}
        return {**inputs, "label": (labels == labels.max()).astype(int)}
    people = [p for p in adult.SOURCE.locate(None)[0].read_text().splitlines() if "?" not in p]
    cells = [people[row].split(", ") for row in some(len(people) - 1)[:size]]
    names = KNOWN["columns"].get(kind, adult.COLUMNS)
    return dict(zip(names, np.array(cells).T, strict=True))


def prepared(app: App, out: Path) -> None:
    """The table that the auditor holds, and the files from which sites read theirs."""
    kind, count, *same = app.rows.split()
    share = int(count)
    columns = columns_of(kind, share * (1 if same else app.sites))
    rows = [list(row) for row in zip(*columns.values(), strict=True)] * (app.sites if same else 1)
    names = [f"site-{1 + number // share}" for number in range(len(rows))]
    listed = ([*row, name] for row, name in zip(rows, names, strict=True))
    write_csv(out / "table.csv", [[*columns, "client"], *listed])
    for name in dict.fromkeys(names) if "DATA" in app.words else ():
        own = [row for row, who in zip(rows, names, strict=True) if who == name]
        (out / "data" / name).mkdir(parents=True)
        skipped = [] if name == "site-1" else [["|1x3 Cross validator"]]  # as UCI's second file
        write_csv(out / "data" / name / "data.csv", [*skipped, *own])
        if kind == "people":
            for part in ("train", "test"):
                np.save(out / "data" / f"{name}.{part}.x.npy", [row[:-1] for row in own])
                np.save(out / "data" / f"{name}.{part}.y.npy", [row[-1:] for row in own])


def simulate(folder: Path, settings: dict[str, Any], out: Path) -> None:
    """Flower's own simulation of an app in this folder, with its settings; which node is which
    partition, as nobody else learns, is written down."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    about = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    config = {**flat(about["config"]), **settings}
    parts = (about["components"][f"{side}app"].split(":") for side in ("server", "client"))
    server, client = (getattr(importlib.import_module(module), name) for module, name in parts)
    told = ServerApp()

    @told.main()
    def main(grid: Any, context: Any) -> None:
        context.run_config.update(config)
        server(grid, context)

    def site(message: Any, context: Any) -> Any:
        (out / "nodes" / str(context.node_id)).write_text(str(context.node_config["partition-id"]))
        return client(message, replace(context, run_config=config))

    (out / "nodes").mkdir()
    run_simulation(told, cast(Any, site), num_supernodes=int(os.environ["REAL_APPS_SITES"]))


def flat(table: dict[str, Any], above: str = "") -> dict[str, Any]:
    """A TOML file's values by their whole names."""
    parts = [
        flat(v, f"{above}{k}.") if isinstance(v, dict) else {above + k: v} for k, v in table.items()
    ]
    return {k: v for part in parts for k, v in part.items()}


def ran(app: App, checkout: Path, out: Path) -> None:
    """The example, unmodified but for its data and the one line."""
    flower, folder = app.folder.startswith("flower"), out / "app"
    copytree(checkout / "examples" / app.folder.partition("/")[2], folder)
    file = folder / "job.py" if not flower else next(folder.glob("*/server_app.py"))
    line, text = app.line.replace("RUN", repr(str(out / "run"))), file.read_text()
    place = text.index(app.before) if app.before else len(text)
    file.write_text(f"{text[:place]}{line}\n{text[place:]}")
    words = [word.replace("DATA", str(out / "data")) for word in app.words]
    inside = ["-m", __spec__.name, "--inside", str(folder), json.dumps(app.settings), str(out)]
    python(inside if flower else ["job.py", *words], out, "run", app.sites)


def python(words: Sequence[str], out: Path, log: str, sites: int = 0) -> float:
    """Run it in the example's folder, with its data; the minutes that it took."""
    began, path = time.monotonic(), [real_data.write(out / "modules"), ROOT, out / "app", *sys.path]
    environment = {**os.environ, **KNOWN["environment"], "REAL_APPS_SITES": str(sites)}
    environment["REAL_APPS_TABLE"] = str(out / "table.csv")
    environment["PYTHONPATH"] = os.pathsep.join(str(place) for place in path if place)
    with (out / f"{log}.log").open("w") as file:
        subprocess.run(  # nosec B603  # the words are this file's, no shell reads them
            [sys.executable, *words], env=environment, cwd=out / "app", stdout=file, stderr=file,
            timeout=1800, check=False,
        )  # fmt: skip
    return (time.monotonic() - began) / 60


def row(name: str, app: App, out: Path) -> list[str]:
    """What two commands say of the recording."""
    run, audit = out / "run", out / "audit"
    found = [name, f"{len(list(run.glob('messages/round*')))} rounds"]
    given = ["--data", str(out / "table.csv"), *app.given]
    spent = python(["-m", "overheard", "init", str(run), *given], out, "init")
    if not (run / "audit.toml").exists():
        return [*found, (out / "init.log").read_text().strip().splitlines()[-1][:150], "", "", ""]
    known = tomllib.loads((run / "audit.toml").read_text())
    keys, named = flat(known), known.get("clients", {})
    who = {f.name: f"site-{1 + int(f.read_text())}" for f in (out / "nodes").glob("*")}
    off = [key for key, value in app.true.items() if keys.get(key) != value]
    off += [node for node in who if node in named and who[node] != named[node]]
    trust = [word for word in given if word == "--trust-code"]
    words = ["--with", str(run / "audit.toml"), "--out", str(audit), "--no-rounds", *trust]
    spent += python(["-m", "overheard", "audit", str(run), *words], out, "audit")
    if not (audit / "audit.json").exists():
        last = (out / "audit.log").read_text().strip().splitlines()[-1][:150]
        return [*found, last, "", "" if off else "yes", f"{spent:.1f}"]
    record = read_audit(audit / "audit.json")
    fit = [replay.outcome for replay in record.replays]
    best = next(r for r in record.pooled if listens(attack_named(r.attack)))
    measured = f"{best.attribute}: {best.value:.3f} (commonest {best.majority or 0:.3f})"
    true = "no: " + ", ".join(off) if off else "yes"
    return [*found, f"{fit.count('fits')} of {len(fit)} fit", measured, true, f"{spent:.1f}"]


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        simulate(Path(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4]))
        return
    options = argparse.ArgumentParser()
    for name in ("flower", "nvflare", "out"):
        options.add_argument(f"--{name}", type=Path, required=True)
    options.add_argument("apps", nargs="*", default=list(APPS), metavar="NAME")
    asked, rows = options.parse_args(), []
    for name in asked.apps:
        app, out = APPS[name], asked.out.resolve() / name
        if not (out / "run").exists():  # else what was recorded before is asked again
            rmtree(out, ignore_errors=True)
            out.mkdir(parents=True)
            prepared(app, out)
            ran(app, getattr(asked, app.folder.partition("/")[0]), out)
        (out / "run" / "audit.toml").unlink(missing_ok=True)
        rmtree(out / "audit", ignore_errors=True)
        edits = ", ".join(["the line", *(f"{k} = {v}" for k, v in app.settings.items())])
        rows.append([*row(name, app, out), edits])
        print(rows[-1], flush=True)
    print(table(["example", "recorded", "described", "measured", "true", "minutes", "edits"], rows))


if __name__ == "__main__":
    main()

"""Is preflight ever easy about what the audit then finds? Both, over many varied federations.

    python -m reliability.preflight [--trials 36] [--seed 0]

Every federation is drawn: its people, the secret (balanced, rare, of three values), the model, the
recipe, the defence, what else is asked. It is simulated and audited. Each client asks beforehand,
with another seed: once from a file with its own records alone, once with the whole config. A fault
is a secret that the audit calls exposed and preflight called ok. What is done is kept in
reliability/preflight/ and not done again.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Results, Row, counted, federation, finish, options
from overheard.errors import FixConfig, FixData
from overheard.evaluation.audit import audit
from overheard.evaluation.resume import Kept
from overheard.federation.federation import parse_config
from overheard.guard.preflight import preflight
from overheard.transcript.threat import EAVESDROPPER

OTHER_SEED = 1000
MODES = ("own records", "whole config")
EASY = ("ok", "not asked")
"""What of the package the results depend on."""


def drawn(number: int, seed: int) -> Row:
    """A federation: how its table is made, and its config."""
    rng = np.random.default_rng([seed, number])

    def one_of(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    model = one_of("linear", "logistic", "mlp")
    people = {
        "clients": one_of(2, 2, 3),
        "records": one_of(24, 36, 50),
        "columns": one_of(3, 6, 9),
        "secret": one_of("balanced", "rare", "three values"),
        "task": "classification" if model == "logistic" else "regression",
        "effect": one_of(0.0, 0.8),
    }
    training: Row = {"rounds": one_of(1, 5, 30), "learning_rate": one_of(0.02, 0.1)}
    training["participation"] = one_of(1.0, 0.5)
    if rng.random() < 0.6:
        training |= {"algorithm": one_of("fedavg", "fedsgd")}
    else:
        training |= {"batch_size": one_of(0, 16), "epochs": one_of(2, 4)}
    content: Row = {"seed": number, "model": {"name": model}, "training": training}
    if model == "mlp":
        content["model"]["hidden"] = [one_of(8, 24)]
    content["audit"] = {"attributes": ["secret"]}
    if rng.random() < 0.4:
        content["audit"]["membership"] = 12
    if model != "logistic" and rng.random() < 0.3:
        content["audit"]["label"] = True
    defences = {
        "none": [],
        "little noise": [{"name": "gaussian", "sd": 1e-4}],
        "noise": [{"name": "gaussian", "sd": 0.01}],
        "much noise": [{"name": "gaussian", "sd": 1.0}],
        "clipped, noise": [
            {"name": "clip", "norm": 0.1},
            {"name": "gaussian", "sd": 0.02},
        ],
        "column left out": [{"name": "drop_column", "columns": ["secret"]}],
    }
    kind = one_of("none", "none", *defences)
    content["defence"] = defences[kind]
    return {"people": people, "defence": kind, "config": content}


def write_table(people: Row, number: int, seed: int, folder: Path) -> dict[str, Path]:
    """The federation's table, and one of each client's own records."""
    rng = np.random.default_rng([seed, number, 1])
    records, columns = people["records"], people["columns"]
    slopes = np.linspace(1, -1, columns)
    tables: dict[str, list[list[Any]]] = {}
    for client in range(people["clients"]):
        x = rng.normal(size=(records, columns)) + 0.3 * rng.normal(size=columns)
        if people["secret"] == "three values":
            secret: Any = rng.integers(3, size=records)
        elif people["secret"] == "balanced":
            secret = np.where(rng.random(records) < 0.45, 1, 0)
        else:
            secret = np.zeros(records, dtype=int)
            secret[rng.choice(records, 2, replace=False)] = 1
        y = x @ slopes + people["effect"] * secret + 0.5 * rng.normal(size=records)
        label: list[Any] = y.tolist()
        if people["task"] == "classification":
            label = ["yes" if v > 0 else "no" for v in y + rng.logistic(size=records)]
        names = "abc" if people["secret"] == "three values" else "01"
        tables[f"site {client}"] = [
            [f"site {client}", *(f"{v:.6f}" for v in x[i]), names[secret[i]], label[i]]
            for i in range(records)
        ]
    head = ["client", *(f"x{j}" for j in range(columns)), "secret", "y"]
    paths = {}
    for name, rows in {**tables, "": [r for t in tables.values() for r in t]}.items():
        paths[name] = folder / f"{name or 'everybody'}.csv"
        with paths[name].open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
    return paths


def config_of(content: Row, path: Path, **changes: Any) -> Row:
    """The config on one of the tables."""
    data = {"source": "file", "path": str(path), "client": "client", "target": "y"}
    return {**content, "data": data, **changes}


def levels(found: Any) -> dict[str, str]:
    """The audit's level of every secret."""
    return {_name(s.question, s.attribute): s.level for s in found.secrets}


def _name(question: str, attribute: str | None) -> str:
    return f"{question} {attribute}" if attribute else question


def tried(number: int, seed: int) -> Row:
    """One federation: what the audit finds of each client, and what preflight said before."""
    made, begin = drawn(number, seed), time.process_time()
    with tempfile.TemporaryDirectory(prefix="overheard-preflight-") as name:
        folder = Path(name)
        paths = write_table(made["people"], number, seed, folder)
        content = made["config"]
        run = federation(config_of(content, paths[""]), None, folder / "run")
        (folder / "kept").mkdir()
        kept = Kept(folder / "kept")
        whole = levels(audit(run, EAVESDROPPER, kept=kept))
        before = {"seed": number + OTHER_SEED}
        clients: Row = {}
        for client in run.clients:
            own = config_of(content, paths[client], **before)
            every = config_of(content, paths[""], **before)
            clients[client] = {
                "audit": levels(audit(run, EAVESDROPPER, clients=[client], kept=kept)),
                "own records": _asked(own, client),
                "whole config": _asked(every, client),
            }
    seconds = round(time.process_time() - begin, 1)
    return made | {"number": number, "audit": whole, "clients": clients, "seconds": seconds}


def _asked(config: Row, client: str) -> Row:
    """Preflight's answer on every secret, or why there is none."""
    try:
        found = preflight(parse_config(config), client, changes=False)
    except (FixConfig, FixData) as error:
        return {"refused": str(error)}
    return {_name(e.question, e.attribute): e.answer(found.limits) for e in found.found}


def judged(row: Row) -> list[tuple[str, str, str, str, str]]:
    """(mode, client, secret, the audit's level, preflight's answer) of everything measured."""
    found = []
    for client, told in row["clients"].items():
        for mode in MODES:
            for secret, level in told["audit"].items():
                refused = "refused" if "refused" in told[mode] else "not asked"
                found.append((mode, client, secret, level, told[mode].get(secret, refused)))
    for mode in MODES:
        for secret, level in row["audit"].items():
            said = [told[mode].get(secret, "not asked") for told in row["clients"].values()]
            worst = next((a for a in said if a != "ok"), "ok")
            found.append((mode, "everybody", secret, level, worst))
    return found


def summary(rows: Sequence[Row]) -> list[Row]:
    """What preflight had said of what the audit then found, and what caution costs."""
    found = [one for row in rows for one in judged(row)]
    lines = []
    for mode in MODES:
        for level in ("exposed", "unclear", "no sign", "not measured"):
            said = Counter(one[4] for one in found if (one[0], one[3]) == (mode, level))
            easy = sum(said[answer] for answer in EASY) if level == "exposed" else 0
            words = ", ".join(f"{answer} {n}" for answer, n in sorted(said.items()))
            what = f"asked with {mode}: the audit says {level}"
            lines.append(counted(what, said.total(), easy, f"preflight: {words or 'nothing'}"))
    return lines


def main() -> int:
    """Try them; 1 if preflight was ever easy about what the audit exposes."""
    given = options(__doc__, __file__, trials=36, seed=0)
    kept = Results(given.out.with_suffix("") / "federations.json", given.command)
    rows = [
        kept.row(f"{number}; seed {given.seed}", partial(tried, number, given.seed))
        for number in range(given.trials)
    ]
    return finish(given, "Preflight against the audit", summary(rows))


if __name__ == "__main__":
    raise SystemExit(main())

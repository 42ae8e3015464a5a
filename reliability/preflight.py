"""Is preflight ever easy about what the audit then finds? Both, over many varied federations.

    python reliability/preflight.py [--federations 36] [--seed 0] [--out reliability]

Every federation is drawn: its people, the secret (balanced, rare, of three values), the model, the
recipe, the defence, what else is asked. It is simulated and audited. Each client asks beforehand,
with another seed: once from a file with its own records alone, once with the whole config. A fault
is a secret that the audit calls exposed and preflight called ok. What is done is kept in
``preflight/federations.json`` and not done again; remove that file to begin anew.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from overheard.errors import FixConfig, FixData
from overheard.evaluation.audit import audit
from overheard.evaluation.resume import Kept
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.guard.preflight import preflight
from overheard.report.verdict import verdicts
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

HERE = Path(__file__).resolve().parent
OTHER_SEED = 1000
MODES = ("own records", "whole config")
EASY = ("ok", "not asked")
"""What of the package the results depend on."""
Row = dict[str, Any]


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
            secret = rng.integers(3, size=records)
        elif people["secret"] == "balanced":
            secret = (rng.random(records) < 0.45).astype(int)
        else:
            secret = np.isin(np.arange(records), rng.choice(records, 2, replace=False)).astype(int)
        y = x @ slopes + people["effect"] * secret + 0.5 * rng.normal(size=records)
        label = y.tolist()
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


def config_of(content: Row, path: Path, **changes: Any) -> Any:
    """The config on one of the tables."""
    data = {"source": "file", "path": str(path), "client": "client", "target": "y"}
    return parse_config({**content, "data": data, **changes})


def levels(found: Any) -> dict[str, str]:
    """The audit's level of every secret."""
    return {_name(v.topic.question, v.topic.attribute): v.level.name for v in verdicts(found)}


def _name(question: str, attribute: str | None) -> str:
    return f"{question} {attribute}" if attribute else question


def tried(number: int, seed: int) -> Row:
    """One federation: what the audit finds of each client, and what preflight said before."""
    made, begin = drawn(number, seed), time.process_time()
    with tempfile.TemporaryDirectory(prefix="overheard-preflight-") as name:
        folder = Path(name)
        paths = write_table(made["people"], number, seed, folder)
        content = made["config"]
        settled = plan(config_of(content, paths[""]))
        run = Recording.open(simulate(settled, folder / "run"))
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


def _asked(config: Any, client: str) -> Row:
    """Preflight's answer on every secret, or why there is none."""
    try:
        found = preflight(config, client, changes=False)
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


def in_words(row: Row) -> str:
    """What a federation was, in a line."""
    people, config = row["people"], row["config"]
    training = config["training"]
    model = config["model"]["name"] + "".join(f" {h}" for h in config["model"].get("hidden", ()))
    parts = [
        f"{row['number']}: {people['clients']} x {people['records']}, {people['secret']}",
        model,
        training.get("algorithm", "fedavg"),
        f"{training['rounds']} round(s)",
    ]
    if "epochs" in training:
        parts.append(f"{training['epochs']} epochs, batch {training['batch_size'] or 'all'}")
    parts.append(row["defence"] if row["defence"] != "none" else "no defence")
    parts += [asked for asked in ("membership", "label") if config["audit"].get(asked)]
    return "; ".join(parts)


def summary(rows: list[Row]) -> list[Row]:
    """One line for each federation, then what caution costs."""
    lines, everything = [], []
    for row in rows:
        found = judged(row)
        everything += found
        missed = [f for f in found if f[3] == "exposed" and f[4] in EASY]
        exposed = sorted({s for _, _, s, level, _ in found if level == "exposed"})
        passed = sum(f[4] == "ok" for f in found)
        outcome = f"Audit exposes: {', '.join(exposed) or 'nothing'}. Preflight: ok {passed} times"
        outcome += "." if not missed else f"; missed: {missed}."
        lines.append(
            {"what": in_words(row), "trials": len(found), "faults": len(missed), "outcome": outcome}
        )
    for mode in MODES:
        part = [f for f in everything if f[0] == mode]
        for level in ("exposed", "unclear", "no sign", "not measured"):
            at = [f[4] for f in part if f[3] == level]
            counts = {a: at.count(a) for a in dict.fromkeys(at)}
            told = ", ".join(f"{a} {n}" for a, n in sorted(counts.items()))
            lines.append(
                {
                    "what": f"all, asked with {mode}: the audit says {level}",
                    "trials": 0,
                    "faults": 0,
                    "outcome": f"{len(at)} times; preflight: {told or 'nothing'}.",
                }
            )
    return lines


def main() -> int:
    """Try them; 1 if preflight was ever easy about what the audit exposes."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--federations", type=int, default=36)
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--out", type=Path, default=HERE, help="folder of the results")
    asked = ask.parse_args()
    place = asked.out / "preflight" / "federations.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    kept: Row = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    seed = asked.seed
    rows = [r for r in kept.get("rows", []) if r["seed"] == seed]
    for number in range(asked.federations):
        if any(r["number"] == number for r in rows):
            continue
        row = tried(number, seed) | {"seed": seed}
        rows.append(row)
        _write(place, {"rows": sorted(rows, key=lambda r: r["number"])})
        missed = [f for f in judged(row) if f[3] == "exposed" and f[4] in EASY]
        print(f"{row['seconds']:6.1f} s  {in_words(row)}  {missed or ''}", flush=True)
    rows = sorted((r for r in rows if r["number"] < asked.federations), key=lambda r: r["number"])
    command = f"python reliability/preflight.py --federations {asked.federations} --seed {seed}"
    lines = summary(rows)
    _write(
        asked.out / "preflight.json",
        {"title": "Preflight against the audit", "command": command, "rows": lines},
    )
    for line in lines[-8:]:
        print(line["what"], "|", line["outcome"])
    return min(1, sum(line["faults"] for line in lines))


def _write(path: Path, content: Row) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    half = path.with_suffix(".half")
    half.write_text(text, encoding="utf-8")
    half.replace(path)


if __name__ == "__main__":
    sys.exit(main())

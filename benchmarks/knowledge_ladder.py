"""How much must one know? What is learned on every rung of the ladder of knowledge.

    python benchmarks/knowledge_ladder.py [--seeds 3] [--only NAME ...]

Clients of 300 people, 2,000 others as auxiliary records, one attribute, full batches; Adult (needs
the data) by logistic regression and by a network of 64 units, RAND by the network, and by the same
network two tables on which no decoder was tuned: wages of the Current Population Survey of 1988
(does somebody live in a city?) and of the General Social Survey (gender), whose label is a wage
above the median (they are read from ``wages_cps`` in the data folder). Beside the rungs
of `overheard.evaluation.rungs`: 90%, 30% and 10% of the records. Writes
benchmarks/knowledge_ladder.json, a row a case and seed: of each rung what an audit says of it
(`overheard.evaluation.rungs.learned`) and, in bins by how sure, how many records there are and how
many are right. Settings were fixed before these seeds were looked at; what is there is kept.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from overheard import Recording, parse_config, plan, simulate
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.attribute.partial_decode import PartialDecode
from overheard.data import adult, randhie
from overheard.data.dataset import Dataset
from overheard.evaluation.rungs import RUNGS, Rung, learned, lowered
from overheard.origin import origin
from overheard.programs.records import Records
from overheard.transcript.knowledge import AttributeDomain, AuxiliaryData
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import Attack, View

OUT = Path(__file__).with_suffix(".json")
COMMAND = "python benchmarks/knowledge_ladder.py"
PEOPLE, OTHERS, FIRST_SEED = 300, 2000, 700
NETWORK: dict[str, Any] = {"name": "mlp", "hidden": [64]}
COLLEAGUE = RUNGS[0]
LADDER = (
    *RUNGS,
    Rung("90%", "knows 90% of the records", records=0.9),
    Rung("30%", "knows 30% of the records", records=0.3),
    Rung("10%", "knows 10% of the records", records=0.1),
)


@dataclass(frozen=True)
class Case:
    """A table, the attribute asked about, its demographics and the model."""

    data: str
    column: str
    demographics: tuple[str, ...]
    model: dict[str, Any]
    rate: float = 0.1

    def table(self) -> Dataset:
        if self.data in WAGES:
            return wages(self.data)
        return adult.load() if self.data == "adult" else randhie.load()


WAGES = {"CPS1988": ("wage", "smsa"), "gss_wages": ("realrinc", "gender")}
"""Amount whose upper half is the label, and the attribute asked about."""


def wages(name: str) -> Dataset:
    """A table of wages, without rows that lack a cell; texts with many values are left out."""
    amount, secret = WAGES[name]
    path = Path(os.environ["OVERHEARD_DATA"]) / "wages_cps" / f"{name}.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        head, *rows = csv.reader(lines)
    cells = np.array([row for row in rows if all(row)])
    columns: dict[str, Any] = {}
    for column, values in zip(head, cells.T, strict=True):
        try:
            columns[column] = values.astype(np.float64)
        except ValueError:
            columns[column] = values
    high = columns[amount] > np.median(columns.pop(amount))
    columns.pop("occ10", None)  # a number that is a name
    columns |= {"high": high.astype(np.float64), "at": np.full(len(high), "all")}
    return Dataset(name, Records(columns), "at", "high", "classification", (secret,), name, "see R")


ADULT = ("age", "race", "education", "marital_status", "native_country")
RAND = ("xage", "linc", "lfam", "educdec", "child")
CASES = {
    "Adult sex, logistic": Case("adult", "sex", ADULT, {"name": "logistic"}),
    "Adult sex, network": Case("adult", "sex", ADULT, NETWORK),
    "RAND female, network": Case("randhie", "female", RAND, NETWORK),
    "RAND black, network": Case("randhie", "black", RAND, NETWORK),
    "RAND physlm, network": Case("randhie", "physlm", RAND, NETWORK),
    "CPS1988 smsa, network": Case("CPS1988", "smsa", ("ethnicity", "education", "region"), NETWORK),
    "GSS gender, network": Case(
        "gss_wages", "gender", ("age", "educcat", "maritalcat", "childs"), NETWORK
    ),
}


def people(case: Case, seed: int) -> Dataset:
    """A client of people, another that only takes part, and others whom everybody knows."""
    whole = case.table()
    rows = np.random.default_rng([20261117, seed]).permutation(len(whole.records))
    taken = whole.records.take(rows[: PEOPLE + 100]).without(whole.client)
    outside = whole.records.take(rows[PEOPLE + 100 :][:OTHERS]).without(whole.client)
    who = np.where(np.arange(len(taken)) < PEOPLE, "client", "other")
    records = Records({**taken.columns, whole.client: who})
    return replace(whole, records=records, outside=outside)


def rung_of(view: View, case: Case, rung: Rung, seed: int, truth: np.ndarray) -> dict[str, Any]:
    """What is learned on one rung, and how many are right by how sure the attack is of them."""
    there = view.know(AuxiliaryData).records.columns
    demographics = tuple(name for name in case.demographics if name in there)
    view, known = lowered(view, rung, demographics, seed)
    attack: Attack = MaxEntropy() if rung == COLLEAGUE else PartialDecode()
    found, sure, right = learned(view, rung, attack, seed, truth[known])
    edges = np.digitize(sure, np.linspace(0, 1, 11))
    bins = [
        [int((edges == b).sum()), float(sure[edges == b].sum()), int(right[edges == b].sum())]
        for b in np.unique(edges)
    ]
    return found.model_dump(mode="json", exclude={"rung", "words", "client"}) | {"bins": bins}


def measured(name: str, seed: int, there: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rungs of a case that are not there yet, each with its name."""
    case = CASES[name]
    content = {
        "seed": seed,
        "data": {"source": "randhie" if case.data in WAGES else case.data},
        "model": case.model,
        "training": {"rounds": 5, "learning_rate": case.rate},
        "audit": {"attributes": [case.column]},
    }
    with tempfile.TemporaryDirectory() as folder:
        run = simulate(plan(parse_config(content), people(case, seed)), Path(folder) / "run")
        recording = Recording.open(run)
        view = observe(recording, EAVESDROPPER, attribute(case.column), "client")
        truth = view.know(AttributeDomain).positions(recording.truth()["client"])
        for rung in LADDER:
            if rung.name not in there:
                yield rung.name, rung_of(view, case, rung, seed, truth)


def calibration(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Expected calibration error over several clients, ten bins; and that of an answer that is as
    sure of as many records and perfectly calibrated, in the mean over draws."""
    width: dict[int, np.ndarray] = {}
    for count, sure, right in (b for row in rows for b in row["bins"]):
        place = min(int(10 * sure / count), 9)
        width[place] = np.add(width.get(place, np.zeros(3)), [count, sure, right])
    counts, sure, right = np.array(list(width.values())).T
    drawn = np.random.default_rng(0).binomial(counts.astype(int), sure / counts, (1000, len(sure)))
    apart = np.abs(sure - np.vstack([right, drawn])).sum(axis=1) / counts.sum()
    return float(apart[0]), float(apart[1:].mean())


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    options = parser.parse_args()
    rows = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name in options.only:
        keys = [f"{name}; seed {FIRST_SEED + number}" for number in range(options.seeds)]
        for key in keys:
            rungs = rows.setdefault(key, {**origin(COMMAND), "rungs": {}})["rungs"]
            if len(rungs) == len(LADDER):
                continue
            for rung_name, row in measured(name, int(key.split()[-1]), tuple(rungs)):
                rungs[rung_name] = row
                OUT.write_text(json.dumps(rows, indent=1) + "\n")
        print(name)
        for rung in LADDER:
            found = [rows[key]["rungs"][rung.name] for key in keys]
            kept = [row for row in found if not row["flag"]] or found
            error, chance = calibration(kept)
            figures = {k: fmean(r[k] for r in kept) for k in ("value", "confidence", "stranger")}
            print(
                f"  {rung.name:14s} {figures['value']:.3f} (expects {figures['confidence']:.3f},"
                f" calibration error {error:.3f}, by chance {chance:.3f}),"
                f" stranger {figures['stranger']:.3f},"
                f" certain {sum(r['certain'] for r in kept)}"
                f" ({sum(r['certain_right'] for r in kept)} right),"
                f" flagged {sum(bool(r['flag']) for r in found)} of {len(found)},"
                f" {fmean(r['seconds'] for r in found):.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()

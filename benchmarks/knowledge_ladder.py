"""How much must one know? What is learned on every rung of the ladder of knowledge.

    python -m benchmarks.knowledge_ladder [--seeds 3] [--only NAME ...]

Clients of 300 people, 2,000 others as auxiliary records, one attribute, full batches; Adult (needs
the data) by logistic regression and by a network of 64 units, RAND by the network, and by the same
network two tables on which no decoder was tuned: wages of the Current Population Survey of 1988
(does somebody live in a city?) and of the General Social Survey (gender), whose label is a wage
above the median (they are read from ``wages_cps`` in the data folder). Beside the rungs
of `overheard.evaluation.complete`: 90%, 30% and 10% of the records. Writes
benchmarks/knowledge_ladder.json, a row a case and seed: of each rung what an audit says of it
(`overheard.evaluation.complete.learned`) and, in bins by how sure, how many records there are and
how many are right. Settings were fixed before these seeds were looked at; what is there is kept.
"""

from __future__ import annotations

import csv
import gzip
import os
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Results, Row, federation, options, show
from experiments.data import adult
from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.partial import PartialDecode
from overheard.data.bundled import randhie
from overheard.data.dataset import Dataset
from overheard.evaluation.complete import RUNGS, Rung, learned, lowered
from overheard.programs.records import Records
from overheard.transcript.knowledge import AttributeDomain, AuxiliaryData
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import Attack, View, observe

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
        return adult.load() if self.data == "adult" else randhie()


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


def rung_of(view: View, case: Case, rung: Rung, seed: int, truth: np.ndarray) -> Row:
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


def measured(case: Case, seed: int, there: Collection[str]) -> Iterator[tuple[str, Row]]:
    """The rungs of a case that are not there yet, each with its name."""
    content = {
        "seed": seed,
        "data": {"source": "randhie" if case.data in WAGES else case.data},
        "model": case.model,
        "training": {"rounds": 5, "learning_rate": case.rate},
        "audit": {"attributes": [case.column]},
    }
    with tempfile.TemporaryDirectory() as folder:
        recording = federation(content, people(case, seed), Path(folder) / "run")
        view = observe(recording, EAVESDROPPER, attribute(case.column), "client")
        truth = view.know(AttributeDomain).positions(recording.truth()["client"])
        for rung in LADDER:
            if rung.name not in there:
                yield rung.name, rung_of(view, case, rung, seed, truth)


def calibration(rows: list[Row]) -> tuple[float, float]:
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
    given = options(__doc__, __file__, seeds=3, only=list(CASES))
    kept = Results(given.out, given.command)
    for name in given.only:
        found = []
        for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
            rungs = kept.row(f"{name}; seed {seed}", lambda: {"rungs": {}})["rungs"]
            there = [rung for rung, row in rungs.items() if "value" in row]  # the form of today
            if len(there) < len(LADDER):
                for rung, row in measured(CASES[name], seed, there):
                    rungs[rung] = row
                    kept.write()
            found.append(rungs)
        for rung in (rung.name for rung in LADDER):
            here = [row[rung] for row in found]
            sound = [row for row in here if not row["flag"]] or here
            error, chance = calibration(sound)
            figures = ("value", "confidence", "imputation", "certain", "certain_right", "seconds")
            show(f"{name}, {rung}", here, *figures)
            print(f"    without a flag: calibration error {error:.3f}, by chance {chance:.3f}")


if __name__ == "__main__":
    main()

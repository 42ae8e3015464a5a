"""What do Newton steps give away, and after how many messages?

    python -m benchmarks.newton [--sites "site 3" ...]

RAND (comes with the package), logistic regression of "spends more than the median" by Newton's
method from coefficients of zero, six sites, gradient and Hessian in float64, an adversary who
knows everything of a site's people but one attribute. Writes benchmarks/newton.json, a row a site
and attribute: for several numbers of messages heard the share guessed right, the rank of the
equations beside the unknowns, which decoder answered, how many records are called certain (99%)
and how many of those are right; the majority, a stranger's imputation, the best that anybody could
do (people who agree in everything public can only be counted), the first number of messages that
reaches it, and how well the last message tells the site's own model. One setting of the attack, the
misfit that it flags, was raised after a first run at all sites, in which three right answers of 18
were flagged. Rows that are there already are kept.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frame import Results, Row, federation, options, show
from overheard.attacks.attribute import MaxEntropy
from overheard.evaluation.baselines import Imputer, majority_share
from overheard.programs.program import Message
from overheard.programs.records import Records
from overheard.transcript.kind import program_in
from overheard.transcript.knowledge import Releases
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

ATTRIBUTES = ("female", "black", "physlm")
HEARD = (1, 2, 3, 4, 5, 7)
"""Numbers of messages; a tenth of the 19 coefficients and 6 more are 7."""
CONFIG: dict[str, Any] = {
    "data": {"source": "randhie", "options": {"above_median": True}},
    "model": {"name": "newton", "likelihood": "logistic"},
    "audit": {"attributes": list(ATTRIBUTES)},
}


def best_possible(secret: NDArray[Any], groups: NDArray[np.intp]) -> float:
    """The share that the best guess gets who knows how many of each group have which value."""
    values = np.unique(secret, return_inverse=True)[1]
    counts = np.zeros((groups.max() + 1, values.max() + 1))
    np.add.at(counts, (groups, values), 1)
    return float(counts.max(axis=1).sum() / len(secret))


def own_model(recording: Recording, site: str) -> dict[str, float]:
    """The site's own model as its last message tells it, beside the one that it would make alone:
    how much more it loses on the site's people, relative to that, and the share of the other sites'
    people of whom both say the same. The global model's loss is what needs no listening."""
    program, truth = program_in(recording), recording.truth()
    assert program is not None
    view = observe(recording, EAVESDROPPER, attribute(ATTRIBUTES[0]), site)
    heard = view.know(Releases).exchanges
    alone = program.alone(truth[site], len(heard), np.random.default_rng(0))

    def margin(model: Message, records: Records) -> NDArray[np.float64]:
        found = program.predict(model, records)
        assert found is not None
        return found[:, 0]

    def loss(model: Message) -> float:
        eta, y = margin(model, truth[site]), program.target.encode(truth[site])
        return float(np.mean(np.logaddexp(0, eta) - y * eta))

    own, best = program.own(heard), loss(alone)
    same = [
        (margin(own, held) > 0) == (margin(alone, held) > 0)
        for other, held in truth.items()
        if other != site
    ]
    return {
        "own_excess": loss(own) / best - 1,
        "global_excess": loss(heard[-1].sent) / best - 1,
        "agreement": float(np.concatenate(same).mean()),
    }


def row(recording: Recording, site: str, column: str) -> Row:
    """One site and attribute, decoded after every message."""
    program, truth = program_in(recording), recording.truth()
    assert program is not None
    mine, values = truth[site], (0.0, 1.0)
    stranger = Imputer(0).values(program, truth, site, column, values)
    view = observe(recording, EAVESDROPPER, attribute(column), site)
    heard = view.know(Releases)
    curve = []
    for messages in HEARD:
        began = time.process_time()
        guess = launch(MaxEntropy(), view.knowing(heard.first(messages)), 0)
        spent = time.process_time() - began
        right, sure = guess.choice() == mine[column], guess.probabilities.max(axis=1) > 0.99
        told = guess.diagnostics
        curve.append(
            {
                "messages": messages,
                "accuracy": float(right.mean()),
                "expected": float(guess.probabilities.max(axis=1).mean()),
                "rank": told["rank"],
                "unknowns": told["unknowns"],
                "method": told["method"],
                "flag": told.get("flag", ""),
                "certain": int(sure.sum()),
                "certain_right": int((right & sure).sum()),
                "seconds": spent,
            }
        )
    seen = Records({c: v for c, v in mine.columns.items() if c != column})
    best = best_possible(mine[column], program.alike(seen))
    reached = [one["messages"] for one in curve if one["accuracy"] >= best - 1e-12]
    return {
        "records": len(mine),
        "coefficients": int(program.encoding.width) + 1,
        "majority": majority_share(mine[column], values),
        "stranger": None if stranger is None else float(stranger.hits.mean()),
        "best_possible": best,
        "reached_after": min(reached, default=None),
        **own_model(recording, site),
        "curve": curve,
    }


def main() -> None:
    """Run what is missing, and print the share guessed right and the rank by messages."""
    given = options(__doc__, __file__, sites=[f"site {k}" for k in range(1, 7)])
    kept = Results(given.out, given.command)
    with tempfile.TemporaryDirectory() as folder:
        config = {**CONFIG, "training": {"rounds": max(HEARD)}}
        recording = federation(config, None, Path(folder) / "run")
        for site, column in product(given.sites, ATTRIBUTES):
            key = f"{site}; {column}"
            found = kept.row(key, partial(row, recording, site, column))
            show(key, [found], "majority", "stranger", "best_possible")
            for one in found["curve"]:
                show(f"    {one['messages']} messages", [one], "accuracy", "rank")


if __name__ == "__main__":
    main()

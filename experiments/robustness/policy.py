"""Does a policy release what leaks, and refer what does not?

Small federations are simulated with a secret column that is a coin flip, of which no other column
says anything: as they are, where the updates give it away; with a little noise, where they may; and
drowned in noise, where they give nothing away. Each is audited as an eavesdropper would and held
against the usual policy. Nothing that the audit calls exposed may be released; of the drowned ones
at most one in ten may be referred to somebody, or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import overheard
from experiments.recordings import coin_flips, recorded
from experiments.robustness.promises import total, tried
from experiments.runner import Cell, Experiment, Result, cell
from overheard.evaluation.decision import EXPOSED
from overheard.evaluation.policy import USUAL

EACH = 6
"""Federations of a cell, of which there are 36: 216 in all."""
NOISE = {"plain": 0.0, "noisy": 0.005, "drowned": 1000.0}


def answered(each: Cell) -> dict[str, Any]:
    """The answers about some federations of one kind."""
    answers, exposed, released = [], 0, 0
    model: dict[str, Any] = {"name": each["model"]}
    model |= {"hidden": [16]} if each["model"] == "mlp" else {}
    # of a network one round: its later updates, from a drowned model, outgrow the noise
    rounds = 1 if each["model"] == "mlp" else 3
    for k in range(each["federations"]):
        seed = 1000 * each.seed + k
        drawn = coin_flips(each["clients"], 40, model, rounds, NOISE[each["world"]], seed)
        with recorded(*drawn) as run:
            attacks = overheard.threat_named("eavesdropper")
            audit = overheard.audit(run, attacks, targets=["s"])
        answers.append(USUAL.decide([audit]).answer)
        exposed += audit.level == EXPOSED
        released += audit.level == EXPOSED and answers[-1] == "release"
    held = sum(answer != "release" for answer in answers) if each["world"] == "drowned" else 0
    counts = {a: answers.count(a) for a in ("release", "refer", "refuse")}
    said = ", ".join(f"{n} {a}" for a, n in counts.items() if n)
    return tried(len(answers), released, said) | counts | {"exposed": exposed, "held": held}


def _cells() -> list[Cell]:
    kinds = product(range(4), (4, 8, 20), NOISE)
    models = ("linear", "logistic", "mlp")
    return [
        cell(cost=30, quick=seed == 0 and clients == 4, seed=seed, clients=clients, world=world,
             model=models[(seed + k) % 3], federations=EACH)
        for k, (seed, clients, world) in enumerate(kinds)
    ]  # fmt: skip


def _came(found: Sequence[Result]) -> str:
    drowned = [r for r in found if r.setting["world"] == "drowned"]
    of, held = total(drowned, "trials"), total(drowned, "held")
    return (
        f"{total(found, 'exposed')} exposed, {total(found, 'faults')} of them released; where "
        f"nothing leaks {held} of {of} ({held / max(of, 1):.1%}) were referred or refused"
    )


EXPERIMENTS = (
    Experiment(
        "robustness-policy",
        "what a policy answers",
        answered,
        _cells,
        must="**A policy never releases what the audit calls exposed**, and holds back at most 10% "
        "of the federations in which nothing leaks",
        came=_came,
    ),
)

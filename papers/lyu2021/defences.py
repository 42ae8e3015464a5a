"""Defences in lyu2021's setting: noise on the update, and clipping to a norm that hides its scale.

The paper studies no defence. One float32 round of its network (MLP 128, full batch) on 1,000 users
of Location, a balanced attribute; Gaussian noise of several strengths in units of the update's own
norm, and clipping to a part of that norm. The adversary is told the noise and the norm, as every
participant is, or not told anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from overheard.attacks.attribute import MaxEntropy
from overheard.data.dealing import VICTIM
from overheard.evaluation import metrics
from overheard.evaluation.baselines import majority_share
from overheard.transcript.knowledge import AppliedDefence, AttributeDomain, Link
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe
from papers.common import pictures
from papers.common.harness import federation, mean_row, recorded
from papers.common.rows import Experiment, Progress, Reproduction, Row

COLUMN, RECORDS = "c069", 1000
STRENGTHS = (0.03, 0.12, 0.2, 0.36, 0.6, 1.2, 2.4)
SCALES = (1.0, 0.3, 0.1, 0.03, 0.01)
TOLD, UNTOLD = "max_entropy, told", "max_entropy, not told"
Found = dict[str, float]
"""What one attack got on one recording, by measure."""

NOISE, CLIP, BOTH = "Gaussian noise", "clipping", "clipping and noise of 0.2"


def sweep(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Accuracy, calibration and the scale found, for every strength."""
    seeds = 1 if quick else seeds
    cells = list(_cells(quick))
    found: dict[tuple[str, float, str], list[Found]] = {}
    for seed in range(seeds):
        norm, size = _bare(seed)
        for done, (panel, strength, told) in enumerate(cells):
            progress(f"{panel} {strength:g}", seed * len(cells) + done, seeds * len(cells))
            defences = _defences(panel, strength, norm, size)
            method = TOLD if told else UNTOLD
            outcome = _attack(seed, defences, told)
            found.setdefault((panel, strength, method), []).append(outcome)
    rows = [row for key, outcomes in found.items() for row in _rows(*key, outcomes)]
    notes = (
        "Strength of noise: its norm over that of the update without it. Clipping: the norm kept, "
        "over that of the update; 1 clips nothing.",
        "Calibration error: expected calibration error over ten bins of confidence.",
    )
    data = "location30 (Foursquare check-ins in Bangkok)"
    return Reproduction(rows, data, notes, seeds)


def _cells(quick: bool) -> Iterator[tuple[str, float, bool]]:
    for told in (True, False):
        for strength in STRENGTHS if told or not quick else (0.36,):
            yield NOISE, strength, told
        for scale in SCALES if not quick else (0.3, 0.01):
            yield CLIP, scale, told
        if not quick:
            for scale in SCALES:
                yield BOTH, scale, told


def _defences(panel: str, strength: float, norm: float, size: int) -> list[dict[str, Any]]:
    if panel == NOISE:
        return [{"name": "gaussian", "sd": strength * norm / np.sqrt(size)}]
    # a little above the norm where nothing is to be clipped: it was heard in float32
    clip = {"name": "clip", "norm": norm * (strength if strength < 1 else 1.01)}
    if panel == CLIP:
        return [clip]
    return [clip, {"name": "gaussian", "sd": 0.2 * strength * norm / np.sqrt(size)}]


def _config(seed: int, defences: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    options = {"seed": seed, "victim": RECORDS, "attributes": (COLUMN,)}
    model = {"name": "mlp", "hidden": [128]}
    training = {"rounds": 1, "learning_rate": 0.1}
    config = federation(seed, "location30", model, training, options)
    return config | {"defence": [dict(d) for d in defences]}


def _bare(seed: int) -> tuple[float, int]:
    """Norm and length of the update without a defence."""
    with recorded(_config(seed, ())) as recording:
        link = observe(recording, EAVESDROPPER, attribute(COLUMN), VICTIM).know(Link)
        return float(np.linalg.norm(link.updates()[0])), link.sent.shape[1]


def _attack(seed: int, defences: Sequence[Mapping[str, Any]], told: bool) -> Found:
    with recorded(_config(seed, defences)) as recording:
        threat = EAVESDROPPER if told else EAVESDROPPER.without(AppliedDefence)
        view = observe(recording, threat, attribute(COLUMN), VICTIM)
        secret = recording.truth()[VICTIM][COLUMN]
    begin = perf_counter()
    guess = launch(MaxEntropy(), view, seed)
    seconds = perf_counter() - begin
    return {
        "accuracy": float(metrics.attribute_hits(guess, secret).mean()),
        "calibration error": metrics.calibration_error(guess, secret),
        "scale": float(guess.diagnostics.get("scale", 1.0)),
        "majority": majority_share(secret, view.know(AttributeDomain).values),
        "seconds": seconds,
    }


def _rows(panel: str, strength: float, method: str, found: Sequence[Found]) -> Iterator[Row]:
    def row(measure: str, values: list[float], **more: float) -> Row:
        setting = f"{panel}: {measure}"
        return mean_row(setting, f"{strength:g}", method, measure, values, **more)

    more = {name: float(np.mean([o[name] for o in found])) for name in ("majority", "seconds")}
    yield row("accuracy", [o["accuracy"] for o in found], **more)
    yield row("calibration error", [o["calibration error"] for o in found])
    if panel != NOISE:
        yield row("error of the scale", [abs(o["scale"] / strength - 1) for o in found])


EXPERIMENTS = (
    Experiment(
        "lyu2021-noise",
        "noise on the update, and clipping, on Location",
        sweep,
        pictures.curves("strength", log=True),
        3,
    ),
)

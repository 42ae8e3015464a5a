"""How much does an adversary learn who knows only a share of the client's records?

The recording stays as it is; the adversary's view is thinned. Records that are not known are still
in the client's updates, and the attack has to decode the others against them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from overheard.attacks.attribute.partial_decode import PartialDecode
from overheard.errors import FixConfig
from overheard.evaluation.baselines import majority_share
from overheard.evaluation.intervals import share_interval
from overheard.evaluation.metrics import attribute_hits
from overheard.randomness import stream
from overheard.transcript.knowledge import AttributeDomain, Labels, PublicRecords
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, launch


@dataclass(frozen=True)
class Covered:
    """Accuracy on the known records of one client, at one coverage, with a 95% interval."""

    coverage: float
    known: int
    accuracy: float
    low: float
    high: float
    majority: float


def accuracy_by_coverage(
    recording: Recording,
    threat: Threat,
    column: str,
    client: str,
    coverages: Iterable[float] = (1.0, 0.9, 0.75, 0.5),
    attack: Attack | None = None,
    seed: int = 0,
) -> tuple[Covered, ...]:
    """Run the attack (by default ``partial_decode``) with random shares of the records known.

    Smaller shares are parts of larger ones, so that the curve is about coverage and not about luck.
    """
    view = observe(recording, threat, attribute(column), client)
    records, labels = view.know(PublicRecords).records, view.know(Labels).values
    truth = recording.truth()[client].take(np.arange(len(labels)))[column]
    values = view.know(AttributeDomain).values
    order = stream(seed, "coverage", client, column).permutation(len(labels))
    found = []
    for coverage in coverages:
        if not 0 < coverage <= 1:
            raise FixConfig(f"coverage {coverage!r}; give shares above 0 and at most 1")
        known = np.sort(order[: max(2, round(coverage * len(labels)))])
        thinned = view.knowing(PublicRecords(records.take(known)), Labels(labels[known]))
        hits = attribute_hits(launch(attack or PartialDecode(), thinned, seed), truth[known])
        low, high = share_interval(hits)
        majority = majority_share(truth[known], values)
        found.append(Covered(coverage, len(known), float(hits.mean()), low, high, majority))
    return tuple(found)

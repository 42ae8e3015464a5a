"""How much does an adversary learn who knows only a share of the client's records?

The recording stays as it is; the adversary's view is thinned. Records that are not known are still
in the client's updates, and the attack has to decode the others against them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from overheard.attacks.attribute.partial_decode import PartialDecode
from overheard.errors import FixConfig
from overheard.evaluation.attempt import NOT_RUN, attempt, check_budget
from overheard.evaluation.baselines import majority_share
from overheard.evaluation.intervals import share_interval
from overheard.evaluation.kept import NOTHING_KEPT, Kept
from overheard.evaluation.metrics import attribute_hits
from overheard.evaluation.record import Audit, Failed, Finding, KnownShare, Skipped
from overheard.questions.question import by_question
from overheard.randomness import stream
from overheard.transcript.knowledge import AttributeDomain, Labels, PublicRecords
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, launch

Progress = Callable[[str, int, int], None]
COVERAGES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
QUICK_RECORDS = 400
"""Up to so many records of a client it takes seconds, and is asked without being told to."""


def accuracy_by_coverage(
    recording: Recording,
    threat: Threat,
    column: str,
    client: str,
    coverages: Iterable[float] = COVERAGES,
    attack: Attack | None = None,
    seed: int = 0,
) -> tuple[KnownShare, ...]:
    """Run the attack (by default ``partial_decode``) with random shares of the records known.

    Smaller shares are parts of larger ones, so that the curve is about coverage and not about luck.
    """
    view = observe(recording, threat, attribute(column), client)
    records, labels = view.know(PublicRecords).records, view.know(Labels).values
    truth = recording.truth()[client].take(np.arange(len(labels)))[column]
    values = view.know(AttributeDomain).values
    order = stream(seed, "coverage", client, column).permutation(len(labels))
    attacker = attack or PartialDecode()
    found = []
    for coverage in coverages:
        if not 0 < coverage <= 1:
            raise FixConfig(f"coverage {coverage!r}; give shares above 0 and at most 1")
        known = np.sort(order[: max(2, round(coverage * len(labels)))])
        thinned = view.knowing(PublicRecords(records.take(known)), Labels(labels[known]))
        hits = attribute_hits(launch(attacker, thinned, seed), truth[known])
        low, high = share_interval(hits)
        majority = majority_share(truth[known], values)
        found.append(
            KnownShare(
                attack=attacker.name,
                client=client,
                attribute=column,
                coverage=coverage,
                known=len(known),
                value=float(hits.mean()),
                low=low,
                high=high,
                majority=majority,
            )
        )
    return tuple(found)


def by_coverage(
    recording: Recording,
    threat: Threat,
    audit: Audit,
    progress: Progress = lambda what, done, total: None,
    most: int = QUICK_RECORDS,
    kept: Kept = NOTHING_KEPT,
    budget: float | None = None,
) -> tuple[KnownShare | Failed | Skipped, ...]:
    """For every attribute of an audit, on the client of at most so many records where most was
    learned: accuracy with 10% to all of its records known. Attributes for which partial knowledge
    cannot be decoded are left out."""
    best: dict[str, Finding] = {}
    attacks = audit.listening
    for found in by_question(audit.findings).get(PartialDecode.question, []):
        if found.attribute is not None and found.n <= most and found.attack in attacks:
            known = best.get(found.attribute)
            if known is None or (found.lift or 0.0) > (known.lift or 0.0):
                best[found.attribute] = found
    check_budget(budget)
    lines: list[KnownShare | Failed | Skipped] = []
    for done, (column, found) in enumerate(best.items()):
        progress(f"{column}, by share of records known: {PartialDecode.name}", done, len(best))
        line = partial(_line, recording, threat, column, found.client, audit.run.seed, budget)
        lines += kept.parts(KnownShare, line, column, found.client)
    progress("coverage", len(best), len(best))
    return tuple(lines)


def _line(
    recording: Recording,
    threat: Threat,
    column: str,
    client: str,
    seed: int,
    budget: float | None,
) -> list[KnownShare | Failed | Skipped]:
    """One attribute of one client, with ever more of its records known."""
    line: list[KnownShare | Failed | Skipped] = []
    for coverage in COVERAGES:

        def point(coverage: float = coverage) -> KnownShare:
            (found,) = accuracy_by_coverage(
                recording, threat, column, client, (coverage,), seed=seed
            )
            return found

        doing = f"with {coverage:.0%} of the records known"
        try:
            line.append(attempt(point, PartialDecode.name, client, column, doing, budget))
        except NOT_RUN:
            return []
    return line

"""Which candidate is each record, if the order of a client's batches is random?

Simulated clients, whose secrets are known, say how large the noise is, how far an answer may be
believed (one temperature), which pass to keep and what accuracy to expect; and whether the message
looks like theirs at all. If not, recipe or records are not as declared, and the answer is flagged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.attacks.rehearsal import tempered
from overheard.attacks.wire import rounding
from overheard.decoding.ladder import POOR_FIT, UNSOLVED
from overheard.decoding.measurement import Measurement, from_gram
from overheard.decoding.noisy import noisy_posterior
from overheard.programs.recipe import Recipe
from overheard.programs.response import Whitened, linearise, whiten
from overheard.programs.simulated import Candidates
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Choice = NDArray[np.int64]

CLIENTS, FITTED = 32, 16
"""Simulated clients of a round, and those of them that give the noise its shape; the others judge
the answers."""
JUDGED = 2000
"""Records of simulated clients whose decoding is judged, at least."""
PASSES = 3
"""Linearisations, each at what the last one found."""
WEAK = 0.1
"""Directions below this many noise units are dropped."""
OVERSURE = "oversure: surer than simulated clients of this recipe are decoded right"

_OPEN = 0.3  # share of an even guess in the belief at which a later pass is linearised
_STRANGE, _SPREADS = 1.3, 5.0  # what no answer explains, relative to simulated clients' mean, up to
# which a fit is good: that much, or so many of their own standard deviations
_LOUDER = 0.1  # confidence beyond the simulated clients' accuracy that is flagged


@dataclass(frozen=True)
class Answer:
    """Probabilities (n, K); ``method`` and ``notes`` for the diagnosis; ``flag`` as ever."""

    probabilities: Array
    method: str
    flag: str
    notes: dict[str, float | int | str]


def by_simulation(
    link: Link, recipe: Recipe, candidates: Candidates, prior: Array, rng: np.random.Generator
) -> Answer:
    """Probabilities of each record's candidates from every round of the link; prior (n, K)."""
    noise = rounding(link)
    belief, best = prior, None
    for number in range(PASSES):
        at = belief if not number else (1 - _OPEN) * belief + _OPEN / belief.shape[1]
        chosen = candidates.drawn(at, CLIENTS, rng)
        total: Whitened | None = None
        for sent, returned, sd in zip(link.sent, link.returned, noise, strict=True):
            one = linearise(recipe, (sent, returned, sd), candidates, at, chosen, rng)
            white = whiten(one, FITTED)
            total = white if total is None else total + white
        assert total is not None
        found = _judged(total, chosen, prior)
        if best is None or found.score > best.score:
            best = replace(found, passes=number + 1)
        belief = found.probabilities
    assert best is not None
    confidence = float(best.probabilities.max(axis=1).mean())
    flag = ""
    if best.misfit > best.allowed:
        # of full batches simulated clients know no noise, and what is not proven is not known
        flag = UNSOLVED if recipe.full_batch else POOR_FIT
    elif confidence > best.accuracy + _LOUDER:
        flag = OVERSURE
    return Answer(
        best.probabilities,
        "direct_response",
        flag,
        {
            "fit": "good" if best.misfit <= best.allowed else "poor",
            "misfit": best.misfit,
            "misfit_allowed": best.allowed,
            "rank": best.rank,
            "unknowns": prior.size - len(prior),
            "simulated_accuracy": best.accuracy,
            "simulated_confidence": best.confidence,
            "temperature": best.temperature,
            "noise_found": best.noise,
            "passes": best.passes,
            "rounds_used": len(link),
        },
    )


@dataclass(frozen=True)
class _Judged:
    """One pass. score: mean log-likelihood of the simulated clients' secrets; misfit: what no
    answer explains of the message, in units of what none explains of theirs."""

    probabilities: Array
    score: float
    accuracy: float
    confidence: float
    temperature: float
    misfit: float
    allowed: float
    noise: float
    rank: int
    passes: int = 1


def _judged(total: Whitened, chosen: Choice, prior: Array) -> _Judged:
    """Decode the message, and held-out simulated clients to see what such answers are worth."""
    n, values = prior.shape
    measured = from_gram(total.gram, total.heard, 1.0, candidates=values, floor=WEAK)
    judges = range(FITTED, min(len(chosen), FITTED + max(2, -(-JUDGED // n))))
    basis = measured.differences
    totals = linalg.lstsq(basis, total.simulated[FITTED : judges.stop].T, check_finite=False)[0].T
    each = np.eye(values)
    left = [
        t - np.tensordot(each[chosen[j]], measured.features, 2)
        for j, t in zip(judges, totals, strict=True)
    ]
    noise = float(np.mean([x @ x for x in left])) / max(measured.rank, 1) * (1 + 1 / FITTED)
    noise = max(noise, 1e-6)
    heard = measured.inflated(float(np.sqrt(noise)))
    theirs = []
    for t in totals:
        own = replace(heard, total=t / np.sqrt(noise))
        theirs.append(noisy_posterior(own, prior)[0].probabilities)
    secrets = [chosen[j] for j in judges]
    temperature = _temperature(theirs, secrets, prior)
    calm = [tempered(p, prior, temperature) for p in theirs]
    rows = np.arange(n)
    log = [np.log(np.maximum(p[rows, s], 1e-12)).mean() for p, s in zip(calm, secrets, strict=True)]
    right = [float((p.argmax(axis=1) == s).mean()) for p, s in zip(calm, secrets, strict=True)]
    found = noisy_posterior(heard, prior)[0].probabilities
    return _Judged(
        tempered(found, prior, temperature),
        float(np.mean(log)),
        float(np.mean(right)),
        float(np.mean([p.max(axis=1).mean() for p in calm])),
        temperature,
        *_misfit(total, measured, totals, judges),
        noise,
        measured.rank,
    )


def _misfit(
    total: Whitened, measured: Measurement, totals: Array, judges: range
) -> tuple[float, float]:
    """What lies outside of all columns' span, relative to held-out simulated clients, and up to
    what that is as it should be."""
    ours = total.energy - float(measured.total @ measured.total)
    theirs = total.energies[judges.start : judges.stop] - np.einsum("br,br->b", totals, totals)
    mean = max(float(np.mean(theirs)), 1e-300)
    spread = float(np.std(theirs, ddof=1)) / mean
    return max(ours, 0.0) / mean, max(_STRANGE, 1 + _SPREADS * spread)


def _temperature(answers: list[Array], secrets: list[Choice], prior: Array) -> float:
    """The power of the evidence under which the simulated clients' secrets are likeliest."""
    grid = np.linspace(0.1, 1.5, 29)
    rows = np.arange(len(prior))
    score = [
        sum(
            float(np.log(np.maximum(tempered(p, prior, power)[rows, s], 1e-12)).sum())
            for p, s in zip(answers, secrets, strict=True)
        )
        for power in grid
    ]
    return float(grid[int(np.argmax(score))])

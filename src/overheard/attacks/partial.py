"""When only a part is known: decode what is known against everything that it leaves open.

Some of the client's records may not be known at all; of the others some columns, or the label, may
be missing. What is not known of a record is taken from donors: auxiliary records that are like it
in what is known and have the value of the secret that is asked about (`imagined`: hot-deck
imputation by nearest neighbours). A client's message is then a sum over one long list of imagined
records (`people`); what is open adds noise, whose mean and covariance are those of auxiliary
records; without any, those of the known ones (`overheard.decoding.noise`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.client import heard, rate_of, refuse_several_steps, rounding
from overheard.attacks.pipeline import answer, refuse_many, refuse_unseen
from overheard.attacks.prior import imputed_prior, public_inputs, told
from overheard.decoding.calibration import calibrate
from overheard.decoding.chains import choose, sampled
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import BLOCK, from_rows
from overheard.decoding.noise import Block, Sums, whitened
from overheard.decoding.posterior import POOR_FIT
from overheard.decoding.ties import decode_tied, group_means, same_rows
from overheard.errors import ChooseAnotherAttack, FixData, GrantKnowledge
from overheard.programs.gradient_rows import Outer
from overheard.programs.networks import client_rows
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode, encode_each
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]


UNLIKE = 4.0
"""Noise beyond that of the simulated clients, in variance, that says that something is wrong."""
ROUNDS = 3
"""That are used, spread evenly: two more change less than a point."""
LEARNED = 12
"""Completions of a record with a value that its mean is made of, so that the mean's own error is a
quarter of their spread."""
REALISED = LEARNED
"""How often what the records may be is realised: four times to learn from, four to judge by, four
for simulated clients."""
PARTS = (LEARNED + REALISED // 3, REALISED // 3, REALISED // 3)
"""Draws from three thirds of the auxiliary records."""
CLIENTS = REALISED // 3
"""Simulated clients: of a hundred records each they tell the temperature to a tenth."""
STRANGERS = 1000
"""Auxiliary records, in each of three parts, that stand for those that are not known."""


@dataclass(frozen=True)
class PartialDecode:
    """Decodes a client of whom only a part is known: some of its records, some of their columns,
    with or without labels. What is open adds noise of known mean and covariance, judged by samples
    that its directions were not made from; chains sample what each record may be, and simulated
    clients say how far to believe them.

    Solves: (θ − θ′) m / rate = Σᵢ gᵢ(sᵢ) + a Gaussian sum of the unknown records
    """

    name: ClassVar[str] = "partial_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset(
        {Labels, AttributePrior, AuxiliaryData, AppliedDefence}
    )

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        refuse_unseen(view)
        records = view.know(PublicRecords).records
        known, recipe = len(records), view.know(LocalTraining).recipe
        link = heard(view, known)
        unknown = _unknown(link, recipe, known)
        seen = {*records.columns, *view.know(AttributeDomain).columns}
        if not unknown and Labels in view.kinds and set(recipe.encoding.columns()) <= seen:
            return MaxEntropy()(view, rng)  # nothing is open, and there is nothing to add
        may_be = imagined(view, rng)
        refuse_many(may_be.prior.size - known, "give fewer records, or all: max_entropy")
        everybody = people(may_be, unknown, rng)
        # large networks have equations enough in one
        most = ROUNDS if link.sent.shape[1] < 1e4 / ROUNDS else 1
        link = link.only(np.unique(np.linspace(0, len(link.sent) - 1, most).astype(int)))
        blocks = _blocks(link, recipe, everybody, known + unknown)
        made, messages = whitened(blocks, everybody.sums)
        features = np.zeros((known, everybody.prior.shape[1], made.shape[1]))
        features[:, 1:] = made.reshape(known, -1, made.shape[1])
        notes: dict[str, float | int | str] = {
            "known": known,
            "unknown": unknown,
            "coverage": known / (known + unknown),
        }
        ties = may_be.ties
        if not everybody.sums.heldout.shape[0]:
            equations = from_rows(features, messages[0], 1.0)
            return answer(view, decode_tied(equations, ties, may_be.prior), ties, notes)
        posterior, judged = _judged(features, messages.astype(np.float64), everybody, ties, rng)
        return answer(view, posterior, ties, notes | judged)


def _unknown(link: Link, recipe: Recipe, known: int) -> int:
    """How many records the client trained on that are not known."""
    refuse_several_steps(link, recipe)
    reported = np.unique(link.weights[np.isfinite(link.weights)])
    if len(reported) != 1:
        raise ChooseAnotherAttack(
            "the client reported no number of records, or several; how many are unknown must be "
            "known"
        )
    if reported[0] < known:
        raise FixData(
            f"{known} records are known but the client reported {reported[0]:g}; drop the records "
            "that it did not train on"
        )
    if known < 2:
        raise FixData("one known record says nothing about the others; give at least two")
    return int(reported[0]) - known


def _judged(
    features: Array,
    messages: Array,
    everybody: People,
    ties: NDArray[np.intp],
    rng: np.random.Generator,
) -> tuple[Posterior, dict[str, float | int | str]]:
    """The answer, believed as far as the answers about simulated clients deserve it."""
    simulated, secrets = len(messages) - 1, everybody.secrets
    chains = np.repeat(np.arange(simulated + 1), [4] + [2] * simulated)
    found, left = sampled(features, everybody.prior, messages[chains], rng)
    prior = group_means(everybody.prior, ties)
    mine, *answers = (
        group_means(found[chains == n].mean(axis=0), ties) for n in range(simulated + 1)
    )
    worth = calibrate(answers, list(secrets), prior)
    unexplained = float(left[chains == 0].mean() / left[chains > 0].max())
    p, rank, unknowns = worth.applied(mine), features.shape[2], prior.size - len(prior)
    flag = POOR_FIT if unexplained > UNLIKE else ""
    posterior = Posterior(p, float(left[0]), rank, unknowns, 0, True, "chains", flag)
    return posterior, {**worth.notes, "unexplained": unexplained}


def _blocks(link: Link, recipe: Recipe, everybody: People, records: int) -> Iterator[Block]:
    """Gradients and message, whitened by a part of the deviations' covariance that has every
    direction, and rounding.

    In the eigenvectors of ``E[delta delta']`` and ``E[a a']`` the product form is diagonal.
    """
    scale = records / rate_of(link, recipe)
    rounded = float(np.mean((rounding(link)[0] * scale) ** 2))
    models = link.sent.astype(np.float64)
    rows = [client_rows(recipe, one, everybody.inputs, everybody.labels) for one in models]
    targets = [list(r.blocks(u * scale)) for r, u in zip(rows, link.updates(), strict=True)]
    chances = everybody.chances
    for number, layer in enumerate(rows[0].layers):
        same: list[Any] = [r.layers[number] for r in rows]
        heard_of = [np.asarray(t[number], np.float64) for t in targets]
        if not isinstance(layer, Outer):
            written = [of.explicit().astype(np.float64) for of in same]
            variance = _shrunk(chances @ written[0] ** 2, len(written[0]))
            spread = records * variance + rounded
            yield from _rounds(written, heard_of, spread, rounded, records * chances)
            continue
        a = [_fed(of) for of in same]
        delta = [of.errors.astype(np.float64) for of in same]
        of_a, turn_a = _moments(a[0], chances)
        of_delta, turn_delta = _moments(delta[0], chances)
        a, delta = [one @ turn_a for one in a], [one @ turn_delta for one in delta]
        turned = [turn_delta.T @ target @ turn_a for target in heard_of]
        spread = records * np.outer(of_delta, of_a) + rounded
        units = max(1, BLOCK // a[0].size)
        for start in range(0, len(of_delta), units):
            part = slice(start, start + units)
            made = [
                (d[:, part, None] * f[:, None, :]).reshape(len(f), -1)
                for d, f in zip(delta, a, strict=True)
            ]
            parts = [target[part].ravel() for target in turned]
            yield from _rounds(made, parts, spread[part].ravel(), rounded, records * chances)


def _fed(layer: Outer) -> Array:
    """A layer's inputs, and a one for the bias."""
    ones = np.ones((len(layer.inputs), int(layer.bias)))
    return np.column_stack([layer.inputs.astype(np.float64), ones])


def _rounds(
    rows: list[Array], targets: list[Array], spread: Array, rounded: float, chances: Array
) -> Iterator[Block]:
    """The first round, and what others say beyond it: models that differ little make gradients
    that differ little, and what differs is as good a measurement as any once it stands alone."""
    yield rows[0] / np.sqrt(spread), targets[0] / np.sqrt(spread), rounded / spread
    for row, target in zip(rows[1:], targets[1:], strict=True):
        apart = row - rows[0]
        spread = chances @ apart**2 + 2 * rounded
        yield apart / np.sqrt(spread), (target - targets[0]) / np.sqrt(spread), 2 * rounded / spread


def _moments(v: Array, chances: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of the second moments of v (N, d)."""
    found, vectors = np.linalg.eigh((v * chances[:, None]).T @ v)
    return _shrunk(np.maximum(found, 0.0), len(v)), vectors


def _shrunk(variances: Array, records: int) -> Array:
    """What no record shows may still vary in others: as if one more were average."""
    return np.asarray((records * variances + variances.mean()) / (records + 1))


@dataclass(frozen=True)
class Imagined:
    """What the client's known records may be, and who its unknown ones may be.

    prior: (m, K), each record's values before listening. inputs: (K, T, m, d) and labels: (K, T, m)
    of each value: exactly so (T = 1), or any of T = `LEARNED` draws. realised: inputs (D, m, d),
    labels (D, m) and values (D, m) of the records, drawn D = `REALISED` times. ties: (m,), numbers
    of records that are alike in everything that is known of them. strangers: inputs (n, d) and
    labels (n,) of auxiliary records, none if not known.
    """

    prior: Array
    inputs: Array
    labels: Array
    realised: tuple[Array, Array, NDArray[np.intp]]
    ties: NDArray[np.intp]
    strangers: tuple[Array, Array] | None

    @property
    def exact(self) -> bool:
        """Whether all but the secret is known of each record."""
        return bool(self.inputs.shape[1] == 1)


def imagined(view: View, rng: np.random.Generator) -> Imagined:
    """What the client's records may be, given what the view knows of them."""
    recipe, records = told(view), view.know(PublicRecords).records
    domain, prior = view.know(AttributeDomain), imputed_prior(view)
    labels = view.know(Labels).values if Labels in view.kinds else None
    lacking = [n for n in recipe.encoding.columns() if n not in (*records.columns, *domain.columns)]
    states = np.stack([choose(prior.T, rng) for _ in range(REALISED)])
    strangers, hidden = None, dict(domain.settings[0])
    if AuxiliaryData in view.kinds:
        known = view.know(AuxiliaryData)
        hidden |= {name: known.records[name][0] for name in lacking}
        theirs = np.asarray(recipe.target.encode_values(known.labels))
        strangers = encode(recipe.encoding, known.records), theirs
    if labels is not None and not lacking:
        inputs = encode_each(recipe.encoding, records, domain.settings)[:, None]
        numbers = np.broadcast_to(recipe.target.encode_values(labels), inputs.shape[:3])
        which: Any = np.zeros((REALISED, 1), dtype=np.intp)
    elif strangers is None:
        raise GrantKnowledge(
            "of the records something is not known; what it may be is taken from auxiliary data: "
            "grant some"
        )
    else:
        inputs, numbers = _completed(view, records, labels, lacking, rng)
        which = np.arange(LEARNED, sum(PARTS))[:, None]
    at = states, which, np.arange(len(records))
    ties = same_rows(public_inputs(recipe, records, labels, hidden))
    realised = inputs[at], numbers[at], states
    return Imagined(prior, inputs[:, :LEARNED], numbers[:, :LEARNED], realised, ties, strangers)


def _completed(
    view: View, records: Records, labels: Any, lacking: Sequence[str], rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws (K, T, m, d) and (K, T, m) of what records may be of which a part is not known."""
    recipe, domain, known = told(view), view.know(AttributeDomain), view.know(AuxiliaryData)
    made, targets = [], []
    for value, setting in enumerate(domain.settings):
        donors = _donors(view, records, labels, lacking, value, rng)
        for picked in donors.T:
            theirs = known.records.take(picked)
            whole = Records({**records.columns, **{name: theirs[name] for name in lacking}})
            made.append(encode(recipe.encoding, whole, setting))
            said = known.labels[picked] if labels is None else labels
            targets.append(recipe.target.encode_values(said))
    shape = (len(domain.settings), sum(PARTS), len(records))
    return np.reshape(made, (*shape, -1)), np.reshape(targets, shape)


def _donors(
    view: View,
    records: Records,
    labels: Any,
    lacking: Sequence[str],
    value: int,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """For each record so many auxiliary records (m, T) with this value that are like it."""
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    domain, known, recipe = view.know(AttributeDomain), view.know(AuxiliaryData), told(view)
    having = rng.permutation(np.flatnonzero(domain.positions(known.records) == value))
    if len(having) < 3:
        having = rng.permutation(len(known.labels))
    hidden = {**{name: known.records[name][0] for name in lacking}, **domain.settings[0]}
    mine = public_inputs(recipe, records, labels, hidden)
    theirs = public_inputs(recipe, known.records, None if labels is None else known.labels, hidden)
    scale, chosen = StandardScaler().fit(theirs) if theirs.shape[1] else None, []
    # nobody who is learned from judges, and nobody who judges is in a simulated client
    for part, many in zip(np.array_split(having, 3), PARTS, strict=True):
        wanted = min(len(part), many)
        if scale is not None and (lacking or labels is None):
            near = NearestNeighbors(n_neighbors=wanted).fit(scale.transform(theirs[part]))
            found = near.kneighbors(scale.transform(mine), return_distance=False)
        else:
            found = rng.integers(0, len(part), (len(records), wanted))
        chosen.append(part[np.resize(rng.permuted(found, axis=1).T, (many, len(records)))])
    return np.concatenate(chosen).T


@dataclass(frozen=True)
class People:
    """Imagined records: inputs (N, d), labels (N,), how likely it is that a record of the client
    is this one (N,); sums of them; before listening, how likely each record (m, K) has each value;
    and which it has (s, m) in the clients that were simulated."""

    inputs: Array
    labels: Array
    chances: Array
    sums: Sums
    prior: Array
    secrets: NDArray[np.intp]


def people(may_be: Imagined, unknown: int, rng: np.random.Generator) -> People:
    """The list, and the sums. Without auxiliary records the unknown are like the known ones."""
    (real, real_labels, states), theirs = may_be.realised, may_be.strangers
    known, values = may_be.prior.shape
    # donors may be unlike the record: as if one in ten were a stranger
    noisy = unknown if may_be.exact else max(unknown, known // 10)
    parts = min(len(theirs[1]) // 3, STRANGERS) if noisy and theirs is not None else 0
    draws = may_be.labels.shape[1]
    groups: list[Any] = [
        (may_be.inputs, may_be.labels, may_be.prior.T[:, None] / draws),
        (real, real_labels, 0.0),
    ]
    if parts and theirs is not None:
        who = rng.permutation(len(theirs[1]))[: 3 * parts]
        groups.append((theirs[0][who], theirs[1][who], unknown / (3 * parts)))
    labels = [np.ravel(of) for _, of, _ in groups]
    chances = [np.broadcast_to(c, of.shape).ravel() / (known + unknown) for _, of, c in groups]
    ends = np.cumsum([of.size for of in labels])
    places = [
        np.arange(e - of.size, e).reshape(of.shape)
        for e, (_, of, _) in zip(ends, groups, strict=True)
    ]
    total = int(ends[-1])

    def picked(which: NDArray[np.intp]) -> Any:
        """A row of the sums for each of these."""
        at = np.arange(which.size), which.ravel()
        return sparse.csr_matrix((np.ones(which.size), at), (which.size, total))

    def listed(rows: list[Any]) -> Any:
        return sparse.vstack([sparse.csr_matrix((0, total)), *rows]).tocsr()

    # the mean of every value's completions (m rows each)
    means = [sum(picked(one) for one in place) / draws for place in places[0]]
    stacked, here, drawn = sparse.vstack(means).tocsr(), np.arange(known), places[1]
    apart = [
        (picked(one) - stacked[state * known + here]) / np.sqrt(CLIENTS)
        for one, state in zip(drawn, states, strict=True)
        if not may_be.exact
    ]
    learned, judging = apart[:CLIENTS], apart[CLIENTS : 2 * CLIENTS]
    rest, pool = sparse.csr_matrix((1, total)), drawn[:0]
    if noisy:
        thirds = np.split(places[-1], 3) if parts else (drawn[0, ::2], drawn[0, 1::2], drawn[0])
        mine, others, pool = thirds
        rest = sparse.csr_matrix(picked(mine).mean(axis=0))
        for rows, which in ((learned, mine), (judging, others)):
            repeated = sparse.csr_matrix(np.ones((which.size, 1))) @ rest
            size = np.sqrt(noisy * (1 + noisy / mine.size) / which.size)
            rows.append(size * (picked(which) - repeated))
    clients = [
        picked(np.concatenate([one, rng.choice(pool, unknown)]) if unknown else one).sum(axis=0)
        for one in drawn[-CLIENTS:]
    ]
    order = np.arange(known * (values - 1)).reshape(-1, known).T.ravel()
    sums = Sums(
        sparse.vstack([mean - means[0] for mean in means[1:]]).tocsr()[order],
        sparse.csr_matrix(means[0].sum(axis=0)) + unknown * rest,
        listed(learned),
        listed(judging),
        listed([sparse.csr_matrix(one) for one in clients]),
    )
    return People(
        np.concatenate([np.reshape(x, (-1, np.shape(x)[-1])) for x, _, _ in groups]),
        np.concatenate(labels),
        np.concatenate(chances),
        sums,
        may_be.prior,
        states[-CLIENTS:],
    )

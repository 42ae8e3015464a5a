"""When only a part is known: decode what is known against everything that it leaves open.

Some of the client's records may not be known at all; of the others some columns, or the label, may
be missing. What is not known of a record is taken from donors: auxiliary records that are like it
in what is known and have the value of the secret that is asked about (`imagined`: hot-deck
imputation by nearest neighbours). A client's message is then a sum over one long list of imagined
records (`people`); what is open adds noise, whose mean and covariance are those of auxiliary
records; without any, those of the known ones (`overheard.decoding.noise`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.baselines import imputed_prior, public_inputs
from overheard.attacks.client import link_of, rate_of, record_count, refuse_several_steps, rounding
from overheard.attacks.pipeline import answer, refuse_many, refuse_unseen
from overheard.decoding.calibration import calibrate
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import BLOCK, from_rows
from overheard.decoding.noise import Block, Sums, whitened
from overheard.decoding.posterior import NOISY, POOR_FIT, decode
from overheard.decoding.ties import group_means, same_rows
from overheard.errors import FixData, GrantKnowledge
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
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PartialOptions:
    """Settings of the decoding of what is known in part.

    rounds: that are used, spread evenly: two more change less than a point.
    completions: of a record with a value that its mean is made of, so that the mean's own error is
        a quarter of their spread.
    clients: simulated ones: of fifty records each, eight tell the temperature to a tenth. What the
        known records may be is realised three times as often: to learn from, to judge by, and for
        these clients.
    others: auxiliary records, in each of three parts, that stand for those that are not known.
    unlike: noise beyond that of simulated clients, in variance, that says that something is wrong.
    """

    rounds: int = 3
    completions: int = 12
    clients: int = 8
    others: int = 1000
    unlike: float = 4.0

    @property
    def parts(self) -> tuple[int, int, int]:
        """Draws from three thirds of the auxiliary records: nobody who is learned from judges, and
        nobody who judges is in a simulated client."""
        return self.completions + self.clients, self.clients, self.clients


DEFAULT = PartialOptions()


@dataclass(frozen=True)
class PartialDecode:
    """Decodes a client of whom only a part is known: some of its records, some of their columns,
    with or without labels. What is open adds noise of known mean and covariance, judged by samples
    that its directions were not made from; simulated clients say how far to believe the answer.

    Solves: (θ − θ′) m / rate = Σᵢ gᵢ(sᵢ) + a Gaussian sum of the unknown records

    Settings: ``options``, how often what is open is drawn, and how many clients are simulated.
    """

    name: ClassVar[str] = "partial_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram, PublicRecords, AttributeDomain})
    uses: ClassVar[Kinds] = frozenset({Labels, AttributePrior, AuxiliaryData, AppliedDefence})

    options: PartialOptions = field(default_factory=PartialOptions)

    def same_as(self, view: View) -> str:
        """The attack that answers the same here: where nothing is open there is nothing to add."""
        refuse_unseen(view)
        records, recipe = view.know(PublicRecords).records, view.know(ClientProgram).plain_recipe
        unknown = _unknown(link_of(view, len(records)), recipe, len(records))
        seen = {*records.columns, *view.know(AttributeDomain).columns}
        whole = Labels in view.kinds and set(recipe.encoding.columns()) <= seen
        return MaxEntropy.name if whole and not unknown else ""

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        known, recipe = len(view.know(PublicRecords).records), view.know(ClientProgram).plain_recipe
        if self.same_as(view):
            return MaxEntropy()(view, rng)
        link = link_of(view, known)
        unknown = _unknown(link, recipe, known)
        imagine = imagined(view, unknown, rng, self.options)
        refuse_many(imagine.prior.size - known, "give fewer records, or all: max_entropy")
        # large networks have equations enough in one
        most = self.options.rounds if link.sent.shape[1] < 1e4 / self.options.rounds else 1
        link = link.only(np.unique(np.linspace(0, len(link.sent) - 1, most).astype(int)))
        blocks = _blocks(link, recipe, imagine, known + unknown)
        made, messages = whitened(blocks, imagine.sums)
        features = np.zeros((*imagine.prior.shape, made.shape[1]))
        features[:, 1:] = made.reshape(known, -1, made.shape[1])
        posterior = _judged(features, messages, imagine, self.options)
        notes = {"known": known, "unknown": unknown, "coverage": known / (known + unknown)}
        return answer(view, posterior, imagine.ties, {**notes, **posterior.notes})


def _unknown(link: Messages, recipe: Recipe, known: int) -> int:
    """How many records the client trained on that are not known."""
    refuse_several_steps(link, recipe)
    count = record_count(link, "how many are unknown")
    if count < known:
        raise FixData(
            f"{known} records are known but the client reported {count}; drop the records "
            "that it did not train on"
        )
    if known < 2:
        raise FixData("one known record says nothing about the others; give at least two")
    return count - known


def _judged(
    features: Array, messages: Array, imagine: Imagined, options: PartialOptions
) -> Posterior:
    """The answer, believed as far as the answers about simulated clients deserve it."""
    prior, measured = (
        group_means(imagine.prior, imagine.ties),
        from_rows(features, messages[0], 1.0),
    )
    # all messages are turned into the same directions
    rows, turned = features[:, 1:].reshape(measured.unknowns, -1), measured.differences
    totals = messages @ (rows.T @ turned / np.square(turned).sum(axis=0))
    outside = np.square(messages).sum(axis=1) - np.square(totals).sum(axis=1)
    mine, *simulated = (
        decode(replace(measured, total=t, residual_ss=o), imagine.prior, options=NOISY)
        for t, o in zip(totals, outside, strict=True)
    )
    answers = [group_means(one.probabilities, imagine.ties) for one in simulated]
    worth = calibrate(answers, list(imagine.states[-options.clients :]), prior)
    worst = max(one.chi2_per_equation for one in simulated)
    unexplained = mine.chi2_per_equation / worst
    return replace(
        mine,
        probabilities=worth.applied(group_means(mine.probabilities, imagine.ties)),
        flag=POOR_FIT if unexplained > options.unlike else "",
        notes={**worth.notes, "unexplained": unexplained},
    )


def _blocks(link: Messages, recipe: Recipe, imagine: Imagined, records: int) -> Iterator[Block]:
    """Gradients and message, whitened by a part of the deviations' covariance that has every
    direction, and rounding.

    In the eigenvectors of ``E[delta delta']`` and ``E[a a']`` the product form is diagonal.
    """
    scale = records / rate_of(link, recipe)
    rounded = float(np.mean((rounding(link)[0] * scale) ** 2))
    models = link.sent.astype(np.float64)
    rows = [client_rows(recipe, one, imagine.inputs, imagine.labels) for one in models]
    targets = [list(r.blocks(u * scale)) for r, u in zip(rows, link.updates(), strict=True)]
    chances = imagine.chances
    for number, layer in enumerate(rows[0].layers):
        same: list[Any] = [r.layers[number] for r in rows]
        updates = [np.asarray(t[number], np.float64) for t in targets]
        if not isinstance(layer, Outer):
            written = [of.explicit().astype(np.float64) for of in same]
            variance = _shrunk(chances @ written[0] ** 2, len(written[0]))
            spread = records * variance + rounded
            yield from _rounds(written, updates, spread, rounded, records * chances)
            continue
        a = [_fed(of) for of in same]
        delta = [of.errors.astype(np.float64) for of in same]
        of_a, turn_a = _moments(a[0], chances)
        of_delta, turn_delta = _moments(delta[0], chances)
        a, delta = [one @ turn_a for one in a], [one @ turn_delta for one in delta]
        turned = [turn_delta.T @ target @ turn_a for target in updates]
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
    result, vectors = np.linalg.eigh((v * chances[:, None]).T @ v)
    return _shrunk(np.maximum(result, 0.0), len(v)), vectors


def _shrunk(variances: Array, records: int) -> Array:
    """What no record shows may still vary in others: as if one more were average."""
    return np.asarray((records * variances + variances.mean()) / (records + 1))


@dataclass(frozen=True)
class Imagined:
    """What the client's known records may be and who its unknown ones may be: one list of records.

    inputs (N, d), labels (N,), and chances (N,) that a record of the client is this one. First are
    completions of every value (K, T, m); then, from the first of ``ends``, the known records as
    drawn D times (D, m), unless they are exact (T = 1, D = 1 + clients); from the second, auxiliary
    records in three parts.
    prior: (m, K), each record's values before listening. states: (D, m), which were drawn. ties:
    (m,), numbers of records that are alike in everything that is known of them. exact: all but the
    secret is known of them. unknown: how many records are not known; noisy: as many as count so.
    chosen: (clients, unknown), the unknown records of simulated clients.
    """

    inputs: Array
    labels: Array
    chances: Array
    ends: NDArray[np.intp]
    prior: Array
    states: NDArray[np.intp]
    ties: NDArray[np.intp]
    exact: bool
    unknown: int
    noisy: int
    chosen: NDArray[np.intp]

    def sums(self, rows: Array) -> Sums:
        """Gradients of the list (N, b) added up as a client's message adds them up."""
        (known, values), (draws, _), clients = self.prior.shape, self.states.shape, len(self.chosen)
        completed, drawn, others = np.split(rows, self.ends)
        means = completed.reshape(values, -1, known, rows.shape[1]).mean(axis=1)
        typical = means[self.states, np.arange(known)]
        learned = judging = rows[:0]
        if self.exact:
            drawn = typical
        else:
            drawn = drawn.reshape(draws, known, -1)
            apart = (drawn - typical) / np.sqrt(clients)
            learned, judging = apart.reshape(3, -1, rows.shape[1])[:2]
        expected, simulated = means[0].sum(axis=0), drawn[-clients:].sum(axis=1)
        if self.noisy:
            # without auxiliary records the unknown are like the known ones
            first = drawn[0]
            mine, theirs, pool = (
                np.split(others, 3) if len(others) else (first[::2], first[1::2], first)
            )
            rest, size = mine.mean(axis=0), self.noisy * (1 + self.noisy / len(mine))
            learned = np.concatenate([learned, np.sqrt(size / len(mine)) * (mine - rest)])
            judging = np.concatenate([judging, np.sqrt(size / len(theirs)) * (theirs - rest)])
            expected = expected + self.unknown * rest
            simulated = simulated + pool[self.chosen].sum(axis=1)
        differences = (means[1:] - means[0]).swapaxes(0, 1).reshape(-1, rows.shape[1])
        return Sums(differences, expected, learned, judging, simulated)


def imagined(
    view: View, unknown: int, rng: np.random.Generator, options: PartialOptions = DEFAULT
) -> Imagined:
    """What the client's records may be, given what the view knows of them."""
    recipe, records = view.know(ClientProgram).plain_recipe, view.know(PublicRecords).records
    domain, prior = view.know(AttributeDomain), imputed_prior(view)
    labels: Any = view.know(Labels).values if Labels in view.kinds else None
    auxiliary = view.know(AuxiliaryData) if AuxiliaryData in view.kinds else None
    lacking = [n for n in recipe.encoding.columns() if n not in (*records.columns, *domain.columns)]
    known, exact = len(records), labels is not None and not lacking
    drawn = rng.random((3 * options.clients, known, 1)) < prior.cumsum(axis=1)
    states, hidden = drawn.argmax(axis=2), dict(domain.settings[0])
    if exact:
        states = states[-1 - options.clients :]  # one to be like, and the simulated clients
    if exact:
        inputs = encode_each(recipe.encoding, records, domain.settings)[:, None]
        numbers = np.broadcast_to(recipe.target.encode_values(labels), inputs.shape[:3])
    elif auxiliary is None:
        raise GrantKnowledge(
            "of the records something is not known; what it may be is taken from auxiliary data: "
            "grant some"
        )
    else:
        hidden |= {name: auxiliary.records[name][0] for name in lacking}
        inputs, numbers = _completed(view, records, labels, lacking, hidden, options, rng)
    first, which = slice(options.completions), np.arange(options.completions, inputs.shape[1])
    at = states[: len(which)], which[:, None], np.arange(known)
    means = prior.T[:, None] / len(inputs[0, first])
    listed: list[Any] = [
        (inputs[:, first], numbers[:, first], means),
        (inputs[at], numbers[at], 0.0),
    ]
    # donors may be unlike the record: as if one in ten were somebody else
    noisy, pool = unknown if exact else max(unknown, known // 10), known
    if noisy and auxiliary is not None and len(auxiliary.labels) >= 3:
        pool = min(len(auxiliary.labels) // 3, options.others)
        who = rng.permutation(len(auxiliary.labels))[: 3 * pool]
        theirs = encode(recipe.encoding, auxiliary.records.take(who))
        listed.append(
            (theirs, recipe.target.encode_values(auxiliary.labels[who]), unknown / (3 * pool))
        )
    chances = [np.broadcast_to(share, y.shape).ravel() for _, y, share in listed]
    return Imagined(
        np.concatenate([x.reshape(-1, x.shape[-1]) for x, _, _ in listed]),
        np.concatenate([y.ravel() for _, y, _ in listed]),
        np.concatenate(chances) / (known + unknown),
        np.cumsum([y.size for _, y, _ in listed[:2]]),
        prior,
        states,
        same_rows(public_inputs(recipe, records, labels, hidden)),
        exact,
        unknown,
        noisy,
        rng.integers(pool, size=(options.clients, unknown)),
    )


def _completed(
    view: View,
    records: Records,
    labels: Any,
    lacking: Sequence[str],
    hidden: Mapping[str, Any],
    options: PartialOptions,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draws (K, T, m, d) and (K, T, m) of what records may be of which a part is not known: the
    rest is a donor's, an auxiliary record with the value that is like the record in what is known.
    """
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    recipe, domain, auxiliary = (
        view.know(ClientProgram).plain_recipe,
        view.know(AttributeDomain),
        view.know(AuxiliaryData),
    )
    mine = public_inputs(recipe, records, labels, hidden)
    their_labels = None if labels is None else auxiliary.labels
    theirs = public_inputs(recipe, auxiliary.records, their_labels, hidden)
    if theirs.shape[1]:
        scale = StandardScaler().fit(theirs)
        mine, theirs = scale.transform(mine), scale.transform(theirs)
    made, targets, positions = [], [], domain.positions(auxiliary.records)
    for value, setting in enumerate(domain.settings):
        having = rng.permutation(np.flatnonzero(positions == value))
        if len(having) < 3:
            having = rng.permutation(len(positions))
        for part, many in zip(np.array_split(having, 3), options.parts, strict=True):
            near = rng.integers(0, len(part), (len(records), many))
            if theirs.shape[1]:
                neighbours = NearestNeighbors(n_neighbors=min(len(part), many)).fit(theirs[part])
                near = neighbours.kneighbors(mine, return_distance=False)
            for picked in part[np.resize(rng.permuted(near, axis=1).T, (many, len(records)))]:
                donors = auxiliary.records.take(picked)
                whole = Records({**records.columns, **{name: donors[name] for name in lacking}})
                made.append(encode(recipe.encoding, whole, setting))
                labelled = auxiliary.labels[picked] if labels is None else labels
                targets.append(recipe.target.encode_values(labelled))
    shape = (len(domain.settings), sum(options.parts), len(records))
    return np.reshape(made, (*shape, -1)), np.reshape(targets, shape)

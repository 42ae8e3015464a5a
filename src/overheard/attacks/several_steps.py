"""Several local steps, of any network, loss and rule: which candidate is each record?

Where nothing is random the answer is solved and proven by replay (`attacks.replay`); what is not
proven, and whatever has an unknown order of batches, is linearised at a belief and decoded against
simulated clients (`by_simulation`; decoders.md section 8). The cheapest sufficient way is taken: a
proof by replay where the order of the batches is known, else few rounds, which often decide
everything; a search for the seed of the order; more rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import entr

from overheard.attacks.client import Client, rounding, spread
from overheard.attacks.order_search import guessed
from overheard.attacks.replay import Replay
from overheard.decoding.calibration import Calibration, calibrate
from overheard.decoding.max_entropy import Posterior, learned_share, tilted
from overheard.decoding.measurement import NORMAL_MEDIAN, Measurement, from_gram
from overheard.decoding.posterior import NOISY, POOR_FIT, UNSOLVED, decode
from overheard.errors import ChooseAnotherAttack
from overheard.programs.linearise import (
    MEMORY,
    Encoded,
    Linearised,
    States,
    Trajectory,
    coordinates,
    linearise,
    states_of,
)
from overheard.programs.networks import network
from overheard.programs.orders import Place
from overheard.programs.recipe import Recipe
from overheard.transcript.knowledge import Messages

Array = NDArray[np.float64]
Choice = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingOptions:
    """Settings of the decoding of any training.

    fewest, most: rounds that are used, spread evenly, each of which costs as much as the first: so
        few, and if they leave the answer vague so many.
    clear: accuracy of simulated clients from which further rounds are not worth their time.
    far_off: reduced chi-square from which only undeclared noise explains it.
    clipped: updates shorter than this part of simulated clients' were scaled down.
    short: length of an update, in units of simulated clients', below which (or above one over
        which) it was scaled, or another rule made it: fewer members would explain it, but their
        number is known.
    replays: simulated clients whose mean update others are compared with.
    most_mixed: candidates of all records of a model that normalises over the batch: each is
        replayed some ten times.
    """

    fewest: int = 5
    most: int = 24
    clear: float = 0.95
    far_off: float = 100.0
    clipped: float = 0.9
    short: float = 0.5
    replays: int = 32
    most_mixed: int = 2000


DEFAULT = TrainingOptions()


def decode_training(
    client: Client, rng: np.random.Generator, options: TrainingOptions = DEFAULT
) -> Posterior:
    """Probabilities of each record's candidates."""
    _refuse(client.recipe, client.encoded, options)
    result = replayed(client)
    if result is not None:
        return result
    if network(client.recipe).mixes:
        notes: dict[str, float | int | str] = {"rounds_used": 1}
        unknowns = client.candidates.unknowns
        return Posterior(client.prior, 0.0, 0, unknowns, 0, False, "prior", UNSOLVED, notes)
    whole, (client, result) = client, _with(client, options.fewest, rng, options)
    if not result.settled:
        proven = replayed(whole, guess=True)
        if proven is not None:
            return proven
    everybody = bool(client.candidates.present.all())
    vague = float(result.notes["simulated_accuracy"]) < options.clear
    if vague and not (result.flag and everybody) and len(whole.messages) > len(client.messages):
        client, result = _with(whole, options.most, rng, options)
    if float(result.notes["reduced_chi2"]) > options.far_off and not client.messages.noise_sd:
        sd = _unexplained(client, rng, options)
        noisy = client.with_messages(replace(client.messages, noise_sd=sd))
        again = by_simulation(noisy, rng)
        if not again.flag:
            result = replace(again, notes={**again.notes, "noise_found": sd})
    if not everybody and not result.flag:
        size = _lengths(client, rng, options) if not client.messages.noise_sd else np.ones(1)
        strange = size.min() < options.short or size.max() > 1 / options.short
        if strange or "noise_found" in result.notes:
            return replace(result, flag=POOR_FIT, notes={**result.notes, "fit": "poor"})
    return result


def _with(
    client: Client, rounds: int, rng: np.random.Generator, options: TrainingOptions
) -> tuple[Client, Posterior]:
    """The client as observed in so many rounds, and the answer."""
    client = client.only(spread(len(client.messages), rounds))
    if client.may_be_clipped:
        client = client.with_messages(_unclipped(client, rng, options))
    return client, by_simulation(client, rng)


def _ends(client: Client, rng: np.random.Generator, options: TrainingOptions) -> Array:
    """Where simulated clients end on the whole (T, P)."""
    chosen = client.encoded.drawn(client.prior, options.replays, rng)
    at = (Trajectory(client.recipe, sent, client.encoded) for sent in client.messages.sent)
    return np.stack([one.ends(chosen, rng).mean(axis=0) for one in at])


def _unexplained(client: Client, rng: np.random.Generator, options: TrainingOptions) -> float:
    """Standard deviation, on a coordinate, of what simulated clients leave of the updates: by the
    median, so that the few coordinates that the secret moves most do not count."""
    residual = client.messages.returned.astype(np.float64) - _ends(client, rng, options)
    return float(np.median(np.abs(residual)) / NORMAL_MEDIAN)


def _lengths(client: Client, rng: np.random.Generator, options: TrainingOptions) -> Array:
    """How long every update (T,) is along simulated clients', in units of theirs."""
    start = client.messages.sent.astype(np.float64)
    update, typical = client.messages.returned - start, _ends(client, rng, options) - start
    squares = np.einsum("tp,tp->t", typical, typical)
    return np.asarray(np.einsum("tp,tp->t", update, typical) / np.maximum(squares, 1e-300))


def _unclipped(client: Client, rng: np.random.Generator, options: TrainingOptions) -> Messages:
    """The link with every update as long as simulated clients' are along them."""
    link = client.messages
    scale = _lengths(client, rng, options)
    start = link.sent.astype(np.float64)
    scale = np.where((scale > 0) & (scale < options.clipped), scale, 1.0)[:, None]
    made = start + (link.returned - start) / scale
    return replace(link, returned=made.astype(link.returned.dtype))


def replayed(client: Client, guess: bool = False) -> Posterior | None:
    """The proven answer of a client whose training has nothing random in it, if one is found: full
    batches, or mini-batches in an order that is known (``guess``: in one that can be guessed)."""
    link, recipe, candidates = client.messages, client.recipe, client.encoded
    changed = bool(client.defence.names) or recipe.private is not None
    if network(recipe).random or link.noise_sd or changed or _bytes(recipe, candidates) > MEMORY:
        return None
    first = client.only(np.arange(1))
    if recipe.full_batch and not guess:
        return Replay(first).answer()
    if recipe.full_batch or client.order is None or not candidates.present.all():
        return None  # who is not known to be there has no place in the order
    place = Place(recipe.epochs, len(client.prior), recipe.model.size)
    order = client.order.known(place)
    if guess != (order is None):
        return None
    if order is None:
        return guessed(client, client.order, place, np.random.default_rng(0))
    return Replay(first, order).answer()


def _bytes(recipe: Recipe, candidates: Encoded) -> int:
    """Of all columns of a replay together, with what it keeps of its clients."""
    values, n, _ = candidates.inputs.shape
    return int(8 * n * (values + 7) * min(recipe.model.size, max(3000, 8 * n * (values - 1))))


def _refuse(recipe: Recipe, candidates: Encoded, options: TrainingOptions) -> None:
    if recipe.sends_gradient:
        raise ChooseAnotherAttack(
            "decodes whole local epochs, or gradients of whole batches; these clients send "
            "gradients of mini-batches, or by another rule"
        )
    values, n, _ = candidates.inputs.shape
    if network(recipe).mixes and not (recipe.full_batch and n * values <= options.most_mixed):
        raise ChooseAnotherAttack(
            "decodes models that treat records one by one; this one normalises over the batch, "
            f"which is decoded of full batches with up to {options.most_mixed} candidates in all"
        )
    if coordinates(candidates) < n**0.5:
        raise ChooseAnotherAttack(
            f"{n} records with {values} candidates leave too few of the {recipe.model.size} "
            f"parameters within {MEMORY / 1e9:.0f} GB; audit a smaller client"
        )


@dataclass(frozen=True)
class SimulationOptions:
    """Settings of the decoding against simulated clients.

    clients, few: simulated clients of a round; so many where they train one by one.
    held: those of them that judge the answers: the others give the noise its shape.
    judged: records of simulated clients whose decoding is judged, at least.
    passes: linearisations, each at what the last one found.
    few_rounds: after so many of the first pass an answer is tried.
    certain: mean log-likelihood from which further rounds are not needed.
    weak: directions below this many noise units are dropped.
    each: unknowns an equation from which it is first learned how common a value is.
    open: share of the prior in the belief at which a later pass is linearised.
    strange, spreads: what no answer explains, relative to simulated clients' mean, up to which a
        fit is good: that much, or so many of their own standard deviations.
    operations: that factorising all rounds with positions may cost, which sweeps do tens of times.
    possible: probability that one round leaves to a candidate.
    settled: mean log-likelihood from which no further pass is needed.
    moved: mean change of a probability up to which a linearisation still holds.
    """

    clients: int = 528
    few: int = 32
    held: int = 16
    judged: int = 800
    passes: int = 3
    few_rounds: tuple[int, ...] = (1, 3)
    certain: float = -0.002
    weak: float = 0.1
    each: float = 5.0
    open: float = 0.3
    strange: float = 1.3
    spreads: float = 5.0
    operations: float = 1e10
    possible: float = 1e-9
    settled: float = -0.02
    moved: float = 0.1


SIMULATION = SimulationOptions()


def by_simulation(
    client: Client, rng: np.random.Generator, options: SimulationOptions = SIMULATION
) -> Posterior:
    """Probabilities of each record's candidates from every round of the link.

    Simulated clients, whose secrets are known, say how large the noise is, how far an answer may be
    believed (one temperature), which pass to keep and what accuracy to expect; and whether the
    message looks like theirs at all. If not, recipe or records are not as declared.
    """
    recipe, candidates, prior = client.recipe, client.encoded, client.prior
    tried = _Tried(client, rng, options)
    ways = [w for w in states_of(recipe, candidates) if tried.affordable(w)]
    if not candidates.present.all():
        ways = ways[-1:]  # absence is the state without a batch position
    fits: list[_Round] = []
    passes: list[_Judged] = []
    belief, most = prior, len(client.messages)
    for number in range(options.passes):
        for used, (chosen, passed) in enumerate(tried.linearised(belief, ways), 1):
            if used < most and (number or used not in options.few_rounds):
                continue
            result: list[_Judged] = []
            for rounds in passed:
                if not passes or rounds[0].states is passes[0].states:
                    result.append(_judged(rounds, chosen, prior, options))
                    if result[-1].settled:
                        break
            last = replace(max(result, key=lambda one: one.worth), passes=number + 1)
            if last.settled and last.worth > options.certain:
                break
        # with the order as noise simulated clients know how far messages stray from a belief, and
        # those drawn from a better one are more like this one
        fits.append(max(passed[0], key=lambda one: one.chi2 / one.allowed))
        chi2 = min(one.chi2 for one in fits)
        allowed = float(np.median([one.allowed for one in fits]))  # a few clients say it each time
        passes.append(last)
        best = max(passes, key=lambda one: one.worth)
        unmoved = np.abs(last.probabilities - prior).mean() < options.moved
        if (best.worth > options.settled or unmoved) and chi2 <= allowed:
            break
        # between what was found and the prior
        belief = (1 - options.open) * last.probabilities + options.open * prior
    flag = best.calibration.flag(best.probabilities)
    if chi2 > allowed:
        # of full batches simulated clients know no noise, and what is not proven is not known
        flag = UNSOLVED if recipe.full_batch else POOR_FIT
    notes: dict[str, float | int | str] = {
        "fit": "good" if chi2 <= allowed else "poor",
        "reduced_chi2": chi2,
        "reduced_chi2_allowed": allowed,
        **best.calibration.notes,
        "noise_ratio": best.noise,
        "rounds_used": used,
    }
    unknowns, settled = prior.size - len(prior), best.settled and not flag
    return Posterior(
        best.probabilities, chi2, best.rank, unknowns, best.passes, True, "direct_response",
        flag, notes, settled,
    )  # fmt: skip


@dataclass(frozen=True)
class _Judged:
    """One pass. chi2: what no answer explains of the message, in units of what none explains of
    simulated clients'."""

    probabilities: Array
    calibration: Calibration
    chi2: float
    allowed: float
    noise: float
    rank: int
    states: States
    options: SimulationOptions
    passes: int = 1

    @property
    def worth(self) -> float:
        """What simulated clients' answers were worth, or what the message's own says it is worth
        (its mean log-likelihood, were it right), if that is less."""
        doubt = float(entr(self.probabilities).sum(axis=1).mean())
        return min(self.calibration.log_likelihood, -doubt)

    @property
    def settled(self) -> bool:
        """Is it as good as certain, and does the message look like simulated clients'?"""
        return self.worth > self.options.settled and self.chi2 <= self.allowed


@dataclass(frozen=True)
class _Tried:
    """A client's messages, ready to be decoded at any belief."""

    client: Client
    rng: np.random.Generator
    options: SimulationOptions

    def clients(self) -> int:
        """How many are simulated: as many as train in a few seconds, and fit into the memory."""
        recipe, candidates = self.client.recipe, self.client.encoded
        many = self.options.clients if network(recipe).factored else self.options.few
        each = 4 * candidates.members * candidates.inputs.shape[2] + 16 * recipe.model.size
        return max(2 * self.options.held, min(many, int(MEMORY / 8 / each)))

    def affordable(self, states: States) -> bool:
        """May positions be decoded along: are there equations for them, and is it done in
        seconds?"""
        n, values = self.client.prior.shape
        operations = len(self.client.messages) * float(n * (values - 1 + states.sized)) ** 3
        few = operations <= self.options.operations and self.client.recipe.model.size >= n
        return few or states.positions == 1

    def linearised(
        self, belief: Array, ways: Sequence[States]
    ) -> Iterator[tuple[Choice, list[list[_Round]]]]:
        """Simulated clients drawn from a belief (n, K); and ever more rounds linearised at it, once
        for each way to decode along the order."""
        link, recipe, candidates = self.client.messages, self.client.recipe, self.client.encoded
        chosen = candidates.drawn(belief, self.clients(), self.rng)
        # declared noise is simulated; private steps add theirs while they train; noise that was
        # only found must not make another recipe look right
        declared = 0.0 if recipe.private else self.client.defence.noise_sd
        clients = chosen, self.options.held, declared
        made: list[list[Linearised]] = [[] for _ in ways]
        for sent, *message in zip(link.sent, link.returned, rounding(link), strict=True):
            at = Trajectory(recipe, sent, candidates)
            each = linearise(at, (message[0], message[1]), clients, ways, self.rng)
            for states, rounds, one in zip(ways, made, each, strict=True):
                # noises of rounds are independent; positions belong to one
                together = bool(rounds) and states.positions == 1
                rounds[:] = [rounds[0] + one] if together else [*rounds, one]
            parts = zip(ways, made, strict=True)
            yield chosen, [[_Round(one, way, self.options) for one in part] for way, part in parts]


_Observed = tuple[Measurement, Array]
"""A round's message as a measurement of the states, and its products with all columns."""


class _Round:
    """One round, or several together: the message and the held-out simulated clients' in units of
    the noise that these show."""

    def __init__(self, one: Linearised, states: States, options: SimulationOptions) -> None:
        self.one, self.states, self.options = one, states, options
        people = one.truth.shape[1]
        used = np.einsum("nr,nr->r", one.rows, one.rows) > options.weak**2
        apart = one.rows[:, used].reshape(people, len(one.rows) // people, int(used.sum()))
        measured = Measurement(one.points @ apart, one.totals[0, used])
        totals = one.totals[:, used]
        known = [np.tensordot(np.eye(len(one.points))[s], measured.features, 2) for s in one.truth]
        residual = totals[1:] - np.array(known)
        noise = float(np.mean(residual**2)) if residual.size else 1.0
        self.noise = max(noise * (1 + 1 / one.fitted), 1e-6)
        self.rank = max(measured.rank - one.counted, 0)
        self.measured = measured.inflated(float(np.sqrt(self.noise)))
        self.totals = totals / np.sqrt(self.noise)
        # what lies outside of all columns' span, relative to held-out simulated clients
        outside = np.maximum(one.squares - np.einsum("br,br->b", totals, totals), 0.0)
        mean = max(float(np.mean(outside[1:])), 1e-300)
        self.chi2 = float(outside[0]) / mean
        spreads = options.spreads
        self.allowed = max(options.strange, 1 + spreads * float(np.std(outside[1:], ddof=1)) / mean)
        if states.position[0] < 0:
            # a member that weighs much may be in the last batch, or not a member: in logarithms
            logs = np.log(np.maximum(outside[1:] / mean, 1e-300))
            far = min(spreads * float(np.std(logs, ddof=1)), 700.0)
            self.allowed = max(self.allowed, float(np.exp(far)))

    def message(self, number: int = 0) -> _Observed:
        """The message (0), or that of a simulated client that had no part in the noise's shape.
        What strays further outside of all columns' span than simulated clients' does so inside,
        too."""
        measured = replace(self.measured, total=self.totals[number])
        if number == 0 and self.states.positions > 1:
            measured = measured.inflated(float(np.sqrt(max(self.chi2, 1.0))))
        return measured, self.one.rows @ self.one.totals[number]

    def posterior(self, measured: Measurement, before: Array) -> Array:
        """Probabilities of the states (n, Z), given those of the candidates before (n, K)."""
        states = self.states
        points = None if states.positions == 1 else self.one.points
        if points is not None or measured.rank * self.options.each > measured.unknowns:
            return decode(measured, states.prior(before), points, NOISY).probabilities
        # how common a value is among these records the sum tells before any record is
        if measured.rank and not np.ptp(before, axis=0).any():
            before = np.tile(learned_share(measured, before[0]), (len(before), 1))
        return tilted(measured, states.prior(before)).probabilities

    def settled(self, cross: Array, result: Array) -> tuple[Array, Array]:
        """Inner products of what the candidates do, and with the message (whose products with all
        columns are ``cross``), the positions being as found (n, Z) and their doubt being noise.

        Given its candidate a record adds the mean of its states; the deviations are columns of the
        noise's covariance (Woodbury).
        """
        means, roots = self.states.given(result, self.one.points)
        n, free, _ = means.shape
        products = self.one.rows @ self.one.rows.T
        apart = means[:, :, 1:] - means[:, :, :1]
        cross = cross - products @ means[:, :, 0].ravel()

        def onto(columns: Array, right: Array) -> Array:
            made = np.swapaxes(columns, 1, 2) @ right.reshape(n, free, -1)
            return np.asarray(made.reshape(n * columns.shape[2], -1) / self.noise)

        noisy = onto(roots, products).T
        inner = onto(roots, noisy) * self.noise
        inner[np.diag_indices(len(inner))] += 1.0
        lower = linalg.cholesky(inner, lower=True, check_finite=False)
        signal = onto(apart, products).T
        right = np.column_stack([onto(roots, signal) * self.noise, onto(roots, cross)])
        right = linalg.solve_triangular(lower, right, lower=True, check_finite=False)
        gram = onto(apart, signal) * self.noise - right[:, :-1].T @ right[:, :-1]
        return gram, onto(apart, cross)[:, 0] - right[:, :-1].T @ right[:, -1]


def _decoded(
    rounds: list[_Round], messages: list[_Observed], prior: Array, options: SimulationOptions
) -> Array:
    """Probabilities of the candidates (n, K). Positions belong to a round: they are found round
    by round, with what the rounds before found; all rounds together then say the candidates."""
    result, products = prior, []
    for one, (measured, cross) in zip(rounds, messages, strict=True):
        states = one.posterior(measured, result)
        result = np.maximum(states @ one.states.kinds, options.possible)
        result = result / result.sum(axis=1, keepdims=True)
        if len(rounds) > 1:
            products.append(one.settled(cross, states))
    if len(rounds) == 1:
        return result
    gram, cross = (np.sum([each[part] for each in products], axis=0) for part in (0, 1))
    measured = from_gram(gram, cross.reshape(len(prior), -1), options.weak)
    return decode(measured, prior, options=NOISY).probabilities


def _judged(
    rounds: list[_Round], chosen: Choice, prior: Array, options: SimulationOptions
) -> _Judged:
    """Decode the message, and simulated clients to see what such answers are worth."""
    n = len(prior)
    judges = min(options.held, max(2, -(-options.judged // n)))
    secrets = list(chosen[-options.held :][:judges])
    result = _decoded(rounds, [one.message() for one in rounds], prior, options)
    theirs = [
        _decoded(rounds, [one.message(1 + number) for one in rounds], prior, options)
        for number in range(judges)
    ]
    worth = calibrate(theirs, secrets, prior)
    worst = max(rounds, key=lambda one: one.chi2 / one.allowed)
    return _Judged(
        worth.applied(result),
        worth,
        worst.chi2,
        worst.allowed,
        float(np.mean([one.noise for one in rounds])),
        sum(one.rank for one in rounds),
        worst.states,
        options,
    )

"""One full-batch step a round: the update is exactly linear in what each record is.

    (theta - theta') m / lr  =  sum_i g_i(s_i),      g_i(v): gradient of record i were its value v,

however non-linear the network (decoders.md section 1); rounds stack, and who may be absent adds
nothing. `measure` writes that as a `Measurement` in the cheapest form that serves:

- **linear least squares**, any number of full-batch epochs: the secret column's moments
  (decoders.md section 2.1); two messages tell all that there is to know;
- **logistic or softmax regression**: a record's gradient is its residual times its input, so that
  the residuals of all rounds span a few dozen curves in time (`overheard.decoding.rounds`);
- **any other network**: inner products of the gradients are all that is made, if what they say
  leaves no doubt and explains every number (`GradientRows` needs no gradient of dense layers for
  these); otherwise the gradients are rows, if there is room for them;
- **very many records**: the first layer's equations alone, in chunks, without a Gram matrix.

`decode_one_step` solves it: one round first, more only while the answer is not proven. Clipping
multiplies a whole update by one unknown number a round; it is estimated from the update and taken
out, and so is the size of undeclared noise. Where either was estimated the equations
are no longer exact, and the answer is calibrated on simulated clients; where they are exact the
posterior is already what it says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.client import (
    Client,
    one_step,
    rate_of,
    refuse_several_steps,
    rounding,
    spread,
)
from overheard.decoding.calibration import OVERCONFIDENT, beliefs, calibrate, fits_as_well
from overheard.decoding.matrix_free import OuterProducts, Part, decode_matrix_free
from overheard.decoding.max_entropy import Posterior, fits, max_entropy
from overheard.decoding.measurement import (
    LEAST_DOF,
    NUMBERS,
    UNKNOWNS,
    Measurement,
    from_differences,
    from_gram,
    from_rows,
    stack,
)
from overheard.decoding.posterior import POOR_FIT, UNSOLVED, believable
from overheard.decoding.rounds import (
    Steps,
    from_factors,
    moments_of_secret,
    statistics,
)
from overheard.decoding.ties import decode_tied, solve_gram
from overheard.errors import ChooseAnotherAttack
from overheard.programs.gradient_rows import Differences, GradientRows, Outer, add_products, few_of
from overheard.programs.linearise import Encoded
from overheard.programs.losses import loss_named
from overheard.programs.networks import client_rows, network
from overheard.programs.recipe import Recipe
from overheard.programs.training import local_training
from overheard.transcript.knowledge import Messages

Array = NDArray[np.float64]
PROVEN = ("counts", "linear_solve", "enumeration")
"""Methods whose answer is the only one that explains the equations, or their exact posterior."""


@dataclass(frozen=True)
class OneStepOptions:
    """Settings of the decoding of one step.

    rounds: of the observed rounds, how many are used at most (spread evenly); of models without
        hidden layers all are.
    fitting: mean square of what an answer leaves, in units of rounding, up to which it fits: what a
        wrong description leaves is orders of magnitude more.
    count_sd: how exactly the number of members is known, in records.
    louder: variance of the noise, in units of the stated one, at which inner products alone must
        leave no doubt: what they say is then held against the stated noise, number by number.
    scaled_rounds: in which scales are looked for (spread evenly).
    passes: of scale and secret in turn, where equations are few.
    halved: an update was scaled if what no candidates explain falls at least so far.
    equations: so many an unknown are tried first, in float32.
    """

    rounds: int = 100
    fitting: float = 100.0
    count_sd: float = 0.01
    louder: float = 1.5
    scaled_rounds: int = 8
    passes: int = 4
    halved: float = 0.5
    equations: int = 10


DEFAULT = OneStepOptions()


def is_one_step(client: Client) -> bool:
    """Is an update linear in what the records are, and are there gradients, record by record?"""
    link, recipe, net = client.messages, client.recipe, network(client.recipe)
    if has_moments(client) or not one_step(link, recipe):
        return has_moments(client)
    alone = not (net.random or net.mixes)
    return net.factored or (alone and not too_long(recipe, link.sent[0], client.encoded))


def decode_one_step(
    client: Client, rng: np.random.Generator, options: OneStepOptions = DEFAULT
) -> Posterior:
    """Probabilities of each record's candidates."""
    if _very_many(client):
        return _first_layer(client)
    observed = len(client.messages)
    compressed = has_moments(client) or is_single_layer(client)
    for rounds in (1, options.rounds) if observed > 1 and not compressed else (options.rounds,):
        quick = None if compressed else _proven(client, rounds, options)
        result = quick or _decoded(client, rounds, options)
        if quick or result.posterior.method in PROVEN:
            break
    posterior, notes = result.posterior, {**result.notes, "reduced_chi2": result.chi2}
    if not compressed:
        notes["rounds_used"] = min(rounds, observed)
    fits, flag = result.chi2 <= options.fitting, posterior.flag
    # notes: scale or noise was estimated
    if result.notes and not (compressed and observed > options.rounds):
        some = result.client.only(spread(observed, rounds))
        made = [simulated(some, rng, one) for one in beliefs(posterior.probabilities, client.prior)]
        tried = [_decoded(some.with_messages(link), rounds, options) for link, _ in made]
        answers = [one.posterior.probabilities for one in tried]
        worth = calibrate(answers, [secret for _, secret in made], client.prior)
        posterior = replace(posterior, probabilities=worth.applied(posterior.probabilities))
        notes |= worth.notes
        flag = OVERCONFIDENT if worth.overconfident else ""
        fits = fits_as_well(result.chi2, [one.chi2 for one in tried], options.fitting)
    notes["fit"] = "good" if fits else "poor"
    return replace(posterior, flag=flag if fits else POOR_FIT, notes=notes)


def simulated(
    client: Client, rng: np.random.Generator, probabilities: Array
) -> tuple[Messages, NDArray[np.int64]]:
    """Messages of the client with a secret drawn from these, at the models that were sent."""
    link, recipe, candidates = client.messages, client.recipe, client.encoded
    chosen = candidates.drawn(probabilities, 1, rng)
    data = candidates.shards(chosen, link.sent.dtype)
    made = np.stack([local_training(recipe, sent, data, rng)[0] for sent in link.sent])
    # private steps put their noise on while they train
    noise = 0.0 if recipe.private else link.noise_sd
    made = (made + rng.normal(0.0, noise, made.shape)).astype(made.dtype) if noise else made
    return replace(link, returned=made), chosen[0]


class OneStep(NamedTuple):
    """The client with noise that was found; an answer; the mean square of what no candidates
    explain, or of what the answer leaves, in units of the noise; what is to be said of scale and
    noise."""

    client: Client
    posterior: Posterior
    chi2: float
    notes: dict[str, float | int | str]


def _decoded(client: Client, rounds: int, options: OneStepOptions) -> OneStep:
    """The answer from so many rounds, scale and noise of the updates taken out."""
    link, declared = client.messages, client.may_be_clipped
    notes: dict[str, float | int | str] = {}
    measured = measure(client, rounds)
    # undeclared noise must not stand for members that the pool lacks
    everybody = bool(client.candidates.present.all()) and not link.sparse
    single = one_step(link, client.recipe) and client.candidates.unknowns <= UNKNOWNS
    if everybody and single and (declared or _strange(measured, options)):
        unscaled, scale = _unscaled(client, options)
        scaled = declared or unscaled.chi2 < options.halved * measured.chi2
        measured = unscaled if scaled else measured
        if _strange(measured, options):
            noise = float(np.sqrt(measured.chi2 / np.mean(rounding(link) ** -2)))
            client = client.with_messages(replace(link, noise_sd=noise))
            notes["noise_found"] = noise
            unscaled, scale = _unscaled(client, options)
            measured = unscaled if scaled else measure(client, rounds)
        if scaled:
            notes["scale"] = scale
    posterior = _solved(client, measured)
    chi2 = max(posterior.chi2_per_equation, measured.chi2 if measured.residual_dof else 0.0)
    return OneStep(client, posterior, chi2, notes)


def _proven(client: Client, rounds: int, options: OneStepOptions) -> OneStep | None:
    """The answer of inner products alone, if it leaves no doubt and explains every number that was
    observed; None where it cannot, or where scales are to be found first."""
    recipe, candidates = client.recipe, client.encoded
    thetas, updates, noise = _observed(client, rounds)
    short = 2 * thetas.size < client.candidates.unknowns
    if short or client.messages.sparse or client.may_be_clipped:
        return None
    loudest = noise.max(axis=1, keepdims=True) * np.sqrt(options.louder)
    enough = options.equations * client.candidates.unknowns
    # where layers are dense, and equations many, a part of them in float32 comes first
    many = network(recipe).factored and 2 * thetas.size > enough
    for few in (enough // len(thetas), 0) if many else (0,):
        products = inner_products(recipe, thetas, updates, loudest, candidates, few=few)
        solved = solve_gram(products.gram, products.cross, client.ties, client.prior, products.unit)
        if solved is None:
            continue
        posterior, shares = solved
        chi2 = 0.0
        for theta, update, sd in zip(thetas, updates, noise, strict=True):
            chi2 += float(np.square((update - _expected(client, theta, shares)) / sd).sum())
        if not candidates.present.all():
            missing = candidates.members - shares[:, candidates.present].sum()
            chi2 += float(missing / options.count_sd) ** 2
        if fits(chi2, products.equations):
            chi2 = chi2 / products.equations
            return OneStep(client, replace(posterior, chi2_per_equation=chi2), chi2, {})
    return None


def _strange(measurement: Measurement, options: OneStepOptions) -> bool:
    """Is there more that no candidates explain than rounding and the noise that is known?"""
    return measurement.residual_dof >= LEAST_DOF and measurement.chi2 > options.fitting


def _solved(client: Client, measurement: Measurement) -> Posterior:
    few = measurement.rank < measurement.unknowns
    if few and has_moments(client):
        # Least squares tells d + 2 numbers however long one listens, and opposite secrets may share
        # them (driouich2022 Proposition 1): only the convex problem says so honestly.
        return max_entropy(believable(measurement), client.prior)
    return decode_tied(measurement, client.ties, client.prior)


def measure(client: Client, rounds: int) -> Measurement:
    """What the messages say about which candidate each record is."""
    if has_moments(client):
        return _moments(client, rounds)
    refuse_several_steps(client.messages, client.recipe)
    if is_single_layer(client):
        return _single_layer(client)
    return network_measurement(client, rounds)


def network_measurement(client: Client, rounds: int, scales: Array | None = None) -> Measurement:
    """The measurement of any network. Of records that may be absent the number of those present is
    one more equation: the client reported it. scales: by what each of the rounds used was
    multiplied before it was sent (None: by one)."""
    recipe, candidates = client.recipe, client.encoded
    thetas, updates, noise = _observed(client, rounds)
    if scales is not None:
        updates, noise = updates / scales[:, None], noise / scales[:, None]
    if client.messages.sparse:
        return _rows(recipe, thetas, updates, noise, candidates, updates != 0)
    if client.candidates.unknowns * thetas.size > NUMBERS:
        return inner_products(recipe, thetas, updates, noise, candidates).measurement()
    return _rows(recipe, thetas, updates, noise, candidates)


def _observed(client: Client, rounds: int) -> tuple[Array, Array, Array]:
    """Models (T, P) of so many rounds, sums of gradients at them, and the noise of these."""
    link, used = client.messages, spread(len(client.messages), rounds)
    scale = client.encoded.members / rate_of(link, client.recipe)
    # how a gradient was rounded is judged by all rounds, so those are kept
    observed = link if link.gradients else link.only(used)
    updates, noise = observed.updates() * scale, rounding(observed) * scale
    if len(observed) > len(used):
        updates, noise = updates[used], noise[used]
    return link.sent[used].astype(np.float64), updates, noise


class _At(NamedTuple):
    """At one model: gradients of the first candidate present, differences of the others to the
    first candidate, and what the update leaves unexplained by the first."""

    base: GradientRows
    others: list[Differences]
    residual: Array


def _at(
    recipe: Recipe, theta: Array, candidates: Encoded, update: Array, weights: Array | None = None
) -> _At:
    if too_long(recipe, theta, candidates):
        raise ChooseAnotherAttack(
            f"{candidates.inputs.shape[1]} records and {recipe.model.size} parameters are too many "
            "gradients to write out; of dense layers any number can be decoded"
        )
    there = np.flatnonzero(candidates.present)
    rows = [client_rows(recipe, theta, candidates.inputs[k], candidates.labels[k]) for k in there]
    if weights is not None:
        rows = [one.scaled(weights) for one in rows]
    if not candidates.present[0]:  # who is absent adds nothing
        return _At(rows[0], [one.since() for one in rows], update)
    return _At(rows[0], [one.since(rows[0]) for one in rows[1:]], update - rows[0].total())


def too_long(recipe: Recipe, theta: Array, candidates: Encoded) -> bool:
    """Are there more gradients of layers that are written out than there is room for?"""
    if network(recipe).factored:
        return False
    theta, inputs = theta.astype(np.float64), candidates.inputs[-1, :1]
    one = network(recipe).rows(theta, inputs, candidates.labels[-1, :1])
    return bool(candidates.labels.size * one.written > NUMBERS)


def _rows(
    recipe: Recipe,
    thetas: Array,
    updates: Array,
    noise: Array,
    candidates: Encoded,
    sent: NDArray[np.bool_] | None = None,
) -> Measurement:
    """Every coordinate an equation with its own noise; ``sent`` (T, P): only these."""
    differences, residual, sds = [], [], []
    for number, (theta, update) in enumerate(zip(thetas, updates, strict=True)):
        used = slice(None) if sent is None else np.flatnonzero(sent[number])
        at = _at(recipe, theta, candidates, update)
        differences.append(np.stack([o.explicit()[..., used] for o in at.others], axis=1))
        residual.append(at.residual[used])
        sds.append(noise[number][used])
    if not candidates.present[0]:
        differences.append(np.ones((*differences[0].shape[:2], 1)))
        residual.append(np.array([float(candidates.members)]))
        sds.append(np.array([DEFAULT.count_sd]))
    return from_differences(
        np.concatenate(differences, axis=2), np.concatenate(residual), np.concatenate(sds)
    )


class Products(NamedTuple):
    """Whitened inner products, in units of ``unit``: of all differences with one another
    (m, K - 1, m, K - 1), and with what the first candidates leave (m, K - 1); the square of that;
    the number of equations."""

    gram: Array
    cross: Array
    energy: float
    equations: int
    unit: float = 1.0

    def measurement(self) -> Measurement:
        """Their measurement, and what the differences cannot explain."""
        made = from_gram(self.gram, self.cross)
        # a difference of sums, so never quite negative
        squares = max(self.energy - float(made.total @ made.total), 0.0)
        dof = self.equations - made.rank
        return replace(made, residual_dof=dof, residual_ss=squares) if dof > 0 else made


def inner_products(
    recipe: Recipe,
    thetas: Array,
    updates: Array,
    noise: Array,
    candidates: Encoded,
    weights: Array | None = None,
    few: int = 0,
) -> Products:
    """Of sums (T, P) of gradients at models (T, P), without the gradients.

    Rounds are weighted by their own noise (T, P), so that the sum of Gram matrices has unit noise.
    weights: (T, m), how often a record's gradient counts (None: once). few: about so many numbers
    of each round are enough, in float32 (0: all).
    """
    values, people, _ = candidates.inputs.shape
    counted = int(not candidates.present[0])
    number_of = candidates.members * counted / DEFAULT.count_sd
    precisions = 1 / np.mean(noise**2, axis=1)
    unit = float(precisions[0]) if few else 1.0  # float32 ends at 1e38
    # record-major: the K - 1 differences of a record stand side by side
    shape, dtype = (people, values - 1), np.float32 if few else np.float64
    gram = np.full(shape * 2, counted * DEFAULT.count_sd**-2 / unit, dtype)
    cross = np.full(shape, number_of / DEFAULT.count_sd / unit)
    energy = number_of**2
    counts = [None] * len(thetas) if weights is None else weights
    for theta, update, precision, count in zip(thetas, updates, precisions, counts, strict=True):
        at = _at(recipe, theta, candidates, update, count)
        energy += float(precision * (at.residual @ at.residual))
        blocks = at.base.blocks(at.residual)
        used, same = few_of(at.others, blocks, few) if few else (at.others, blocks)
        for a, one in enumerate(used):
            cross[:, a] += precision / unit * one.project(same)
        add_products(used, precision / unit, gram)
    return Products(gram, cross, energy, thetas.size + counted, unit)


def is_single_layer(client: Client) -> bool:
    """Is it a classifier without hidden layers, and is everybody known to be there?"""
    link, recipe = client.messages, client.recipe
    as_it_is = not (recipe.pull or recipe.private or link.sparse)
    linear = recipe.model.linear and one_step(link, recipe) and as_it_is
    return linear and bool(client.candidates.present.all())


def _single_layer(client: Client) -> Measurement:
    """Of a classifier without hidden layers, from all rounds.

    Rounds with an all-zero model are left out: equal residuals make float32 sums err in one
    direction.
    """
    link, recipe, candidates = client.messages, client.recipe, client.encoded
    values, people, _ = candidates.inputs.shape
    outputs = recipe.model.outputs
    moved = np.flatnonzero(np.abs(link.sent).max(axis=1) > 0)
    most = max(NUMBERS // (values * people * outputs), 1)
    used = moved[spread(len(moved), most)] if len(moved) else np.arange(1)
    scale = people / rate_of(link, recipe)
    thetas = link.sent[used].astype(np.float64)
    # (T, K, m, outputs) -> (outputs, m, K, T)
    raw = network(recipe).predict(thetas[:, None, :], candidates.inputs)
    residuals = np.moveaxis(
        loss_named(recipe.loss).errors(raw, candidates.labels), (3, 2, 1), (0, 1, 2)
    )
    inputs = candidates.inputs.transpose(1, 0, 2).astype(np.float64)
    if recipe.model.bias:
        inputs = np.concatenate([inputs, np.ones((people, values, 1))], axis=2)
    layer = client_rows(recipe, thetas[0], candidates.inputs[0], candidates.labels[0]).layers[0]
    numbers = link.updates()[used] * scale, rounding(link)[used] * scale
    totals, noise = (np.stack([layer.block(row) for row in each], axis=1) for each in numbers)
    series = zip(residuals, totals, noise, strict=True)
    parts = [from_factors(own, inputs, total, sd) for own, total, sd in series]
    return parts[0] if outputs == 1 else stack(parts)


def has_moments(client: Client) -> bool:
    """Is it linear least squares on whole batches, and only inputs are unknown?"""
    recipe, settings = client.recipe, client.candidates.settings
    known = all(s is not None and recipe.target.column not in s for s in settings)
    solved = recipe.linear_least_squares and recipe.full_batch and recipe.plain
    return solved and known and recipe.private is None


def _moments(client: Client, rounds: int) -> Measurement:
    """Of linear least squares: the secret's moments, and what each record adds to them."""
    link, recipe, candidates = client.messages, client.recipe, client.encoded
    settings = [setting for setting in client.candidates.settings if setting is not None]
    inside = recipe.encoding.inputs_of(settings[0])
    public = candidates.inputs[0].copy()
    public[:, inside] = 0.0
    blocks = np.zeros((len(settings), recipe.encoding.width))
    blocks[:, inside] = candidates.inputs[:, 0, inside]
    within = np.zeros_like(blocks)
    if client.candidates.spread:  # a number: its one input is it, by a scale
        (column,), (place,) = settings[0], inside
        values = [float(setting[column]) for setting in settings]
        scale = (values[-1] - values[0]) / (blocks[-1, place] - blocks[0, place])
        within[:, place] = np.square(np.asarray(client.candidates.spread) / scale)
    phi = statistics(public, candidates.labels[0])
    used = spread(len(link), rounds)
    # the solver's own float64 arithmetic, which matters where messages are as precise
    solver = 64 * np.finfo(np.float64).eps * np.abs(link.sent[used]).max()
    rate, epochs = rate_of(link, recipe), 1 if link.gradients else recipe.epochs
    moments = moments_of_secret(
        link.sent[used].astype(np.float64),
        link.updates()[used],
        np.hypot(rounding(link)[used], solver),
        phi,
        blocks,
        Steps(2 * rate / len(phi), epochs, recipe.model.bias, recipe.proximal * rate),
        within,
    )
    each = moments.rows.reshape(len(moments.total), len(settings) - 1, phi.shape[1])
    features = np.zeros((len(phi), len(settings), len(moments.total)))
    features[:, 1:] = np.einsum("iq,rkq->ikr", phi, each)
    noise = np.eye(len(moments.total))
    if client.candidates.spread:
        # where a number lies within its bin is not decoded: to first order it moves what a record
        # adds along the chord from the first bin to the last
        reach = np.linalg.norm(blocks[-1] - blocks[0])
        slope, shares = (features[:, -1] - features[:, 0]) / reach, client.prior.mean(axis=0)
        noise += float(shares @ within.sum(axis=1)) * slope.T @ slope
    made = from_rows(features, moments.total, noise)
    return replace(made, residual_dof=moments.freedom, residual_ss=moments.chi2)


def _unscaled(client: Client, options: OneStepOptions) -> tuple[Measurement, float]:
    """The measurement by updates that were multiplied by an unknown number each before they were
    sent, and the median of these numbers (decoders.md section 3.2).

    What no candidates explain is quadratic in that number: three trials tell its minimum. Where
    candidates explain everything, and a norm is declared, secret and number are found in turn.
    """
    client = client.only(spread(len(client.messages), options.scaled_rounds))
    lengths, rounds = _lengths(client, client.prior), range(len(client.messages))
    scales, few = np.ones(len(lengths)), np.zeros(len(lengths), dtype=bool)
    for row in rounds:
        one, tried = client.only(np.array([row])), np.array([0.5, 1.0, 2.0]) * lengths[row]
        parts = [network_measurement(one, 1, scale[None]) for scale in tried]
        few[row] = client.may_be_clipped and parts[0].residual_dof < LEAST_DOF
        if parts[0].residual_dof >= LEAST_DOF:
            square, slope, _ = np.polyfit(tried, [part.residual_ss for part in parts], 2)
            scales[row] = -slope / (2 * square)
    scales = np.where(scales > 0, scales, 1.0)
    for more in reversed(range(options.passes if few.any() else 1)):
        scales[few] = np.minimum(lengths[few], 1.0)
        made = network_measurement(client, len(scales), scales)
        if more:
            lengths = _lengths(client, _solved(client, made).probabilities)
    return made, float(np.median(scales))


def _lengths(client: Client, probabilities: Array) -> Array:
    """How long every update (T,) is along the one that is expected, in units of that one."""
    link, made = client.messages, []
    rate = rate_of(link, client.recipe) / client.encoded.members
    for theta, update in zip(link.sent.astype(np.float64), link.updates(), strict=True):
        expected = _expected(client, theta, probabilities) * rate
        made.append(update @ expected / max(expected @ expected, 1e-300))
    return np.maximum(made, 1e-6)


def _expected(client: Client, theta: Array, shares: Array) -> Array:
    """The sum of gradients (P,) at a model, of records that are each candidate so far (m, K)."""
    candidates, sums = client.encoded, []
    for k in np.flatnonzero(candidates.present & (shares > 0).any(axis=0)):
        some = shares[:, k] > 0
        x, y = candidates.inputs[k, some], candidates.labels[k, some]
        sums.append(client_rows(client.recipe, theta, x, y).scaled(shares[some, k]).total())
    return np.asarray(np.sum(sums, axis=0))


def _very_many(client: Client) -> bool:
    """One full-batch step, very many unknowns, and a first layer with more parameters than that."""
    unknowns, recipe = client.candidates.unknowns, client.recipe
    if unknowns <= UNKNOWNS or not one_step(client.messages, recipe):
        return False
    everybody = bool(client.candidates.present.all())
    numbers = int(np.prod(recipe.model.own_layout()[0][1]))
    return everybody and network(recipe).factored and numbers > 2 * unknowns


def _first_layer(client: Client) -> Posterior:
    """The posterior from the first round's first layer. The attribute enters it directly, and its
    equations are used (decoders.md section 4: 20,000 records, 1.5 million parameters)."""
    recipe, candidates = client.recipe, client.encoded
    (theta,), (update,), (noise,) = _observed(client, 1)
    base, *others = (
        GradientRows(client_rows(recipe, theta, x, y).layers[:1])
        for x, y in zip(candidates.inputs, candidates.labels, strict=True)
    )
    first = base.layers[0]
    assert isinstance(first, Outer)
    residual: Array = first.block(update[: first.width] - base.total()).astype(np.float64)
    sd = float(np.sqrt(np.mean(noise[: first.width] ** 2)))
    features, biases = [], np.arange(recipe.model.inputs, residual.shape[1])
    for one in others:
        layer: Any = one.since(base).layers[0]
        parts = [Part(part.errors, part.inputs, own) for part, own in layer.parts]
        ones = np.ones((candidates.records, len(biases)))
        features.append((*parts, Part(parts[0].errors, ones, biases)))
    operator = OuterProducts(features, (residual.shape[0], residual.shape[1]))
    result = decode_matrix_free(operator, residual, sd, client.ties)
    result.notes.update(proven=str(result.converged), iterations=result.iterations)
    return result if result.converged else replace(result, flag=UNSOLVED)

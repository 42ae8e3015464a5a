"""lyu2021: attributes from epoch-averaged gradients; its attacks and what it compares them with.

In the paper's order, with its symbols where they can be typed: X_s is the sensitive attribute,
which takes K values; w_t the model sent at epoch t, of which the client's gradient is observed;
gamma the parameter of the softmax.

- Section 3.2, Algorithm 1: `CosMatching` (`cos_matching`), and in `search` the loop that all three
  searches share. They differ in the distance that is least at the answer, in how a record's values
  are relaxed to real numbers, and in the optimiser.
- Section 3.3: `GradientVarianceGmm` (`gradient_variance_gmm`), the membership.
- Section 4.2: `phase`, the choices of epochs.
- Section 4.3, the baselines: L2-BFGS of Zhu et al. 2019 (`L2Lbfgs`) and "stats" (`Statistics`).
  "Random" and the models trained on a public set never listen: `random` and `public_model` are with
  their like in `attacks.baselines`.
- `Gumbel` is Algorithm 1 as driouich2022 compares itself with it.

Searches run once for every choice of epochs (and gamma) and keep the one of least objective. Fewer
epochs are matched more easily, so that all choices are compared on the same epochs, those of all
choices together. No truth is involved in that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute import pool_of
from overheard.attacks.baselines import prior_shares
from overheard.attacks.client import spread
from overheard.errors import ChooseAnotherAttack, FixConfig, needs
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Value, encode_each
from overheard.transcript.guess import AttributeValues, Membership, certain
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    CandidatePool,
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.view import Kinds, View

if TYPE_CHECKING:
    from torch import Tensor

    from overheard.programs.layers import LayeredNetwork

NEEDS = Kinds({Messages, ClientProgram, PublicRecords, Labels, AttributeDomain})
Array = NDArray[np.float64]
Rounds = NDArray[np.int64]
Choices = list[Rounds]
Floats = tuple[float, ...]
Rows: TypeAlias = "tuple[Tensor, ...]"
"""Numbers, a row per record: of the attribute and, if labels are searched too, of the classes."""
Distance: TypeAlias = "Callable[[Matching, Rows, Tensor], Tensor]"


# --- section 3.2: the gradients of virtual inputs, matched with those observed --------------------


@dataclass(frozen=True)
class Matching:
    """The observed gradients, and what a candidate attribute would have produced.

    labels: (m,), None where they are unknown too; candidates: (K, m, d) inputs under each value;
    thetas, observed: (T, P), w_t and its gradient of every epoch.
    """

    view: View
    net: LayeredNetwork
    labels: Tensor | None
    candidates: Tensor
    thetas: Tensor
    observed: Tensor

    def virtual(self, rounds: Tensor, shares: Tensor, classes: Tensor | None = None) -> Tensor:
        """Equation (3): gradients (len(rounds), P) at the virtual inputs X'.

        shares: (m, K), a mixture of values for every record. X' is the mixture of the inputs of
        these values: of a number that is one input that of equation (2), a = sum_n n share_n, of a
        column with an input a value the shares themselves. classes: (m, C), the mixture of classes
        in place of labels that are unknown.
        """
        labels = self.labels if classes is None else classes
        assert labels is not None
        inputs = (shares.T[:, :, None] * self.candidates).sum(dim=0)
        made: Tensor = self.net.mean_gradients(self.thetas[rounds], inputs, labels)
        return made


def guess_points(view: View) -> Array:
    """Every record's inputs (K, m, d) under each value of the attribute."""
    recipe, records = view.know(ClientProgram).plain_recipe, view.know(PublicRecords).records
    return encode_each(recipe.encoding, records, view.know(AttributeDomain).settings)


def true_labels(view: View) -> Array:
    """Every record's label (m,) as the loss takes it."""
    return view.know(ClientProgram).plain_recipe.target.encode_values(view.know(Labels).values)


def matching(view: View) -> Matching:
    """Line 1, the input of Algorithm 1, from what the adversary knows."""
    with needs("torch"):
        import torch

        from overheard.programs.layers import LayeredNetwork

    recipe, candidates = view.know(ClientProgram).plain_recipe, guess_points(view)
    link = view.know(Messages)
    labels = torch.from_numpy(true_labels(view)) if Labels in view.kinds else None
    if labels is None and not recipe.target.classes:
        raise ChooseAnotherAttack(
            "labels are numbers here and unknown; only classes can be searched along with the "
            "attribute; grant the labels"
        )
    people = candidates.shape[1]
    steps = recipe.rate * recipe.local_steps(people)
    sent, observed = link.sent.astype(np.float64), link.updates() / steps
    numbers = (torch.from_numpy(x) for x in (candidates, sent, observed))
    return Matching(view, LayeredNetwork(recipe.model, recipe.loss), labels, *numbers)


def cosine_distance(problem: Matching, result: Rows, rounds: Tensor) -> Tensor:
    """One minus the mean over epochs of equation (1), the cosine of virtual and observed
    gradient."""
    import torch

    virtual = problem.virtual(rounds, *result)
    cosines = torch.nn.functional.cosine_similarity(virtual, problem.observed[rounds], dim=1)
    return 1 - cosines.mean()


def squared_distance(problem: Matching, result: Rows, rounds: Tensor) -> Tensor:
    """Zhu et al. 2019: the squared distance of virtual and observed gradients, summed over epochs
    and relative to the squared length of those observed."""
    observed = problem.observed[rounds]
    size = (observed**2).sum().clamp_min(np.finfo(float).tiny)
    return ((problem.virtual(rounds, *result) - observed) ** 2).sum() / size


class Enough(Exception):
    """A search has long come no nearer."""


def search(
    problem: Matching,
    rounds: Rounds,
    start: Rows,
    relax: Callable[[Tensor], Tensor],
    distance: Distance,
    optimiser: Callable[[Rows], Any],
    steps: int = 1,
) -> Rows:
    """Line 12, equation (4): the mixtures of least distance among all that an optimiser tries.

    relax: the mixtures that stand for what the optimiser changes. After 1,000 tries in a row
    that come no nearer it ends, however many steps it was given.
    """
    chosen = problem.thetas.new_tensor(rounds).long()
    free = tuple(x.clone().requires_grad_(True) for x in start)
    best, least, since = tuple(relax(x) for x in start), float("inf"), 0
    update = optimiser(free)

    def closure() -> Tensor:
        nonlocal best, least, since
        update.zero_grad()
        result = tuple(relax(x) for x in free)
        objective = distance(problem, result, chosen)
        since += 1
        if float(objective.detach()) < least:
            best, least, since = tuple(x.detach() for x in result), float(objective.detach()), 0
        if since >= 1000:
            raise Enough
        objective.backward()  # type: ignore[no-untyped-call]
        return objective

    with suppress(Enough):
        for _ in range(steps):
            update.step(closure)
    return best


def nearest_value(shares: Array, values: tuple[Value, ...]) -> NDArray[np.int64]:
    """The value nearest to a = sum_n n share_n, the number that equation (2) predicts."""
    if any(isinstance(v, str) for v in values):
        raise ChooseAnotherAttack(
            f"the values {', '.join(map(str, values))} are not numbers, so that they have no mean; "
            "leave `expected` out"
        )
    numbers = np.asarray(values, dtype=np.float64)
    return np.asarray(np.abs((shares @ numbers)[:, None] - numbers).argmin(axis=1))


def reconstruct(
    problem: Matching, options: Choices, result: list[Rows], distance: Distance, expected: bool
) -> AttributeValues:
    """Line 13: of what was found for several choices of rounds the best, read as a value for every
    record, and as a class where these were searched too.

    Best is who comes nearest to the gradients of the rounds of all ``options``. What was found by
    matching one round is nearest to that round whatever it is worth; over rounds of its own it
    would always win.
    """
    import torch

    rounds = torch.from_numpy(np.unique(np.concatenate(options)))
    with torch.no_grad():
        tried = [(float(distance(problem, one, rounds)), one) for one in result]
    objective, best = min(tried, key=lambda one: one[0])
    values, labels = problem.view.know(AttributeDomain).values, None
    if len(best) > 1:
        classes = problem.view.know(ClientProgram).plain_recipe.target.classes
        likeliest = best[1].argmax(dim=1).numpy()
        labels = AttributeValues(certain(likeliest, classes), classes, claims=False)
    shares, details = best[0].numpy(), {"objective": objective}
    choice = nearest_value(shares, values) if expected else shares.argmax(axis=1)
    return AttributeValues(certain(choice, values), values, details, labels, claims=False)


def start_of(problem: Matching, rng: np.random.Generator, label_prior_known: bool = False) -> Rows:
    """Lines 4 to 8: the logarithm of the prior where it is known, else N(0, 1); of the classes,
    where they are unknown, likewise (section 5.4), their prior being the shares among the auxiliary
    records."""
    view, (values, people, _) = problem.view, problem.candidates.shape

    def logits(size: int, shares: Array | None) -> Tensor:
        drawn = rng.normal(size=(people, size)) if shares is None else np.log(shares)
        return problem.thetas.new_tensor(drawn).expand(people, size)

    granted = AttributePrior in view.kinds
    attribute = logits(values, prior_shares(view) if granted else None)
    if problem.labels is not None:
        return (attribute,)
    target, shares = view.know(ClientProgram).plain_recipe.target, None
    if label_prior_known:
        if AuxiliaryData not in view.kinds:
            raise ChooseAnotherAttack(
                "no auxiliary records tell the shares of the classes; leave `label_prior_known` out"
            )
        known = target.encode_values(view.know(AuxiliaryData).labels)
        shares = (known[:, None] == np.arange(len(target.classes))).mean(axis=0) + 1e-6
    return attribute, logits(len(target.classes), shares)


class AttributeSearch:
    """What the attacks on an attribute have in common here."""

    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = NEEDS
    slow: ClassVar[bool] = True


@dataclass(frozen=True)
class CosMatching(AttributeSearch):
    """Searches, by Adam, for a distribution over the attribute's values for each record whose
    gradients point in the direction of those observed (lyu2021 Algorithm 1). Where labels are not
    granted, for one over the classes too (section 5.4), from N(0, 1).

    Solves: max over s of Σₜ cos(∇L(θₜ; s), θₜ − θ′ₜ) (lyu2021, Algorithm 1)

    Settings: ``phases``, the choices of rounds to try; ``temperatures``, the grid of the softmax
    parameter gamma; ``steps`` and ``rate`` of Adam, which starts from the population's shares where
    they are granted, instead of N(0, 1); ``label_prior_known`` does so for the classes, whose
    shares are those among the auxiliary records; ``expected`` takes the value
    nearest to the mean of the distribution (equation 2) and not the likeliest, which for two values
    is the same: of a number that is one input the gradients tell no more than the mean.
    """

    name: ClassVar[str] = "cos_matching"
    needs: ClassVar[Kinds] = NEEDS - {Labels}
    uses: ClassVar[Kinds] = frozenset({Labels, AttributePrior, AuxiliaryData})

    phases: tuple[str, ...] = ("pre1", "pre5", "gap10")
    temperatures: Floats = (1.0, 0.3)
    steps: int = 100
    rate: float = 0.1
    label_prior_known: bool = False
    expected: bool = False

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        observed = len(view.know(Messages))
        return self.matched(view, [phase(observed, name) for name in self.phases], rng)

    def matched(self, view: View, options: Choices, rng: np.random.Generator) -> AttributeValues:
        """Algorithm 1 for every choice of rounds and gamma: Softmax(X_s / gamma), changed by Adam
        (section 4.2)."""
        problem, steps = matching(view), self.steps
        import torch

        def softmax(gamma: float, logits: Tensor) -> Tensor:
            return torch.softmax(logits / gamma, dim=1)

        start = start_of(problem, rng, self.label_prior_known)
        adam = partial(torch.optim.Adam, lr=self.rate)
        result = [
            search(problem, rounds, start, partial(softmax, gamma), cosine_distance, adam, steps)
            for rounds in options
            for gamma in self.temperatures
        ]
        return reconstruct(problem, options, result, cosine_distance, self.expected)


# --- section 3.3: membership ---------------------------------------------------------------------


@dataclass(frozen=True)
class GradientVarianceGmm:
    """Fits a mixture of two Gaussians to the variance of the last layer's gradient, one per
    candidate record and value of the attribute, at the last model the client returned; members are
    the component whose variances are nearer to zero (lyu2021 section 3.3, Tables 10 and 11). A
    record's probability is the mean over its values.

    Solves: Var of the last layer's gradient at (xᵢ, v), a mixture of two Gaussians (lyu2021,
    section 3.3)

    Settings: ``then``, the search for the attribute of those who are found, as if their membership
    were known (section 5.2), where the attribute is asked too. ``floor``: least variance of a
    component, relative to that of all candidates.
    """

    name: ClassVar[str] = "gradient_variance_gmm"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "membership"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram, CandidatePool})
    uses: ClassVar[Kinds] = frozenset({AttributeDomain, AttributePrior})

    then: CosMatching | None = None
    floor: float = 1e-9

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        from sklearn.mixture import GaussianMixture

        recipe, link = view.know(ClientProgram).plain_recipe, view.know(Messages)
        known, settings = pool_of(view)
        labels = recipe.target.encode_values(known[recipe.target.column])
        model = returned_models(link, recipe)[-1]
        candidates = encode_each(recipe.encoding, known, settings)
        variances = np.stack([last_layer_variances(recipe, model, x, labels) for x in candidates])
        scale = float(variances.std())
        if scale == 0:
            raise ChooseAnotherAttack("all candidates have the same gradient variance here")
        relative = variances.reshape(-1, 1) / scale
        # one component starts where the paper expects members: the variances nearest to zero
        halves = np.array_split(np.sort(relative[:, 0]), 2)
        mixture = GaussianMixture(
            2,
            weights_init=[0.5, 0.5],
            means_init=[[half.mean()] for half in halves],
            precisions_init=[[[1 / (half.var() + self.floor)]] for half in halves],
            reg_covar=self.floor,
            max_iter=500,
            random_state=int(rng.integers(2**31)),
        ).fit(relative)
        means = mixture.means_[:, 0] * scale
        p = mixture.predict_proba(relative)[:, means.argmin()].reshape(variances.shape).mean(axis=0)
        attribute = None
        if self.then is not None and AttributeDomain in view.kinds:
            attribute = members_attribute(self.then, view, p > 0.5, rng)
        details = {"member_variance": float(means.min()), "other_variance": float(means.max())}
        return Membership(p, attribute, details)


def returned_models(link: Messages, recipe: Recipe) -> Array:
    """The models (T, P) after the client's steps: returned, or one step along its gradient."""
    rate = recipe.learning_rate if link.gradients else 1.0
    return np.asarray(link.sent.astype(np.float64) - rate * link.updates())


def last_layer_variances(recipe: Recipe, theta: Array, inputs: Array, labels: Array) -> Array:
    """Variance (n,) over the entries of each record's gradient by the last layer's weights."""
    last = network(recipe).rows(theta, inputs, labels).output_layer
    a, delta = last.inputs, last.errors
    entries = a.shape[1] * delta.shape[1]
    square = (a**2).sum(axis=1) * (delta**2).sum(axis=1) / entries
    mean = a.sum(axis=1) * delta.sum(axis=1) / entries
    return np.asarray(np.maximum(square - mean**2, 0.0), dtype=np.float64)


def members_attribute(
    attack: CosMatching, view: View, chosen: NDArray[np.bool_], rng: np.random.Generator
) -> AttributeValues:
    """Section 5.2: Algorithm 1 for the pool's records that are chosen, of the others the prior."""
    pool, values = view.know(CandidatePool), view.know(AttributeDomain).values
    probabilities = np.tile(prior_shares(view), (len(chosen), 1))
    if chosen.any():
        theirs = PublicRecords(pool.records.take(np.flatnonzero(chosen)))
        known = view.knowing(theirs, Labels(pool.labels[chosen]))
        probabilities[chosen] = attack(known, rng).probabilities
    return AttributeValues(probabilities, values, claims=False)


# --- section 4.2: the choices of epochs ----------------------------------------------------------


def phase(observed: int, name: str) -> Rounds:
    """lyu2021's choices of epochs (section 4.2, Table 7), as far as they were observed; the paper
    counts from one."""
    choices = {
        "pre1": np.arange(1),
        "pre2": np.arange(2),
        "pre5": np.arange(5),
        "gap10": np.array([10, 20, 30, 40, 50]) - 1,
        "last5": np.arange(max(observed - 5, 0), observed),
    }
    if name not in choices:
        raise FixConfig(f"unknown phase {name!r}; known: {', '.join(choices)}")
    used = choices[name][choices[name] < observed]
    return used if len(used) else np.arange(1)


def grid(observed: int, last: tuple[int, ...], step: tuple[int, ...]) -> Choices:
    """driouich2022's choices (Tables 7 and 8): rounds {0, step, 2 step, ..., last}, as far as they
    were observed, without repetitions."""
    choices = {tuple(range(0, min(a + 1, observed), b)) for a in last for b in step}
    return [np.array(c, dtype=np.int64) for c in sorted(choices, key=lambda c: (len(c), c))]


# --- section 4.3: the baselines ------------------------------------------------------------------


@dataclass(frozen=True)
class L2Lbfgs(AttributeSearch):
    """Searches, by L-BFGS, for attribute values whose gradients are nearest to those observed in
    Euclidean distance, then takes the nearest allowed value.

    Solves: min over s of Σₜ ‖∇L(θₜ; s) − (θₜ − θ′ₜ) / rate‖² (Zhu et al. 2019)

    The values' shares are free real numbers that add up to one, and need not lie between 0 and 1.

    Settings: ``last`` and ``step``, the grid over which rounds to match (driouich2022 Table 7);
    ``iterations`` of L-BFGS; ``rate``, its fixed step as in driouich2022 Tables 2 and 3, where none
    is given a line search; ``expected`` as in `cos_matching`: the value nearest to the number that
    was found, for an attribute of several values that is one input.
    """

    name: ClassVar[str] = "l2_lbfgs"
    paper: ClassVar[str] = "Zhu et al. 2019"

    last: tuple[int, ...] = (0, 100, 1000)
    step: tuple[int, ...] = (10, 50)
    iterations: int = 200
    rate: float | None = None
    expected: bool = field(default=False, kw_only=True)

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        problem = matching(view)
        import torch

        def shares(free: Tensor) -> Tensor:
            return torch.cat([1 - free.sum(dim=1, keepdim=True), free], dim=1)

        values, people, _ = problem.candidates.shape
        start = (torch.from_numpy(rng.normal(size=(people, values - 1))),)
        lbfgs = partial(
            torch.optim.LBFGS,
            lr=1.0 if self.rate is None else self.rate,
            max_iter=self.iterations,
            line_search_fn="strong_wolfe" if self.rate is None else None,
            tolerance_change=1e-14,
        )
        options = grid(len(problem.thetas), self.last, self.step)
        result = [search(problem, r, start, shares, squared_distance, lbfgs) for r in options]
        return reconstruct(problem, options, result, squared_distance, self.expected)


@dataclass(frozen=True)
class Gumbel(AttributeSearch):
    """Cos-matching as driouich2022 runs it: rounds {0, step, 2 step, ..., last} from a grid, the
    configuration of greatest similarity kept, the prior unknown.

    Solves: max over s of Σₜ cos(∇L(θₜ; s), θₜ − θ′ₜ), s a softmax at some temperature (lyu2021 as
    run in driouich2022)

    Settings: as in `l2_lbfgs` and `cos_matching`.
    """

    name: ClassVar[str] = "gumbel"
    paper: ClassVar[str] = "driouich2022"

    last: tuple[int, ...] = (0, 100, 1000)
    step: tuple[int, ...] = (10, 50)
    steps: int = 200
    rate: float = 0.3
    temperature: float = 1.0

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        search = CosMatching((), (self.temperature,), self.steps, self.rate)
        return search.matched(view, grid(len(view.know(Messages)), self.last, self.step), rng)


@dataclass(frozen=True)
class Statistics(AttributeSearch):
    """Asks the client's returned models, epoch by epoch, about every candidate value of every
    record and follows simple heuristics: the value with which the label is predicted more often or
    more surely, the loss is less, the last layer's gradient larger; by default the majority of six.

    Solves: sᵢ = the majority of six rules on P(yᵢ | xᵢ, v; θ′ₜ) (lyu2021, section 4.3)

    Settings: ``rule``, the heuristic to follow, of those that `votes` lists; ``epochs``, how many
    of the returned models are asked (spread evenly).
    """

    name: ClassVar[str] = "statistics"
    slow: ClassVar[bool] = False

    rule: str = "majority"
    epochs: int = 20

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        values = view.know(AttributeDomain).values
        choice = votes(matrices_of(view, self.epochs))[self.rule]
        return AttributeValues(certain(choice, values), values, claims=False)


def matrices_of(view: View, epochs: int) -> Array:
    """The K x E matrices of every record, (5, K, m, E), under the models that the client returned:
    was the label predicted (1 or 0), its probability, the loss, the norm of the last layer's
    gradient, and the sum of that gradient over the weights that lead to the true label (which is
    negative)."""
    recipe, link = view.know(ClientProgram).plain_recipe, view.know(Messages)
    if not recipe.target.classes:
        raise ChooseAnotherAttack(
            "counts predicted classes and their probabilities; here the label is a number"
        )
    candidates = guess_points(view)
    inputs, labels = np.concatenate(candidates), np.tile(true_labels(view), len(candidates))
    true, each = labels.astype(np.int64), np.arange(len(labels))
    net, loss = network(recipe), loss_named(recipe.loss)

    def statistics(theta: Array) -> Array:
        outputs = np.asarray(net.predict(theta, inputs), dtype=np.float64)
        chances = loss.chances(outputs)
        last = net.rows(theta, inputs, labels).output_layer
        # towards the true class; one output stands for two classes, with the error |p - y|
        error = -np.abs(last.errors[each, np.minimum(true, last.errors.shape[1] - 1)])
        made = [
            chances.argmax(axis=-1) == true,
            chances[each, true],
            loss.values(outputs, labels),
            np.sqrt(last.lengths()),
            error * (last.inputs.sum(axis=1) + float(last.bias)),
        ]
        return np.stack(made).astype(np.float64).reshape(len(made), *candidates.shape[:2])

    models = returned_models(link, recipe)[spread(len(link), epochs)]
    return np.stack([statistics(theta) for theta in models], axis=-1)


def votes(matrices: Array) -> dict[str, NDArray[np.int64]]:
    """The row (m,) that each of the seven heuristics chooses; the first among equals."""
    right, p, loss, norm, leading = matrices
    chosen = {
        "label_status": right.sum(axis=-1).argmax(axis=0),
        "probability": p.sum(axis=-1).argmax(axis=0),
        "loss_norm": np.abs(loss).sum(axis=-1).argmin(axis=0),
        "final_loss": loss[..., -1].argmin(axis=0),
        "gradient_norm": norm.sum(axis=-1).argmax(axis=0),
        "true_label_gradient": leading.sum(axis=-1).argmax(axis=0),
    }
    rows = np.stack(list(chosen.values()))
    counts = (rows[:, None, :] == np.arange(len(right))[None, :, None]).sum(axis=0)
    return {"majority": counts.argmax(axis=0), **chosen}

"""lyu2021's attacks, and the searches that it is compared with.

Search for the attribute whose gradient looks like the one heard: the papers' baselines.

`l2_lbfgs` follows Zhu et al. 2019 as lyu2021 and driouich2022 use it, `cos_matching` is lyu2021's
Algorithm 1, `gumbel` is the same as driouich2022 runs it: with a grid over which rounds to match,
the configuration of least objective being kept. Fewer rounds are matched more easily, so that all
configurations are compared on the same rounds, those of the whole grid, each counting alike. No
truth is involved in that choice.

Which value does the client's own model like best? (lyu2021 section 4.3, "stats")

For every record and candidate value the adversary asks the models that the client returned: one
statistic per value and epoch, a K x E matrix a record. Six heuristics choose a row each, the
seventh is their majority. They read the models only, never the updates' sums.

Membership from how well the model already fits each candidate (lyu2021 section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.membership import pool_inputs
from overheard.attacks.stranger import prior_shares
from overheard.attacks.wire import spread
from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.programs.losses import loss_named
from overheard.programs.networks import Network, network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Value, encode, encode_each
from overheard.transcript.guess import AttributeValues, Membership, certain
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    CandidatePool,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

if TYPE_CHECKING:
    from torch import Tensor

UNLABELLED: frozenset[type[Any]] = frozenset({Link, LocalTraining, PublicRecords, AttributeDomain})
NEEDS: frozenset[type[Any]] = UNLABELLED | {Labels}
Rounds = NDArray[np.int64]
Shares = NDArray[np.float64]
Start: TypeAlias = "tuple[Tensor, ...]"
"""Logits, a row per record: of the attribute's values and, if labels are searched, the classes."""
Mixtures: TypeAlias = "tuple[Tensor, ...]"
"""Shares, a row per record, of the same."""
Array = NDArray[np.float64]
Rule = Literal[
    "majority",
    "label_status",
    "probability",
    "loss_norm",
    "final_loss",
    "gradient_norm",
    "true_label_gradient",
]
FLOOR = 1e-9  # least variance of a component, relative to that of all candidates


@dataclass(frozen=True)
class Matching:
    """The gradients heard, and what a candidate attribute would have produced.

    candidates: (K, m, d) inputs under each value; labels: (m,), None where they are unknown too;
    thetas, heard: (T, P).
    """

    net: Network
    candidates: Tensor
    labels: Tensor | None
    thetas: Tensor
    heard: Tensor

    def virtual(self, shares: Tensor, rounds: Tensor, classes: Tensor | None = None) -> Tensor:
        """Mean gradients (len(rounds), P) if record i had the mixture ``shares`` (m, K).

        classes: (m, C), the mixture of classes in place of labels that are unknown.
        """
        labels = self.labels if classes is None else classes
        assert labels is not None
        inputs = (shares.T[:, :, None] * self.candidates).sum(dim=0)
        made: Tensor = self.net.mean_gradients(self.thetas[rounds], inputs, labels)
        return made


def matching(view: View) -> Matching:
    """Set up the search from what the adversary knows."""
    import torch

    recipe, link = view.know(LocalTraining).recipe, view.know(Link)
    domain, records = view.know(AttributeDomain), view.know(PublicRecords).records
    candidates = encode_each(recipe.encoding, records, domain.settings)
    steps = 1.0 if link.gradients else recipe.learning_rate * recipe.local_steps(len(records))
    labels = None
    if Labels in view.kinds:
        labels = torch.from_numpy(recipe.target.encode_values(view.know(Labels).values))
    elif not recipe.target.classes:
        raise ChooseAnotherAttack(
            "labels are numbers here and unknown; only classes can be searched along with the "
            "attribute; grant the labels"
        )
    return Matching(
        network(recipe),
        torch.from_numpy(candidates),
        labels,
        torch.from_numpy(link.sent.astype(np.float64)),
        torch.from_numpy(link.updates() / steps),
    )


def every_nth(heard: int, last: int, step: int) -> Rounds:
    """driouich2022's choice: rounds {0, step, 2 step, ..., last}, as far as they were heard."""
    return np.arange(0, min(last + 1, heard), step)


def phase(heard: int, name: str) -> Rounds:
    """lyu2021's choices of rounds (section 4.2), as far as they were heard."""
    choices = {
        "pre1": np.arange(1),
        "pre2": np.arange(2),
        "pre5": np.arange(5),
        "gap10": np.array([10, 20, 30, 40, 50]) - 1,
        "last5": np.arange(max(heard - 5, 0), heard),
    }
    if name not in choices:
        raise FixConfig(f"unknown phase {name!r}; known: {', '.join(choices)}")
    kept = choices[name][choices[name] < heard]
    return kept if len(kept) else np.arange(1)


def l2_search(
    problem: Matching, rounds: Rounds, start: Tensor, steps: int, rate: float | None = None
) -> Mixtures:
    """Free shares (m, K - 1) that minimise the relative squared distance, by L-BFGS.

    ``rate``: a fixed step in place of the line search.
    """
    import torch

    chosen = torch.from_numpy(rounds)
    heard = problem.heard[chosen]
    size = (heard**2).sum()
    free = start.clone().requires_grad_(True)
    search = torch.optim.LBFGS(
        [free],
        lr=1.0 if rate is None else rate,
        max_iter=steps,
        history_size=20,
        line_search_fn="strong_wolfe" if rate is None else None,
        tolerance_change=1e-14,
    )

    def shares() -> Tensor:
        return torch.cat([1 - free.sum(dim=1, keepdim=True), free], dim=1)

    def closure() -> Tensor:
        search.zero_grad()
        objective = ((problem.virtual(shares(), chosen) - heard) ** 2).sum() / size
        objective.backward()  # type: ignore[no-untyped-call]
        return objective

    search.step(closure)  # type: ignore[no-untyped-call]
    return (shares().detach(),)


def cosine_search(
    problem: Matching, rounds: Rounds, start: Start, steps: int, rate: float, temperature: float
) -> Mixtures:
    """Shares that maximise the summed cosine similarity, by Adam (lyu2021 Algorithm 1).

    start: logits of the values (m, K) and, where labels are unknown, of the classes (m, C): these
    are optimised too (section 5.4).
    """
    import torch

    chosen = torch.from_numpy(rounds)
    logits = tuple(x.clone().requires_grad_(True) for x in start)
    search = torch.optim.Adam(logits, lr=rate)
    best, least = tuple(x.detach() for x in start), float("inf")
    for _ in range(steps):
        search.zero_grad()
        found = tuple(torch.softmax(x / temperature, dim=1) for x in logits)
        objective = cosine_distances(problem, found, chosen).mean()
        if float(objective.detach()) < least:
            best, least = tuple(x.detach() for x in found), float(objective.detach())
        objective.backward()  # type: ignore[no-untyped-call]
        search.step()
    return best


def squared_distances(problem: Matching, found: Mixtures, rounds: Tensor) -> Tensor:
    """Squared distance of each round's gradient to the one heard, over its squared length."""
    heard = problem.heard[rounds]
    size = (heard**2).sum(dim=1).clamp_min(np.finfo(float).tiny)
    return ((problem.virtual(found[0], rounds) - heard) ** 2).sum(dim=1) / size


def cosine_distances(problem: Matching, found: Mixtures, rounds: Tensor) -> Tensor:
    """One minus the cosine between each round's gradient and the one heard."""
    import torch

    virtual = problem.virtual(found[0], rounds, found[1] if len(found) > 1 else None)
    return 1 - torch.nn.functional.cosine_similarity(virtual, problem.heard[rounds], dim=1)


def best_of(
    problem: Matching,
    options: Sequence[Rounds],
    found: Iterable[Mixtures],
    distances: Callable[[Matching, Mixtures, Tensor], Tensor],
) -> tuple[list[Shares], float]:
    """The shares that come nearest to the gradients of all rounds in ``options``, and how near.

    What was found by matching one round is nearest to that round whatever it is worth; over rounds
    of its own it would always win.
    """
    import torch

    rounds = torch.from_numpy(np.unique(np.concatenate(options)))
    with torch.no_grad():
        tried = [(float(distances(problem, one, rounds).mean()), one) for one in found]
    least, best = min(tried, key=lambda one: one[0])
    return [x.numpy() for x in best], least


def nearest_value(shares: Shares, values: tuple[Value, ...]) -> NDArray[np.int64]:
    """The value nearest to a = sum_n n share_n, the number that lyu2021's equation (2) predicts."""
    if any(isinstance(v, str) for v in values):
        raise ChooseAnotherAttack(
            f"the values {', '.join(map(str, values))} are not numbers, so that they have no mean; "
            "leave `expected` out"
        )
    numbers = np.asarray(values, dtype=np.float64)
    return np.asarray(np.abs((shares @ numbers)[:, None] - numbers).argmin(axis=1))


def _answer(
    found: list[Shares], view: View, objective: float, expected: bool = False
) -> AttributeValues:
    values = view.know(AttributeDomain).values
    labels = None
    if len(found) > 1:
        classes = view.know(LocalTraining).recipe.target.classes
        labels = AttributeValues(certain(found[1].argmax(axis=1), classes), classes, claims=False)
    choice = nearest_value(found[0], values) if expected else found[0].argmax(axis=1)
    told = {"objective": objective}
    return AttributeValues(certain(choice, values), values, told, labels, claims=False)


@dataclass(frozen=True)
class L2Lbfgs:
    """Searches, by L-BFGS, for attribute values whose gradients are nearest to those heard in
    Euclidean distance, then takes the nearest allowed value.

    Settings: ``last`` and ``step``, the grid over which rounds to match (driouich2022 Table 7);
    ``iterations`` of L-BFGS; ``rate``, its fixed step as in driouich2022 Tables 2 and 3, where none
    is given a line search.
    """

    name: ClassVar[str] = "l2_lbfgs"
    paper: ClassVar[str] = "Zhu et al. 2019"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS
    slow: ClassVar[bool] = True

    last: tuple[int, ...] = (0, 100, 1000)
    step: tuple[int, ...] = (10, 50)
    iterations: int = 200
    rate: float | None = None

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        import torch

        problem = matching(view)
        values, people, _ = problem.candidates.shape
        start = torch.from_numpy(rng.normal(size=(people, values - 1)))
        options = grid(len(problem.thetas), self.last, self.step)
        found = [l2_search(problem, r, start, self.iterations, self.rate) for r in options]
        best, objective = best_of(problem, options, found, squared_distances)
        return _answer(best, view, objective)


@dataclass(frozen=True)
class CosMatching:
    """Searches, by Adam, for a distribution over the attribute's values for each record whose
    gradients point in the direction of those heard (lyu2021 Algorithm 1). Where labels are not
    granted, for one over the classes too (section 5.4), from N(0, 1).

    Settings: ``phases``, the choices of rounds to try; ``temperatures``, the softmax parameter's
    grid; ``steps`` and ``rate`` of Adam; ``prior_known`` starts from the population's shares, where
    they are granted, instead of N(0, 1); ``label_prior_known`` does so for the classes, whose
    shares are those among the auxiliary records; ``expected`` takes the value nearest to the mean
    of the distribution (equation 2) and not the likeliest, which for two values is the same.
    """

    name: ClassVar[str] = "cos_matching"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = UNLABELLED
    uses: ClassVar[frozenset[type[Any]]] = frozenset({Labels, AttributePrior, AuxiliaryData})
    slow: ClassVar[bool] = True

    phases: tuple[str, ...] = ("pre1", "pre5", "gap10")
    temperatures: tuple[float, ...] = (1.0, 0.3)
    steps: int = 100
    rate: float = 0.1
    prior_known: bool = True
    label_prior_known: bool = False
    expected: bool = False

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        problem = matching(view)
        start = _start(problem, view, rng, self.prior_known, self.label_prior_known)
        options = [phase(len(problem.thetas), p) for p in self.phases]
        found = [
            cosine_search(problem, rounds, start, self.steps, self.rate, temperature)
            for rounds in options
            for temperature in self.temperatures
        ]
        best, objective = best_of(problem, options, found, cosine_distances)
        return _answer(best, view, objective, self.expected)


@dataclass(frozen=True)
class Gumbel:
    """Cos-matching as driouich2022 runs it: rounds {0, step, 2 step, ..., last} from a grid, the
    configuration of greatest similarity kept, the prior unknown.

    Settings: as in `l2_lbfgs` and `cos_matching`.
    """

    name: ClassVar[str] = "gumbel"
    paper: ClassVar[str] = "driouich2022"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS
    slow: ClassVar[bool] = True

    last: tuple[int, ...] = (0, 100, 1000)
    step: tuple[int, ...] = (10, 50)
    steps: int = 200
    rate: float = 0.3
    temperature: float = 1.0

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        problem = matching(view)
        start = _start(problem, view, rng, prior_known=False)
        options = grid(len(problem.thetas), self.last, self.step)
        found = [
            cosine_search(problem, rounds, start, self.steps, self.rate, self.temperature)
            for rounds in options
        ]
        best, objective = best_of(problem, options, found, cosine_distances)
        return _answer(best, view, objective)


def grid(heard: int, last: tuple[int, ...], step: tuple[int, ...]) -> list[Rounds]:
    """The distinct choices of rounds in the grid."""
    choices = {tuple(every_nth(heard, a, b).tolist()) for a in last for b in step}
    return [np.array(c, dtype=np.int64) for c in sorted(choices, key=lambda c: (len(c), c))]


def _start(
    problem: Matching,
    view: View,
    rng: np.random.Generator,
    prior_known: bool,
    label_prior_known: bool = False,
) -> Start:
    import torch

    values, people, _ = problem.candidates.shape
    if prior_known and AttributePrior in view.kinds:
        attribute = torch.from_numpy(np.tile(np.log(prior_shares(view)), (people, 1)))
    else:
        attribute = torch.from_numpy(rng.normal(size=(people, values)))
    if problem.labels is not None:
        return (attribute,)
    target = view.know(LocalTraining).recipe.target
    if label_prior_known:
        if AuxiliaryData not in view.kinds:
            raise ChooseAnotherAttack(
                "nobody told how the classes are spread: there are no auxiliary records; leave "
                "`label_prior_known` out"
            )
        known = target.encode_values(view.know(AuxiliaryData).labels).astype(np.int64)
        shares = np.bincount(known, minlength=len(target.classes)) / len(known)
        logits = np.tile(np.log(np.maximum(shares, 1e-6)), (people, 1))
        return attribute, torch.from_numpy(logits)
    return attribute, torch.from_numpy(rng.normal(size=(people, len(target.classes))))


def statistic_matrices(recipe: Recipe, models: Array, candidates: Array, labels: Array) -> Array:
    """Statistics (5, K, m, E) under each of the E models: was the label predicted (1 or 0), its
    probability, the loss, the norm of the last layer's gradient, and the sum of that gradient over
    the weights that lead to the true label (which is negative).
    """
    made = [_statistics(recipe, theta, candidates, labels) for theta in models]
    return np.stack(made, axis=-1)


def _statistics(recipe: Recipe, theta: Array, candidates: Array, labels: Array) -> Array:
    net, loss = network(recipe), loss_named(recipe.loss)
    outputs = np.asarray(net.predict(theta, candidates), dtype=np.float64)
    chances = loss.chances(outputs)
    true = labels.astype(np.int64)
    people = np.arange(len(true))
    chance = chances[:, people, true]
    found = [
        chances.argmax(axis=-1) == true,
        chance,
        np.stack([loss.values(out, labels) for out in outputs]),
    ]
    norms, leading = [], []
    for inputs in candidates:
        last = net.rows(theta, inputs, labels).output_layer
        a, delta, bias = last.inputs, last.errors, float(last.bias)
        norms.append(np.sqrt(last.lengths()))
        # one output stands for two classes: towards the true one its error is |p - y|
        error = delta[people, true] if delta.shape[1] > 1 else -np.abs(delta[:, 0])
        leading.append(error * (a.sum(axis=1) + bias))
    return np.stack([*found, np.stack(norms), np.stack(leading)]).astype(np.float64)


def votes(matrices: Array) -> dict[str, NDArray[np.int64]]:
    """The row (m,) that each of the seven heuristics chooses; the first among equals."""
    right, chance, loss, norm, leading = matrices
    chosen = {
        "label_status": right.sum(axis=-1).argmax(axis=0),
        "probability": chance.sum(axis=-1).argmax(axis=0),
        "loss_norm": np.abs(loss).sum(axis=-1).argmin(axis=0),
        "final_loss": loss[..., -1].argmin(axis=0),
        "gradient_norm": norm.sum(axis=-1).argmax(axis=0),
        "true_label_gradient": leading.sum(axis=-1).argmax(axis=0),
    }
    rows = np.stack(list(chosen.values()))
    counts = (rows[:, None, :] == np.arange(len(right))[None, :, None]).sum(axis=0)
    return {"majority": counts.argmax(axis=0), **chosen}


@dataclass(frozen=True)
class Statistics:
    """Asks the client's returned models, epoch by epoch, about every candidate value of every
    record and follows simple heuristics: the value with which the label is predicted more often or
    more surely, the loss is less, the last layer's gradient larger; by default the majority of six.

    Settings: ``rule``, the heuristic to follow; ``epochs``, how many of the returned models are
    asked (spread evenly).
    """

    name: ClassVar[str] = "statistics"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, Labels, AttributeDomain}
    )

    rule: Rule = "majority"
    epochs: int = 20

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        values = view.know(AttributeDomain).values
        choice = votes(matrices_of(view, self.epochs))[self.rule]
        return AttributeValues(certain(choice, values), values, claims=False)


def matrices_of(view: View, epochs: int) -> Array:
    """The statistics of the client's records under the models that it returned."""
    recipe, link, domain = (
        view.know(LocalTraining).recipe,
        view.know(Link),
        view.know(AttributeDomain),
    )
    if not recipe.target.classes:
        raise ChooseAnotherAttack(
            "counts predicted classes and their probabilities; here the label is a number"
        )
    records = view.know(PublicRecords).records
    candidates = np.stack([encode(recipe.encoding, records, s) for s in domain.settings])
    used = spread(len(link), epochs)
    models = link.returned[used].astype(np.float64)
    if link.gradients:
        models = link.sent[used].astype(np.float64) - recipe.learning_rate * models
    labels = recipe.target.encode_values(view.know(Labels).values)
    return statistic_matrices(recipe, models, candidates, labels)


@dataclass(frozen=True)
class GradientVarianceGmm:
    """Fits a mixture of two Gaussians to the variance of the last layer's gradient, one per
    candidate record and value of the attribute, at the last model the client returned; members are
    the component whose variances are nearer to zero (lyu2021 section 3.3). A record's probability
    is the mean over its values.

    Settings: ``start``, the share of the candidates with which the members' component starts;
    ``then``, the search for the attribute of those who are found, as if their membership were
    known (section 5.2), where the attribute is asked too.
    """

    name: ClassVar[str] = "gradient_variance_gmm"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining, CandidatePool})
    uses: ClassVar[frozenset[type[Any]]] = frozenset({AttributeDomain, AttributePrior})

    start: float = 0.5
    then: CosMatching | None = None

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        from sklearn.mixture import GaussianMixture

        recipe, link = view.know(LocalTraining).recipe, view.know(Link)
        inputs, labels = pool_inputs(view)
        model = _last_model(link, recipe)
        variances = np.stack([last_layer_variances(recipe, model, x, labels) for x in inputs])
        values = variances.reshape(-1, 1)
        scale = float(values.std())
        if len(np.unique(values)) < 2 or scale == 0:
            raise ChooseAnotherAttack("all candidates have the same gradient variance here")
        # one component starts where the paper expects members: the variances nearest to zero
        ordered = np.sort(values[:, 0] / scale)
        cut = min(max(1, round(self.start * len(ordered))), len(ordered) - 1)
        halves = (ordered[:cut], ordered[cut:])
        mixture = GaussianMixture(
            2,
            weights_init=[cut / len(ordered), 1 - cut / len(ordered)],
            means_init=[[half.mean()] for half in halves],
            precisions_init=[[[1 / (half.var() + FLOOR)]] for half in halves],
            reg_covar=FLOOR,
            max_iter=500,
            random_state=int(rng.integers(2**31)),
        ).fit(values / scale)
        member = int(np.argmin(mixture.means_[:, 0]))
        p = mixture.predict_proba(values / scale)[:, member].reshape(variances.shape).mean(axis=0)
        members = np.clip(np.asarray(p, dtype=np.float64), 0.0, 1.0)
        search = self.then if AttributeDomain in view.kinds else None
        return Membership(
            members,
            None if search is None else _attribute(search, view, members > 0.5, rng),
            diagnostics={
                "member_variance": float(mixture.means_[member, 0]) * scale,
                "stranger_variance": float(mixture.means_[1 - member, 0]) * scale,
            },
        )


def _attribute(
    search: CosMatching, view: View, chosen: NDArray[np.bool_], rng: np.random.Generator
) -> AttributeValues:
    """Values of the pool's records: searched for those chosen, of the others the prior."""
    pool, values = view.know(CandidatePool), view.know(AttributeDomain).values
    shares = np.full(len(values), 1 / len(values))
    if AttributePrior in view.kinds:
        shares = np.asarray(view.know(AttributePrior).shares, dtype=np.float64)
    probabilities = np.tile(shares, (len(chosen), 1))
    if chosen.any():
        rows = np.flatnonzero(chosen)
        theirs = PublicRecords(pool.records.take(rows)), Labels(pool.labels[rows])
        probabilities[chosen] = search(view.knowing(*theirs), rng).probabilities
    return AttributeValues(probabilities, values, claims=False)


def _last_model(link: Link, recipe: Recipe) -> Array:
    """The model after the client's last step: what it returned, or one step along its gradient."""
    returned = link.returned[-1].astype(np.float64)
    if link.gradients:
        return np.asarray(link.sent[-1].astype(np.float64) - recipe.learning_rate * returned)
    return np.asarray(returned)


def last_layer_variances(recipe: Recipe, theta: Array, inputs: Array, labels: Array) -> Array:
    """Variance (n,) over the entries of each record's gradient by the last layer's weights."""
    last = network(recipe).rows(theta, inputs, labels).output_layer
    a, delta = last.inputs, last.errors
    entries = a.shape[1] * delta.shape[1]
    square = (a**2).sum(axis=1) * (delta**2).sum(axis=1) / entries
    mean = a.sum(axis=1) * delta.sum(axis=1) / entries
    return np.asarray(np.maximum(square - mean**2, 0.0), dtype=np.float64)

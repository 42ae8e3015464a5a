"""Search for the attribute whose gradient looks like the one heard: the papers' baselines.

`l2_lbfgs` follows Zhu et al. 2019 as lyu2021 and driouich2022 use it, `cos_matching` is lyu2021's
Algorithm 1, `gumbel` is the same as driouich2022 runs it: with a grid over which rounds to match,
the configuration of least objective being kept. No truth is involved in that choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.learning.records import encode_each
from overheard.transcript.guess import AttributeValues, certain
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
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
Choice = NDArray[np.int64]
Start: TypeAlias = "tuple[Tensor, ...]"
"""Logits, a row per record: of the attribute's values and, if labels are searched, the classes."""


@dataclass(frozen=True)
class Matching:
    """The gradients heard, and what a candidate attribute would have produced.

    candidates: (K, m, d) inputs under each value; labels: (m,), None where they are unknown too;
    thetas, heard: (T, P).
    """

    model: Any
    loss: str
    candidates: Tensor
    labels: Tensor | None
    thetas: Tensor
    heard: Tensor

    def virtual(self, shares: Tensor, rounds: Tensor, classes: Tensor | None = None) -> Tensor:
        """Mean gradients (len(rounds), P) if record i had the mixture ``shares`` (m, K).

        classes: (m, C), the mixture of classes in place of labels that are unknown.
        """
        from overheard.learning.dense_torch import mean_gradients

        labels = self.labels if classes is None else classes
        assert labels is not None
        inputs = (shares.T[:, :, None] * self.candidates).sum(dim=0)
        return mean_gradients(self.model, self.loss, self.thetas[rounds], inputs, labels)


def matching(view: View) -> Matching:
    """Set up the search from what the adversary knows."""
    import torch

    recipe, link = view.know(LocalTraining).recipe, view.know(Link)
    domain, records = view.know(AttributeDomain), view.know(PublicRecords).records
    candidates = encode_each(recipe.encoding, records, domain.column, domain.values)
    steps = 1.0
    if link.payload == "model":
        steps = recipe.learning_rate * recipe.local_steps(len(records))
    labels = None
    if Labels in view.kinds:
        labels = torch.from_numpy(recipe.target.encode_values(view.know(Labels).values))
    elif not recipe.target.classes:
        raise ChooseAnotherAttack(
            "labels are numbers here and unknown; only classes can be searched along with the "
            "attribute; grant the labels"
        )
    return Matching(
        recipe.dense,
        recipe.loss,
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


def l2_search(problem: Matching, rounds: Rounds, start: Tensor, steps: int) -> tuple[Start, float]:
    """Free shares (m, K - 1) that minimise the relative squared distance, by L-BFGS."""
    import torch

    chosen = torch.from_numpy(rounds)
    heard = problem.heard[chosen]
    size = (heard**2).sum()
    free = start.clone().requires_grad_(True)
    search = torch.optim.LBFGS(
        [free],
        max_iter=steps,
        history_size=20,
        line_search_fn="strong_wolfe",
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
    with torch.no_grad():
        found = shares()
        objective = ((problem.virtual(found, chosen) - heard) ** 2).sum() / size
    return (found,), float(objective)


def cosine_search(
    problem: Matching, rounds: Rounds, start: Start, steps: int, rate: float, temperature: float
) -> tuple[Start, float]:
    """Logits that maximise the summed cosine similarity, by Adam (lyu2021 Algorithm 1).

    start: logits of the values (m, K) and, where labels are unknown, of the classes (m, C): these
    are optimised too (section 5.4).
    """
    import torch

    chosen = torch.from_numpy(rounds)
    heard = problem.heard[chosen]
    logits = tuple(x.clone().requires_grad_(True) for x in start)
    search = torch.optim.Adam(logits, lr=rate)
    similarity = torch.nn.functional.cosine_similarity
    best, least = tuple(x.detach().clone() for x in logits), float("inf")
    for _ in range(steps):
        search.zero_grad()
        shares = torch.softmax(logits[0] / temperature, dim=1)
        classes = torch.softmax(logits[1] / temperature, dim=1) if len(logits) > 1 else None
        virtual = problem.virtual(shares, chosen, classes)
        objective = (1 - similarity(virtual, heard, dim=1)).mean()
        if float(objective.detach()) < least:
            best = tuple(x.detach().clone() for x in logits)
            least = float(objective.detach())
        objective.backward()  # type: ignore[no-untyped-call]
        search.step()
    return best, least


def best_of(searches: Iterable[Callable[[], tuple[Start, float]]]) -> tuple[list[Choice], float]:
    """Run the searches and keep the values of the one with the least objective."""
    outcomes = [search() for search in searches]
    scores, least = min(outcomes, key=lambda outcome: outcome[1])
    return [x.argmax(dim=1).numpy() for x in scores], least


def _answer(choices: list[Choice], view: View, objective: float) -> AttributeValues:
    values = view.know(AttributeDomain).values
    labels = None
    if len(choices) > 1:
        classes = view.know(LocalTraining).recipe.target.classes
        labels = AttributeValues(certain(choices[1], classes), classes, claims=False)
    told = {"objective": objective}
    return AttributeValues(certain(choices[0], values), values, told, labels, claims=False)


@dataclass(frozen=True)
class L2Lbfgs:
    """Searches, by L-BFGS, for attribute values whose gradients are nearest to those heard in
    Euclidean distance, then takes the nearest allowed value.

    Settings: ``last`` and ``step``, the grid over which rounds to match (driouich2022 Table 7);
    ``iterations`` of L-BFGS.
    """

    name: ClassVar[str] = "l2_lbfgs"
    paper: ClassVar[str] = "Zhu et al. 2019"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS
    slow: ClassVar[bool] = True

    last: tuple[int, ...] = (0, 100, 1000)
    step: tuple[int, ...] = (10, 50)
    iterations: int = 200

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        import torch

        problem = matching(view)
        values, people, _ = problem.candidates.shape
        start = torch.from_numpy(rng.normal(size=(people, values - 1)))
        choice, objective = best_of(
            lambda rounds=rounds: l2_search(problem, rounds, start, self.iterations)  # type: ignore[misc]
            for rounds in grid(len(problem.thetas), self.last, self.step)
        )
        return _answer(choice, view, objective)


@dataclass(frozen=True)
class CosMatching:
    """Searches, by Adam, for a distribution over the attribute's values for each record whose
    gradients point in the direction of those heard (lyu2021 Algorithm 1). Where labels are not
    granted, for one over the classes too (section 5.4), from N(0, 1).

    Settings: ``phases``, the choices of rounds to try; ``temperatures``, the softmax parameter's
    grid; ``steps`` and ``rate`` of Adam; ``prior_known`` starts from the population's shares, where
    they are granted, instead of N(0, 1).
    """

    name: ClassVar[str] = "cos_matching"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = UNLABELLED
    uses: ClassVar[frozenset[type[Any]]] = frozenset({Labels, AttributePrior})
    slow: ClassVar[bool] = True

    phases: tuple[str, ...] = ("pre1", "pre5", "gap10")
    temperatures: tuple[float, ...] = (1.0, 0.3)
    steps: int = 100
    rate: float = 0.1
    prior_known: bool = True

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        problem = matching(view)
        start = _start(problem, view, rng, self.prior_known)
        heard = len(problem.thetas)
        options = [(phase(heard, p), t) for p in self.phases for t in self.temperatures]
        choice, objective = best_of(
            lambda o=o: cosine_search(problem, o[0], start, self.steps, self.rate, o[1])  # type: ignore[misc]
            for o in options
        )
        return _answer(choice, view, objective)


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
        choice, objective = best_of(
            lambda r=r: cosine_search(problem, r, start, self.steps, self.rate, self.temperature)  # type: ignore[misc]
            for r in grid(len(problem.thetas), self.last, self.step)
        )
        return _answer(choice, view, objective)


def grid(heard: int, last: tuple[int, ...], step: tuple[int, ...]) -> list[Rounds]:
    """The distinct choices of rounds in the grid."""
    choices = {tuple(every_nth(heard, a, b).tolist()) for a in last for b in step}
    return [np.array(c, dtype=np.int64) for c in sorted(choices, key=lambda c: (len(c), c))]


def _start(problem: Matching, view: View, rng: np.random.Generator, prior_known: bool) -> Start:
    import torch

    values, people, _ = problem.candidates.shape
    if prior_known and AttributePrior in view.kinds:
        shares = np.asarray(view.know(AttributePrior).shares, dtype=np.float64)
        if len(shares) != values:
            raise FixData(f"the attribute prior has {len(shares)} shares for {values} values")
        attribute = torch.from_numpy(np.tile(np.log(np.maximum(shares, 1e-6)), (people, 1)))
    else:
        attribute = torch.from_numpy(rng.normal(size=(people, values)))
    if problem.labels is not None:
        return (attribute,)
    classes = len(view.know(LocalTraining).recipe.target.classes)
    return attribute, torch.from_numpy(rng.normal(size=(people, classes)))

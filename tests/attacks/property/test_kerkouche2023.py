"""kerkouche2023's detectors and four methods against their written-out formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import expit

from overheard.attacks.papers import kerkouche2023 as paper
from overheard.attacks.property import adversary_of
from overheard.errors import ChooseAnotherAttack
from overheard.questions.property import f1
from overheard.transcript.knowledge import Sums
from overheard.transcript.view import View, launch

pytestmark = pytest.mark.slow

Asked = Callable[..., tuple[View, np.ndarray]]
FEW = paper.Options(shadows=200)
METHODS = (paper.GradientDisaggregation, paper.Ols, paper.Ridge, paper.Prolin)


def test_all_find_poisoners_with_many_rounds(asked: Asked) -> None:
    view, positive = asked("inversion", rounds=80, batch_size=4)
    for method in METHODS:
        guess = launch(method(FEW), view, 0)
        assert f1(guess.choice(), positive) >= 0.5, method.name  # a guess: 0.26


def test_detectors_are_made_once(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four methods share them, and it does not matter who asks first."""
    view, _ = asked("inversion", rounds=6)
    calls = []
    real = paper.detect
    monkeypatch.setattr(paper, "detect", lambda *a: calls.append(1) or real(*a))
    first = [launch(m(FEW), view, 0).probabilities for m in METHODS]
    assert len(calls) == 1
    view.know(Sums).derived.clear()
    second = [launch(m(FEW), view, 0).probabilities for m in reversed(METHODS)]
    for one, other in zip(first, reversed(second), strict=True):
        np.testing.assert_array_equal(one, other)


def test_formulas(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """BASELINE on written-out mean updates; OLS and REG by their normal equations."""
    view, _ = asked("inversion", rounds=25, clients=10)
    made = []
    real = paper.train_detector

    def kept(*args):
        made.append(real(*args))
        return made[-1]

    monkeypatch.setattr(paper, "train_detector", kept)
    sums = view.know(Sums)
    adversary = adversary_of(view)
    known = paper.detect([paper.detector(adversary, one, FEW) for one in sums], sums)
    a, b = sums.participation, np.array([one.total for one in sums])
    mean_updates = np.linalg.pinv(a) @ b
    confidence = np.mean(
        [expit(mean_updates @ d.weights.astype(float) + d.intercept) for d in made], axis=0
    )
    np.testing.assert_allclose(paper.baseline(known), confidence, atol=1e-4)
    g = np.array(
        [d.weights @ s + d.intercept * m for d, s, m in zip(made, b, a.sum(1), strict=True)]
    )
    np.testing.assert_allclose(paper.ols(known), expit(np.linalg.pinv(a) @ g), atol=1e-4)
    v = np.diag([1 - d.overlap for d in made])
    x = np.linalg.solve(a.T @ v @ a + 5 * np.eye(10), a.T @ v @ g)
    np.testing.assert_allclose(paper.reg(known), expit(x), atol=1e-4)


@pytest.mark.parametrize("kind", ["membership", "inversion", "ascent"])
def test_one_step_is_the_mean_of_the_records_own_gradients(asked: Asked, kind: str) -> None:
    """As clients that train, by whom the gradient of every record is made anew."""
    view, _ = asked(kind, rounds=3)
    adversary, theta = adversary_of(view), view.know(Sums)[0].sent
    updates, has = paper.shadow_updates(adversary, theta, 60, np.random.default_rng(0))
    assert has.sum() == 30
    trained = paper._updates(adversary, theta, has, np.random.default_rng(0))
    np.testing.assert_allclose(updates, trained, atol=1e-6)


def test_under_dropout_they_vary_as_much_as_those_of_clients(asked: Asked) -> None:
    view, _ = asked("membership", {"name": "lenet"}, rounds=2)
    adversary, theta = adversary_of(view), view.know(Sums)[0].sent
    has = np.arange(600) % 2 == 1
    fast = paper._means(adversary, theta, has, np.random.default_rng(0), 4)
    slow = paper._updates(adversary, theta, has, np.random.default_rng(1))
    for who in (has, ~has):
        spread = [made[who].var(axis=0).sum() for made in (fast, slow)]
        assert spread[0] == pytest.approx(spread[1], rel=0.1)
        apart = fast[who].mean(axis=0) - slow[who].mean(axis=0)
        assert (apart**2).sum() < 3 * 2 * spread[1] / who.sum()


def test_free_riders_are_not_the_papers(asked: Asked) -> None:
    view, _ = asked("free-rider", rounds=4)
    with pytest.raises(ChooseAnotherAttack, match="matched_filter"):
        launch(paper.Prolin(FEW), view, 0)


def standardised(updates, has, settings, rng):
    """The slow twin: standardise every number, then plain SGD; weights of the raw numbers."""
    fitted = np.arange(len(has) * 4 // 5)
    mean, sd = updates[fitted].mean(axis=0), updates[fitted].std(axis=0) + 1e-7
    x, w, b = (updates - mean) / sd, np.zeros(updates.shape[1]), 0.0
    for _ in range(settings.epochs):
        shuffled = rng.permutation(fitted)
        for begin in range(0, len(shuffled), settings.batch):
            batch = shuffled[begin : begin + settings.batch]
            error = expit(x[batch] @ w + b) - has[batch]
            w = w - settings.rate * error @ x[batch] / len(batch)
            b = b - settings.rate * error.mean()
    return w / sd, b - mean @ (w / sd)


def test_each_coordinate_is_standardised() -> None:
    """The property shows in a coordinate a thousand times smaller than the others, and one that
    never moves."""
    rng = np.random.default_rng(0)
    has = np.arange(600) % 2 == 1
    updates = (rng.normal(size=(600, 30)) * 0.01 + 0.02).astype(np.float32)
    updates[:, 3] = (1e-5 * (rng.normal(size=600) + 3.0 * has)).astype(np.float32)
    updates[:, 4] = 0.5
    found = paper.train_detector(updates.copy(), has, paper.Options(), np.random.default_rng(1))
    assert found.overlap < 0.3
    weights, intercept = standardised(
        updates.astype(float), has, paper.Options(), np.random.default_rng(1)
    )
    np.testing.assert_allclose(found.weights, weights, rtol=1e-3, atol=1e-5 * weights.max())
    sd = updates[:480].std(axis=0) + 1e-7
    assert found.length == pytest.approx(np.linalg.norm(weights * sd), rel=1e-3)
    assert found.intercept == pytest.approx(intercept, rel=1e-3, abs=1e-3)


def test_who_was_not_observed_is_not_accused() -> None:
    """One half but for rounding, which is another on another machine."""
    p = np.array([0.5, 0.5 + 1e-15, 0.5 - 1e-15, 0.51, 0.0, 1.0])
    assert paper.above_half(p).tolist() == [False, False, False, True, False, True]


def seen(sums, weights, plus, wide, minus, narrow, there) -> paper.Detected:
    """Detectors of these distributions and weights, whose features of the sums are these."""
    none = np.zeros(len(sums))
    return paper.Detected(
        np.diag(sums),
        paper.Detector(none, none, plus, wide, minus, narrow, 1 - weights, none),
        there,
    )


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_the_three_losses(seed: int) -> None:
    """The paper's losses written down as they stand, differentiated by torch."""
    rng = np.random.default_rng(seed)
    rounds, clients = 12, 6
    there = rng.random((rounds, clients)) < 0.5
    there[:, 5] = False
    made = seen(
        rng.normal(size=rounds), rng.uniform(0.2, 1, rounds), rng.normal(1, 0.3, rounds),
        rng.uniform(0.5, 3, rounds), rng.normal(-1, 0.3, rounds), rng.uniform(0.5, 3, rounds),
        there.astype(float),
    )  # fmt: skip
    expected = rng.normal(size=clients)
    problem, d = paper.Losses(made, expected), made.detectors
    unit = np.sqrt((d.variance_with + d.variance_without) / 2).mean()
    tau = torch.tensor(rng.uniform(0.1, 0.9, clients), requires_grad=True)
    start = np.where(there, rng.normal(size=(rounds, clients)), 0.0)
    x = torch.tensor(start, requires_grad=True)  # in units of ``unit``
    feature = x * unit
    dense = [
        torch.distributions.Normal(*(torch.tensor(v)[:, None] for v in (mean, np.sqrt(variance))))
        for mean, variance in (
            (d.mean_with, d.variance_with),
            (d.mean_without, d.variance_without),
        )
    ]
    mask = torch.tensor(there)
    plus, minus = (torch.where(mask, d.log_prob(feature), 0.0).sum(0) for d in dense)
    likelihood = -torch.logaddexp(torch.log(tau) + plus, torch.log(1 - tau) + minus).sum()
    took = torch.tensor(np.maximum(there.sum(axis=0), 1))
    level = ((feature.sum(0) / took - torch.tensor(expected)) ** 2).sum() / unit**2
    missing = feature.sum(1) - torch.tensor(made.aggregates)
    whole = (torch.tensor(1 - d.overlap) * missing**2).sum() / unit**2
    by_tau, by_x = problem.gradients(tau.detach().numpy(), start)
    for loss, found in zip((likelihood, level, whole), by_x, strict=True):
        (slope,) = torch.autograd.grad(loss, x, retain_graph=True)
        np.testing.assert_allclose(found, np.where(there, slope.numpy(), 0.0), atol=1e-9)
    (slope,) = torch.autograd.grad(likelihood, tau)
    np.testing.assert_allclose(by_tau, slope.numpy(), atol=1e-9)


def test_one_loss_is_adam() -> None:
    """MTAdam with a single loss takes Adam's steps."""
    rng = np.random.default_rng(3)
    memory, m, v = paper.MTAdam(1, (4,), paper.Options(step_size=0.1)), np.zeros(4), np.zeros(4)
    for turn in range(1, 6):
        gradient = rng.normal(size=4)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        step = -0.1 * (m / (1 - 0.9**turn)) / (np.sqrt(v / (1 - 0.999**turn)) + 1e-8)
        np.testing.assert_allclose(memory.step([gradient]), step)

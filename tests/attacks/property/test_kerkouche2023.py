"""kerkouche2023's detectors and four methods against their written-out formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit

from overheard.attacks.papers import kerkouche2023
from overheard.attacks.papers.kerkouche2023 import (
    GradientDisaggregation,
    Ols,
    Options,
    Prolin,
    Ridge,
    above_half,
    baseline,
    detect,
    ols,
    reg,
    shadow_updates,
    train_detector,
)
from overheard.attacks.property import adversary_of
from overheard.errors import ChooseAnotherAttack
from overheard.programs.networks import network
from overheard.questions.property import f1
from overheard.transcript.knowledge import Sums
from overheard.transcript.view import View, launch

pytestmark = pytest.mark.slow

Asked = Callable[..., tuple[View, np.ndarray]]
FEW = Options(shadows=200)
METHODS = (GradientDisaggregation, Ols, Ridge, Prolin)


def test_all_find_poisoners_with_many_rounds(asked: Asked) -> None:
    view, positive = asked("inversion", rounds=80, batch_size=4)
    for method in METHODS:
        guess = launch(method(FEW), view, 0)
        assert f1(guess.choice(), positive) >= 0.5, method.name  # a guess: 0.26


def test_detectors_are_made_once(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four methods share them, and it does not matter who asks first."""
    view, _ = asked("inversion", rounds=6)
    calls = []
    real = kerkouche2023.detect
    monkeypatch.setattr(kerkouche2023, "detect", lambda *a: calls.append(1) or real(*a))
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
    real = kerkouche2023.train_detector

    def kept(*args):
        made.append(real(*args))
        return made[-1]

    monkeypatch.setattr(kerkouche2023, "train_detector", kept)
    sums = view.know(Sums)
    told = detect(adversary_of(view), sums, FEW)
    a, b = sums.participation, np.array([one.total for one in sums])
    mean_updates = np.linalg.pinv(a) @ b
    confidence = np.mean(
        [expit(mean_updates @ d.weights.astype(float) + d.intercept) for d in made], axis=0
    )
    np.testing.assert_allclose(baseline(told), confidence, atol=1e-4)
    g = np.array(
        [d.weights @ s + d.intercept * m for d, s, m in zip(made, b, a.sum(1), strict=True)]
    )
    np.testing.assert_allclose(ols(told), expit(np.linalg.pinv(a) @ g), atol=1e-4)
    v = np.diag([1 - d.overlap for d in made])
    x = np.linalg.solve(a.T @ v @ a + 5 * np.eye(10), a.T @ v @ g)
    np.testing.assert_allclose(reg(told), expit(x), atol=1e-4)


def test_shadow_updates_are_those_of_clients(asked: Asked) -> None:
    """One full batch: its mean gradient times the rate; the target is in every other."""
    view, _ = asked("membership", rounds=3)
    adversary = adversary_of(view)
    theta = view.know(Sums)[0].sent
    updates, has = shadow_updates(adversary, theta, 40, np.random.default_rng(0))
    assert has.sum() == 20
    recipe, target = adversary.recipe, adversary.targets
    assert target is not None
    pool = (
        network(recipe)
        .rows(theta.astype(float), adversary.auxiliary.inputs, adversary.auxiliary.labels)
        .explicit()
    )
    rows = np.random.default_rng(0).random((40, len(adversary.auxiliary)))
    rows = rows.argpartition(adversary.shard - 1, axis=1)[:, : adversary.shard]
    mine = network(recipe).rows(theta.astype(float), target.inputs, target.labels).explicit()
    for number in range(4):
        gradients = pool[rows[number]].copy()
        if has[number]:
            gradients[0] = mine[0]
        expected = recipe.learning_rate * gradients.mean(axis=0)
        np.testing.assert_allclose(updates[number], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["inversion", "ascent"])
def test_shadow_poisoners(asked: Asked, kind: str) -> None:
    """Negated, or uphill: with one step both point against the honest ones."""
    view, _ = asked(kind, rounds=3)
    adversary, theta = adversary_of(view), view.know(Sums)[0].sent
    updates, has = shadow_updates(adversary, theta, 60, np.random.default_rng(0))
    mean = updates[~has].mean(axis=0)
    assert (updates[~has] @ mean > 0).mean() > 0.9
    assert (updates[has] @ mean < 0).mean() > 0.9
    np.testing.assert_allclose(updates[has].mean(axis=0), -mean, atol=3e-3)


def test_free_riders_are_not_the_papers(asked: Asked) -> None:
    view, _ = asked("free-rider", rounds=4)
    with pytest.raises(ChooseAnotherAttack, match="matched_filter"):
        launch(Prolin(FEW), view, 0)


def standardised(updates, has, settings, rng):
    """The slow twin: standardise every number, then plain SGD; weights of the raw numbers."""
    order = rng.permutation(len(has))
    fitted = order[: len(has) * 4 // 5]
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
    found = train_detector(updates, has, Options(), np.random.default_rng(1))
    assert found.overlap < 0.3
    weights, intercept = standardised(
        updates.astype(float), has, Options(), np.random.default_rng(1)
    )
    np.testing.assert_allclose(found.weights, weights, rtol=1e-3, atol=1e-5 * weights.max())
    assert found.intercept == pytest.approx(intercept, rel=1e-3, abs=1e-3)


def test_who_was_not_heard_of_is_not_accused() -> None:
    """One half but for rounding, which is another on another machine."""
    p = np.array([0.5, 0.5 + 1e-15, 0.5 - 1e-15, 0.51, 0.0, 1.0])
    assert above_half(p).tolist() == [False, False, False, True, False, True]

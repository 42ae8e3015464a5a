"""Attributes from linear least squares: driouich2022 Algorithm 3 and the moments decoder."""

from __future__ import annotations

import numpy as np
import pytest
from federations import guessed, view_of
from generated import with_columns
from hypothesis import given
from hypothesis import strategies as st
from trainings import recipe_of

from experiments.papers.driouich2022.bound import promised
from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.papers.driouich2022 import (
    ModelBasedGlobal,
    ModelBasedLastReturned,
    ModelBasedLinear,
    ModelBasedLocal,
    algorithm_4,
)
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.evaluation.baselines import majority_share
from overheard.evaluation.metrics import attribute_hits, local_optimum
from overheard.programs.networks import network
from overheard.programs.recipe import Dense
from overheard.programs.records import Records
from overheard.transcript.knowledge import (
    AttributeDomain,
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.target import attribute
from overheard.transcript.view import View, launch

pytestmark = pytest.mark.slow


def test_categorical_attribute_and_scaled_values(federate):
    """Three values (one-hot), and two values that are not 0 and 1."""
    rng = np.random.default_rng(3)

    def three(dataset):
        kinds = np.array(["a", "b", "c"])[rng.integers(0, 3, len(dataset.records))]
        y = dataset.records["y"] + 3.0 * (kinds == "b") - 3.0 * (kinds == "c")
        return with_columns(dataset, {"sensitive": ("kind",)}, kind=kinds, y=y)

    recording = federate(change=three)
    secret = recording.truth()["0"]["kind"]
    view = view_of(recording, "attribute.kind")
    guess = launch(MaxEntropy(), view, 0)
    assert guess.values == ("a", "b", "c")
    assert attribute_hits(guess, secret).mean() > 0.7
    with pytest.raises(ChooseAnotherAttack, match="3 values"):
        launch(ModelBasedLinear(), view, 0)

    def shifted(dataset):
        return with_columns(dataset, s=np.where(dataset.records["s"] == 1, 5.0, 2.0))

    plain, moved = federate(rounds=60), federate(change=shifted, rounds=60, learning_rate=0.03)
    for attack in (MaxEntropy(), ModelBasedLinear()):
        hits = [attribute_hits(*guessed(attack, run)).mean() for run in (plain, moved)]
        assert hits[1] == pytest.approx(hits[0], abs=0.03)


def exact_view(public, secret, labels, rounds=None, seed=0):
    """What a listener hears of one client with these records: float64, one full-batch step."""
    d = public.shape[1] + 1
    asked = f"x{d - 1}"
    recipe = recipe_of(Dense(inputs=d, bias=False), learning_rate=0.05, precision="float64")
    table = {f"x{j}": column for j, column in enumerate(public.T)}
    inputs = np.column_stack([public, secret])
    sent = np.random.default_rng(seed).normal(size=(rounds or d + 3, d))
    gradient = np.stack([network(recipe).rows(t, inputs, labels).explicit().mean(0) for t in sent])
    numbers = np.arange(len(sent))
    link = Messages("model", numbers, sent, sent - 0.05 * gradient, np.full(len(sent), len(labels)))
    knowledge = {
        Messages: link,
        ClientProgram: ClientProgram(recipe),
        PublicRecords: PublicRecords(Records(table)),
        Labels: Labels(labels),
        AttributeDomain: AttributeDomain(asked, (0.0, 1.0)),
    }
    truth = Records({**table, asked: secret, "y": labels})
    return View("c", attribute(asked), "eavesdropper", knowledge), recipe, truth


@given(
    seed=st.integers(0, 10_000),
    people=st.integers(12, 60),
    columns=st.integers(1, 5),
    noise=st.floats(0.01, 3.0),
    effect=st.floats(-3.0, 3.0),
    share=st.floats(0.1, 0.9),
)
def test_proposition_3_is_never_violated(seed, people, columns, noise, effect, share):
    """driouich2022: Algorithm 3 is at least as accurate as its bound, whatever the data."""
    rng = np.random.default_rng(seed)
    public = rng.normal(size=(people, columns))
    secret = (rng.random(people) < share).astype(float)
    secret[:2] = 0.0, 1.0
    labels = public @ rng.normal(size=columns) + effect * secret + noise * rng.normal(size=people)
    view, recipe, truth = exact_view(public, secret, labels, seed=seed)
    _, least = promised(recipe, local_optimum(recipe, truth), truth, f"x{columns}")
    guess = launch(ModelBasedLinear(), view, 0)
    assert guess.diagnostics["share_of_ones"] == pytest.approx(secret.mean(), abs=1e-6)
    assert attribute_hits(guess, secret).mean() >= least - 1e-9


@pytest.mark.parametrize(
    ("attack", "model_of"),
    [
        (ModelBasedGlobal(), lambda link, truth: link.sent[-1]),
        (ModelBasedLastReturned(), lambda link, truth: link.returned[-1]),
        (ModelBasedLocal(), lambda link, truth: np.linalg.lstsq(*truth, rcond=None)[0]),
    ],
)
def test_every_model_is_attacked_by_algorithm_3(rng, attack, model_of):
    """driouich2022 section 5: "the same procedure", with another model for the local one."""
    public = rng.normal(size=(50, 3))
    secret = (rng.random(50) < 0.3).astype(float)
    labels = public @ rng.normal(size=3) + 0.4 * secret + rng.normal(size=50)
    view, _, _ = exact_view(public, secret, labels)
    theta = model_of(view.know(Messages), (np.column_stack([public, secret]), labels))
    guess = launch(attack, view, 0)
    solved = (labels - public @ theta[:3]) / theta[3]
    ones = np.argsort(solved)[::-1][: int(secret.sum())]
    assert sorted(np.flatnonzero(guess.choice())) == sorted(ones)
    # which is not what Algorithm 4 says: it does not know how many ones there are
    assert algorithm_4(view, theta).choice().sum() != secret.sum()


@pytest.mark.parametrize("training", [{"epochs": 3}, {"batch_size": 16}, {"rounds": 1}])
def test_algorithm_4_where_the_ones_cannot_be_counted(federate, training):
    """Several local steps, mini-batches, too few messages."""
    recording = federate(**training)
    view = view_of(recording)
    guess = launch(ModelBasedGlobal(), view, 0)
    theta = view.know(Messages).sent[-1].astype(float)
    assert np.array_equal(guess.choice(), algorithm_4(view, theta).choice())


@pytest.mark.parametrize("attack", [ModelBasedLinear(), MaxEntropy()])
@given(seed=st.integers(0, 1000), half=st.integers(6, 25))
def test_proposition_1_nobody_beats_a_coin_on_the_pair(attack, seed, half):
    """Two data sets with opposite secrets and the same messages: at most 50% on average."""
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(half, 2))
    public = np.vstack([block, block])
    first, second = rng.normal(size=half), rng.normal(size=half)
    labels = np.concatenate([first, second - second.mean() + first.mean()])
    secret = np.concatenate([np.ones(half), np.zeros(half)])
    accuracies = []
    for s in (secret, 1 - secret):
        view, _, _ = exact_view(public, s, labels, seed=seed)
        accuracies.append(attribute_hits(launch(attack, view, 0), s).mean())
    assert np.mean(accuracies) <= 0.5 + 1e-9


def test_a_number_that_the_updates_hardly_tell_is_guessed_by_its_prior(federate):
    """Half of the numbers are zero: no bin is chosen against the prior without evidence."""

    def number(dataset):
        rng, rows = np.random.default_rng(seed), len(dataset.records)
        z = np.where(rng.random(rows) < 0.5, 0.0, rng.gamma(1.0, 2.0, rows))
        y = dataset.records["y"] + 0.2 * z
        return with_columns(dataset, {"sensitive": ("z",)}, z=z, y=y)

    for seed in range(3):
        recording = federate(change=number, seed=seed)
        guess, truth = guessed(MaxEntropy(), recording, "z")
        if "flag" in guess.diagnostics:  # not scored as a leak
            continue
        hits = attribute_hits(guess, truth).mean()
        assert hits >= majority_share(truth, guess.values) - 0.02
        assert guess.probabilities.max(axis=1).mean() < hits + 0.15


def test_an_attribute_that_anybody_can_compute_is_refused(federate):
    def copy(dataset):
        return with_columns(dataset, give_away=2 * dataset.records["s"] - dataset.records["x1"])

    with pytest.raises(FixData, match="linear function of the public columns"):
        federate(change=copy)

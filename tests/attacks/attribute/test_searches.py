"""The papers' searches: they find what they can find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from overheard.attacks.papers import lyu2021 as gm
from overheard.attacks.papers.driouich2022 import (
    ModelBasedGlobal,
    ModelBasedLastReturned,
    ModelBasedLocal,
    best_values,
    squared_errors,
)
from overheard.errors import FixConfig
from overheard.evaluation.metrics import attribute_hits, local_optimum
from overheard.programs.dense import predict
from overheard.programs.recipe import Dense
from overheard.transcript.observe import observe, recipe_of
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch


@pytest.mark.parametrize(
    "attack",
    [
        gm.L2Lbfgs(last=(0, 30), step=(10,)),
        gm.CosMatching(phases=("pre1", "pre5"), steps=150),
        gm.Gumbel(last=(0, 30), step=(10,), steps=150),
    ],
)
def test_searches_find_the_attribute_of_few_records(federate, attack):
    """20 people, a network with more equations than people: the papers' easy case."""
    recording = federate({"name": "mlp", "hidden": [32]}, people=20, rounds=40, participation=1.0)
    secret = recording.truth()["0"]["s"]
    guess = launch(attack, observe(recording, EAVESDROPPER, attribute("s"), "0"), 0)
    assert attribute_hits(guess, secret).mean() >= 0.9


@pytest.mark.parametrize(
    ("attack", "few"),
    [
        (gm.L2Lbfgs(last=(0, 100), step=(10,), iterations=40), {"last": (0,)}),
        (gm.CosMatching(phases=("pre1", "gap10"), steps=60), {"phases": ("pre1",)}),
        (gm.Gumbel(last=(0, 100), step=(10,), steps=60), {"last": (0,)}),
    ],
)
def test_one_round_does_not_win_because_it_is_matched_easily(federate, attack, few):
    """100 people, a small network: one gradient is matched by wrong people, eleven are not."""
    model = {"name": "mlp", "hidden": [8]}
    recording = federate(model, people=100, columns=5, rounds=120, participation=1.0)
    whole, one = [], []
    for client in recording.clients[:3]:
        view, secret = observe(recording, EAVESDROPPER, attribute("s"), client), recording.truth()
        for tried, hits in ((attack, whole), (replace(attack, **few), one)):
            hits.append(attribute_hits(launch(tried, view, 0), secret[client]["s"]).mean())
    assert np.mean(whole) >= np.mean(one) + 0.05


@pytest.mark.parametrize("distances", [gm.squared_distances, gm.cosine_distances])
def test_all_are_compared_on_the_same_rounds(federate, distances):
    """The truth comes nearest on all rounds, in whatever order and beside whatever was found."""
    import torch

    recording = federate({"name": "mlp", "hidden": [8]}, rounds=30, participation=1.0)
    problem = gm.matching(observe(recording, EAVESDROPPER, attribute("s"), "0"))
    truth = torch.from_numpy(np.eye(2)[recording.truth()["0"]["s"].astype(int)])
    wrong = 1 - truth
    options = [np.array([0]), np.array([0, 10, 20])]
    best, least = gm.best_of(problem, options, [(wrong,), (truth,), (0.9 * truth,)], distances)
    assert np.array_equal(best[0], truth.numpy())
    rounds = torch.tensor([0, 10, 20])
    assert least == pytest.approx(distances(problem, (truth,), rounds).mean().item())
    assert least < distances(problem, (wrong,), rounds).mean().item()


def test_rounds_of_the_papers():
    assert gm.phase(100, "pre1").tolist() == [0]
    assert gm.phase(100, "gap10").tolist() == [9, 19, 29, 39, 49]
    assert gm.phase(100, "last5").tolist() == [95, 96, 97, 98, 99]
    assert gm.phase(25, "gap10").tolist() == [9, 19]
    assert gm.every_nth(1000, 300, 100).tolist() == [0, 100, 200, 300]
    with pytest.raises(FixConfig, match="unknown phase"):
        gm.phase(10, "middle")
    # a grid without repetitions, for transcripts shorter than it
    assert [r.tolist() for r in gm.grid(5, (0, 100, 1000), (10, 2))] == [[0], [0, 2, 4]]


@pytest.mark.parametrize("name", ["linear", "logistic", "mlp"])
def test_algorithm_4_matches_a_loop_over_records(federate, name):
    model = {"name": name, "hidden": [4]} if name == "mlp" else {"name": name}
    recording = federate(model, rounds=5)
    recipe, records = recipe_of(recording), recording.truth()["0"]
    theta = np.random.default_rng(1).normal(size=recipe.model.size)
    view = observe(recording, EAVESDROPPER, attribute("s"), "0")
    choice = best_values(view, theta).choice()
    labels = recipe.target.encode(records)
    from overheard.programs.records import encode

    for i in range(len(records)):
        errors = []
        for value in (0.0, 1.0):
            x = encode(recipe.encoding, records.take(np.array([i])), {"s": value})
            out = predict(recipe.model, theta, x)[0, 0]
            out = 1 / (1 + np.exp(-out)) if name == "logistic" else out
            errors.append((out - labels[i]) ** 2)
        assert choice[i] == int(errors[1] < errors[0])


def test_squared_errors_of_several_classes(federate, rng):
    recording = federate({"name": "logistic"}, rounds=2)
    recipe = recipe_of(recording)
    model = Dense(inputs=recipe.model.inputs, outputs=3)
    softmax = recipe.model_copy(update={"model": model})
    theta, x = rng.normal(size=model.size), rng.normal(size=(2, 5, model.inputs))
    labels = np.array([0.0, 1.0, 2.0, 1.0, 0.0])
    out = predict(model, theta, x)
    p = np.exp(out) / np.exp(out).sum(-1, keepdims=True)
    assert squared_errors(softmax, theta, x, labels) == pytest.approx(
        ((p - np.eye(3)[labels.astype(int)]) ** 2).sum(-1)
    )


def test_the_local_model_serves_the_attack_best(federate):
    """On data that fit the model well, the reconstructed local model beats the global one."""
    recording = federate(rounds=60, clients=6)
    recipe = recipe_of(recording)
    hits = {}
    for attack in (ModelBasedLocal(), ModelBasedLastReturned(), ModelBasedGlobal()):
        scores = []
        for client in recording.clients:
            view = observe(recording, EAVESDROPPER, attribute("s"), client)
            guess = launch(attack, view, 0)
            scores.append(attribute_hits(guess, recording.truth()[client]["s"]).mean())
        hits[attack.name] = np.mean(scores)
    optimum = local_optimum(recipe, recording.truth()["0"])
    assert optimum.shape == (recipe.model.size,)
    assert hits["model_based_local"] >= hits["model_based_global"] - 0.01
    assert hits["model_based_local"] > 0.75

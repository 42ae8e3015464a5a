"""Clients with momentum, Adam, any layers: decoded, and known when it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from federations import ADAM, FAMILIES, MOMENTUM, accuracy, observed
from torch import nn
from trainings import trusted_module

from overheard import Recording, View, attacks, launch
from overheard.attacks import several_steps
from overheard.attacks.attribute import MaxEntropy
from overheard.data.dataset import Dataset
from overheard.decoding.max_entropy import Posterior
from overheard.errors import ChooseAnotherAttack
from overheard.programs.recipe import Sgd
from overheard.programs.records import Records
from overheard.transcript.knowledge import ClientProgram, PublicRecords

pytestmark = pytest.mark.slow

NETWORK = {"name": "mlp", "hidden": [32]}
SMALL = {"clients": 2, "people": 40, "columns": 8, "rounds": 2, "participation": 1.0}
Federate = Callable[..., Recording]
ATTRIBUTE = FAMILIES["attributes, linear"]


def decoded(view: View, name: str = "max_entropy") -> Any:
    """No order is guessed: test_order_search.py is about that."""
    attack = attacks.attack_named(name)
    return launch(replace(attack, seeds=0) if name == "max_entropy" else attack, view, 0)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(9, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 1))


def batch_normed() -> nn.Module:
    return nn.Sequential(nn.Linear(9, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 1))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(9, 24), nn.Tanh(), nn.Dropout(0.5), nn.Linear(24, 1))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], dict[str, Any]]:
    """A model made by a function of this file."""
    return lambda make: {"name": "module", "factory": trusted_module(monkeypatch, make, 9).factory}


def adam(rate: float, **settings: Any) -> dict[str, Any]:
    return {"optimiser": {"name": "adam", **settings}, "learning_rate": rate}


DECOUPLED = {"weight_decay": 0.1, "decoupled": True}
FEW_EQUATIONS = {"people": 100, "columns": 6, "rounds": 1, "epochs": 5, "learning_rate": 0.2}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        *(
            (NETWORK, settings)
            for settings in (
                {"epochs": 5},
                {"epochs": 5, "algorithm": "fedprox", "proximal": 0.5},
                {**MOMENTUM, "epochs": 4},
                {**ADAM, "epochs": 5},
                {**adam(0.01, **DECOUPLED), "epochs": 3},
                {"clip_norm": 0.5, "epochs": 3},
                # by how little one step falls short of the rate says how large the gradient is
                adam(0.005, eps=1e-5),
                adam(0.005, eps=1e-5, weight_decay=0.1),
                adam(0.005, eps=1e-5, **DECOUPLED),
            )
        ),
        (batch_normed, {}),
        (batch_normed, {**MOMENTUM, "epochs": 2}),
        # too small a network to tell: that every record is one of two candidates is needed too
        ({"name": "mlp", "hidden": [8]}, FEW_EQUATIONS),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_without_chance_the_answer_is_proven(
    model: Any, settings: dict[str, Any], own: Any, federate: Federate
) -> None:
    model = own(model) if callable(model) else model
    recording = federate(model, **{**SMALL, **settings})
    view = observed(ATTRIBUTE, recording)
    guess = decoded(view)
    assert guess.diagnostics["method"] == "replay"
    assert guess.diagnostics["proven"] == "True"
    assert "flag" not in guess.diagnostics
    assert accuracy(recording, view, guess) == 1.0


def couples(dataset: Dataset) -> Dataset:
    """Everybody is somebody else's equal in everything but the secret."""
    columns = {name: values.copy() for name, values in dataset.records.columns.items()}
    for client in np.unique(columns[dataset.client]):
        mine = np.flatnonzero(columns[dataset.client] == client)
        for values in columns.values():
            values[mine] = np.repeat(values[mine[::2]], 2)
        columns["s"][mine] = np.tile([0, 1], len(mine) // 2)
    return replace(dataset, records=Records(columns))


def test_people_alike_with_different_values_are_counted(federate: Federate) -> None:
    """Half and half in every couple: nobody's likeliest value is an answer that can be replayed."""
    recording = federate(NETWORK, change=couples, **SMALL, **{**ADAM, "epochs": 5})
    guess = decoded(observed(ATTRIBUTE, recording))
    assert guess.diagnostics["method"] == "replay"
    assert guess.probabilities == pytest.approx(0.5)


def test_one_full_step_of_adam_is_answered_as_surely_as_rightly(federate: Federate) -> None:
    """Of large gradients it is hardly more than signs: no record is called certain wrongly, and of
    several clients' records as many are right as the answers say."""
    sure, right = [], []
    for seed in range(3):
        recording = federate(NETWORK, **SMALL, **ADAM, seed=seed)
        view = observed(ATTRIBUTE, recording)
        guess = decoded(view)
        sure.append(guess.probabilities.max(axis=1))
        right.append(guess.choice() == recording.truth()[view.client]["s"])
    confidence, hits = np.concatenate(sure), np.concatenate(right)
    assert hits[confidence > 0.99].all()
    assert abs(hits.mean() - confidence.mean()) < 0.1


@pytest.mark.parametrize(("simulated", "used"), [(0.99, 5), (0.8, 7)])
def test_further_rounds_are_used_where_few_are_vague(
    simulated: float, used: int, monkeypatch: pytest.MonkeyPatch, federate: Federate
) -> None:
    def answered(client: Any, rng: Any) -> Posterior:
        used = len(client.messages)
        notes = {"simulated_accuracy": simulated, "reduced_chi2": 1.0, "rounds_used": used}
        return Posterior(client.prior, 1.0, 1, 1, 1, True, "direct_response", "", notes)

    monkeypatch.setattr(several_steps, "by_simulation", answered)
    recording = federate(NETWORK, **{**SMALL, "rounds": 7}, batch_size=8, **ADAM)
    view = observed(ATTRIBUTE, recording)
    guess = launch(MaxEntropy(seeds=0), view, 0)
    assert guess.diagnostics["rounds_used"] == used


def known(view: View, **changes: Any) -> View:
    recipe = view.know(ClientProgram).recipe.model_copy(update=changes)
    return view.knowing(ClientProgram(recipe))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({**ADAM, "batch_size": 8}, {"optimiser": Sgd(momentum=0.9)}),
        ({**MOMENTUM, "batch_size": 8}, {"learning_rate": 0.015}),
        ({**MOMENTUM, "batch_size": 8}, {"batch_size": 16}),
        ({**ADAM, "batch_size": 8}, {"epochs": 2}),
        ({**ADAM, "epochs": 2}, {"optimiser": Sgd(momentum=0.5), "learning_rate": 0.1}),
    ],
    ids=str,
)
def test_another_training_than_stated_is_flagged(
    settings: dict[str, Any], named: dict[str, Any], federate: Federate
) -> None:
    view = observed(ATTRIBUTE, federate(NETWORK, **SMALL, **settings))
    guess = decoded(known(view, **named))
    poor = "poor fit" if "batch_size" in settings else "not solved"
    assert guess.diagnostics["flag"].startswith(poor)
    assert guess.probabilities.max() < 0.99  # what is flagged calls no record certain


def test_declared_noise_on_mini_batches_is_no_other_training(federate: Federate) -> None:
    """It belongs to what simulated clients send: the answer is vaguer and no less calibrated."""
    confidence, right = [], []
    for seed in range(6):
        defence = [{"name": "gaussian", "sd": 0.003}]
        settings = {**SMALL, **MOMENTUM, "rounds": 1, "batch_size": 8, "seed": seed}
        recording = federate(NETWORK, defence=defence, **settings)
        view = observed(ATTRIBUTE, recording)
        guess = decoded(view)
        assert "flag" not in guess.diagnostics
        confidence.append(float(guess.probabilities.max(axis=1).mean()))
        right.append(accuracy(recording, view, guess))
    assert np.mean(right) > 0.7
    assert abs(np.mean(confidence) - np.mean(right)) < 0.1


def test_other_records_than_the_clients_are_flagged(federate: Federate) -> None:
    view = observed(ATTRIBUTE, federate(NETWORK, **SMALL, batch_size=8, **MOMENTUM))
    records = view.know(PublicRecords).records
    order = np.roll(np.arange(len(records)), 1)
    assert decoded(view.knowing(PublicRecords(records.take(order)))).diagnostics["flag"]


@pytest.mark.parametrize("settings", [MOMENTUM, {**MOMENTUM, "batch_size": 8}], ids=str)
def test_any_module(settings: dict[str, Any], own: Any, federate: Federate) -> None:
    recording = federate(own(normed), **SMALL, **settings)
    view = observed(ATTRIBUTE, recording)
    guess = decoded(view)
    assert "flag" not in guess.diagnostics
    assert accuracy(recording, view, guess) >= 0.95


def test_mini_batches_of_modules_that_mix_records_are_refused(own: Any, federate: Federate) -> None:
    view = observed(ATTRIBUTE, federate(own(batch_normed), **SMALL, **MOMENTUM, batch_size=8))
    with pytest.raises(ChooseAnotherAttack, match="normalises over the batch"):
        decoded(view)


@pytest.mark.parametrize("name", ["partial_decode", "model_based_global", "model_based_linear"])
def test_who_reads_gradients_refuses_other_training(name: str, federate: Federate) -> None:
    view = observed(ATTRIBUTE, federate(**SMALL, **ADAM))
    with pytest.raises(ChooseAnotherAttack, match="plain gradient steps"):
        decoded(view, name)


def test_clipping_each_record_hides_nothing_and_noise_does(own: Any, federate: Federate) -> None:
    """A module of one's own under DP-SGD, from the config to the answer."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    right = []
    for noise in (0.0, 50.0):
        steps = [{"name": "dp_sgd", "clip": 0.5, "noise": noise}]
        recording = federate(own(normed), **SMALL | {"rounds": 1}, defence=steps)
        view = observed(ATTRIBUTE, recording)
        right.append(accuracy(recording, view, decoded(view)))
    assert right[0] >= 0.95
    assert right[1] <= 0.8


def test_chance_in_the_network_is_not_taken_for_the_secret(own: Any, federate: Federate) -> None:
    recording = federate(own(dropping), **SMALL)
    view = observed(ATTRIBUTE, recording)
    guess = decoded(view)
    sure = guess.probabilities.max(axis=1) > 0.99
    assert (guess.choice() == recording.truth()[view.client]["s"])[sure].all()
    assert guess.diagnostics["simulated_accuracy"] < 1.0

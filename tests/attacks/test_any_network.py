"""Attacks ask a network for predictions and gradients, so that any torch module serves.

The same dense network twice: by its own kernel, whose gradients are factors, and as a module that
autograd differentiates, whose gradients are written out. What is guessed is the same.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import GROUPS, simulated
from torch import nn

from overheard.attacks.attribute.joint_decode import JointDecode
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.attribute.partial_decode import PartialDecode
from overheard.attacks.attribute.sum_decode import SumDecode
from overheard.attacks.label import BayesGroups, LinearDecode
from overheard.attacks.membership import CandidateDecode
from overheard.attacks.papers.driouich2022 import ModelBasedGlobal
from overheard.attacks.papers.lyu2021 import CosMatching, Statistics
from overheard.errors import ChooseAnotherAttack
from overheard.programs import trusted
from overheard.programs.recipe import Module
from overheard.programs.records import Records
from overheard.transcript.knowledge import EverybodysRecords, LocalTraining
from overheard.transcript.observe import observe
from overheard.transcript.target import LABEL, attribute, membership
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER, SERVER
from overheard.transcript.view import View, launch

pytestmark = pytest.mark.slow

MLP = {"name": "mlp", "hidden": [12], "activation": "tanh"}
ONE = {"rounds": 1, "participation": 1.0, "clients": 2, "people": 24}


def by_class(dataset: Any) -> Any:
    """The same people with a class for a label."""
    columns = dict(dataset.records.columns)
    columns["y"] = (columns["y"] > np.median(columns["y"])).astype(float)
    return dataclasses.replace(dataset, records=Records(columns), task="classification")


@pytest.fixture
def as_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The view in which the dense network is a torch module that somebody trusts."""

    def changed(view: View) -> View:
        recipe = view.know(LocalTraining).recipe
        dense = recipe.dense
        sizes = dense.sizes

        def make() -> nn.Module:
            return nn.Sequential(
                nn.Linear(sizes[0], sizes[1]), nn.Tanh(), nn.Linear(sizes[1], sizes[2])
            )

        monkeypatch.setattr(trusted, "imported", lambda name: make)
        monkeypatch.setattr(trusted, "_TRUSTED", {"here:make"})
        layout = tuple((n, tuple(p.shape)) for n, p in make().named_parameters())
        module = Module(
            factory="here:make", inputs=dense.inputs, outputs=dense.outputs, parameters=layout
        )
        return view.knowing(LocalTraining(recipe.model_copy(update={"model": module})))

    return changed


def test_attributes(federate: Any, as_module: Any) -> None:
    recording = federate(MLP, **ONE)
    view = observe(recording, EAVESDROPPER, attribute("s"), "0")
    search = CosMatching(phases=("pre1",), steps=5, temperatures=(1.0,))
    for attack in (MaxEntropy(), ModelBasedGlobal(), search):
        fast, slow = launch(attack, view, 0), launch(attack, as_module(view), 0)
        np.testing.assert_allclose(fast.probabilities, slow.probabilities, atol=1e-6)
    truth = recording.truth()["0"]["s"]
    assert (launch(MaxEntropy(), as_module(view), 0).choice() == truth).all()


def test_pairs_of_attribute_and_label(federate: Any, as_module: Any) -> None:
    view = observe(federate(MLP, change=by_class, **ONE), EAVESDROPPER, attribute("s"), "0")
    fast, slow = launch(JointDecode(), view, 0), launch(JointDecode(), as_module(view), 0)
    np.testing.assert_allclose(fast.probabilities, slow.probabilities, atol=1e-6)
    with pytest.raises(ChooseAnotherAttack, match="a last layer that is dense"):
        launch(Statistics(), as_module(view), 0)


def test_known_records_against_an_unknown_rest(federate: Any, as_module: Any) -> None:
    """The covariance of gradients that are written out is that of their numbers one by one: less
    sharp than a dense layer's, and still far above the commonest value, 0.6."""
    settings = {**ONE, "people": 80, "columns": 12, "audit": {"coverage": 0.9}}
    recording = federate({**MLP, "hidden": [48]}, **settings)
    view = observe(recording, EAVESDROPPER, attribute("s"), "0")
    secret = recording.truth()["0"]["s"][:72]
    guesses = [launch(PartialDecode(), v, 0) for v in (view, as_module(view))]
    fast, slow = (float((guess.choice() == secret).mean()) for guess in guesses)
    assert fast >= 0.85
    assert slow >= 0.75


def test_members(federate: Any, as_module: Any) -> None:
    recording = federate(MLP, audit={"membership": 30}, **ONE)
    view = observe(recording, SERVER, membership("s"), "0")
    fast, slow = launch(CandidateDecode(), view, 0), launch(CandidateDecode(), as_module(view), 0)
    np.testing.assert_allclose(fast.probabilities, slow.probabilities, atol=1e-6)


def test_sums(tmp_path: Path, as_module: Any) -> None:
    content = {
        "data": {"source": "digits", "options": {"victim": 20, "participants": 3}},
        "model": MLP,
        "training": {"rounds": 2, "learning_rate": 0.1, "weighting": "equal"},
        "defence": [{"name": "secure_sum"}],
        "audit": {"attributes": ["c043"]},
    }
    recording = simulated(tmp_path / "run", content)
    threat = SECURE_SERVER.granting(EverybodysRecords)
    view = observe(recording, threat, attribute("c043"), recording.clients[0])
    fast, slow = launch(SumDecode(), view, 0), launch(SumDecode(), as_module(view), 0)
    np.testing.assert_allclose(fast.probabilities, slow.probabilities, atol=1e-6)


def test_groups(federate: Any, as_module: Any) -> None:
    settings = {**ONE, "algorithm": "fedsgd", "people": 60, "audit": {**GROUPS, "auxiliary": 40}}
    view = observe(federate(MLP, **settings), SERVER, LABEL, "0")
    fast, slow = launch(BayesGroups(), view, 0), launch(BayesGroups(), as_module(view), 0)
    np.testing.assert_allclose(fast.means, slow.means, rtol=1e-6)


def test_labels(federate: Any, as_module: Any) -> None:
    settings = {**ONE, "algorithm": "fedsgd", "audit": {"label": True}}
    view = observe(federate(MLP, **settings), EAVESDROPPER, LABEL, "0")
    fast, slow = launch(LinearDecode(), view, 0), launch(LinearDecode(), as_module(view), 0)
    np.testing.assert_allclose(fast.values, slow.values, rtol=1e-6, atol=1e-6)

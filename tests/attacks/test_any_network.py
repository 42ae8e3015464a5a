"""Attacks ask a network for predictions and gradients, so that any torch module serves.

The same dense network twice: by its own kernel, whose gradients are factors, and as a module that
autograd differentiates, whose gradients are written out. What is guessed is the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import GROUPS, summed, view_of
from generated import by_class
from torch import nn
from trainings import trusted_module

from overheard.attacks.attribute import CandidateDecode, MaxEntropy
from overheard.attacks.label import BayesGroups, LinearDecode
from overheard.attacks.papers.driouich2022 import ModelBasedGlobal
from overheard.attacks.papers.lyu2021 import CosMatching, Statistics
from overheard.attacks.partial import PartialDecode
from overheard.attacks.sums import SumDecode
from overheard.errors import ChooseAnotherAttack
from overheard.transcript.knowledge import ClientProgram, EverybodysRecords
from overheard.transcript.target import LABEL, attribute, membership
from overheard.transcript.threat import SECURE_SERVER, SERVER
from overheard.transcript.view import View, launch, observe

pytestmark = pytest.mark.slow

MLP = {"name": "mlp", "hidden": [12], "activation": "tanh"}
ONE = {"rounds": 1, "participation": 1.0, "clients": 2, "people": 24}


@pytest.fixture
def as_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The view in which the dense network is a torch module that somebody trusts."""

    def changed(view: View, last: Any = nn.Linear) -> View:
        recipe = view.know(ClientProgram).recipe
        dense = recipe.model
        sizes = dense.sizes

        def make() -> nn.Module:
            first = nn.Linear(sizes[0], sizes[1])
            return nn.Sequential(first, nn.Tanh(), last(sizes[1], sizes[2]))

        module = trusted_module(monkeypatch, make, dense.inputs, dense.outputs)
        return view.knowing(ClientProgram(recipe.model_copy(update={"model": module})))

    return changed


class WithoutKernel(nn.Linear):
    """A layer that is not known: its gradients are written out."""


def the_same(attack: Any, view: View, as_module: Any, answers: str = "probabilities") -> None:
    found = [getattr(launch(attack, v, 0), answers) for v in (view, as_module(view))]
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-6)


SEARCH = CosMatching(phases=("pre1",), steps=5, temperatures=(1.0,))
LABELS, BY_GROUP = {"audit": {"label": True}}, {"people": 60, "audit": {**GROUPS, "auxiliary": 40}}


@pytest.mark.parametrize(
    ("target", "attack", "settings", "answers"),
    [
        (attribute("s"), MaxEntropy(), {}, "probabilities"),
        (attribute("s"), ModelBasedGlobal(), {}, "probabilities"),
        (attribute("s"), SEARCH, {}, "probabilities"),
        (attribute("s"), MaxEntropy(labels=False), {"change": by_class}, "probabilities"),
        (attribute("s"), Statistics(), {"change": by_class}, "probabilities"),
        (membership("s"), CandidateDecode(), {"audit": {"membership": 30}}, "probabilities"),
        (LABEL, LinearDecode(), {"algorithm": "fedsgd", **LABELS}, "values"),
        (LABEL, BayesGroups(), {"algorithm": "fedsgd", **BY_GROUP}, "means"),
    ],
)
def test_a_module_is_read_as_its_dense_twin(
    federate: Any, as_module: Any, target: Any, attack: Any, settings: Any, answers: str
) -> None:
    view = observe(federate(MLP, **{**ONE, **settings}), SERVER, target, "0")
    the_same(attack, view, as_module, answers)


def test_what_needs_a_dense_last_layer_says_so(federate: Any, as_module: Any) -> None:
    view = view_of(federate(MLP, change=by_class, **ONE), threat=SERVER)
    with pytest.raises(ChooseAnotherAttack, match="a last layer that is dense"):
        launch(Statistics(), as_module(view, last=WithoutKernel), 0)


def test_known_records_against_an_unknown_rest(federate: Any, as_module: Any) -> None:
    """The covariance of gradients that are written out is that of their numbers one by one: less
    sharp than a dense layer's, and still far above the commonest value, 0.6."""
    settings = {**ONE, "people": 80, "columns": 12, "audit": {"coverage": 0.9}}
    recording = federate({**MLP, "hidden": [48]}, **settings)
    view = view_of(recording)
    secret = recording.truth()["0"]["s"][:72]
    guess = launch(PartialDecode(), as_module(view), 0)
    assert (guess.choice() == secret).mean() >= 0.75


def test_sums(tmp_path: Path, as_module: Any) -> None:
    recording = summed(tmp_path / "run", model=MLP, victim=20, participants=3, rounds=2)
    threat = SECURE_SERVER.granting(EverybodysRecords)
    view = view_of(recording, "attribute.c043", threat=threat)
    the_same(SumDecode(), view, as_module)

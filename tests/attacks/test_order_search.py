"""Clients that fix their seed: the order is known or found, and nothing wrong is claimed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from federations import ADAM, FAMILIES, MOMENTUM, accuracy, observed, view_of

import overheard
from overheard import Recording, launch
from overheard.attacks.attribute import MaxEntropy
from overheard.report.verdict import headline
from overheard.transcript.knowledge import BatchOrder
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

NETWORK = {"name": "mlp", "hidden": [48]}
SMALL = {"clients": 2, "people": 60, "columns": 8, "rounds": 2, "participation": 1.0}
ATTRIBUTE = FAMILIES["attributes, linear"]
Federate = Callable[..., Recording]


def granted(recording: Recording) -> Any:
    client = recording.clients[0]
    return view_of(recording, client=client, threat=EAVESDROPPER.granting(BatchOrder))


@pytest.mark.parametrize(
    "settings",
    [
        {**ADAM, "epochs": 3},
        {**MOMENTUM, "epochs": 3},
        {"learning_rate": 0.1, "epochs": 2, "drop_last": True},
    ],
    ids=str,
)
def test_a_known_order_is_as_good_as_none(settings: dict[str, Any], federate: Federate) -> None:
    shuffle = {"seed": 4_000_000_000, "source": "numpy", "restart": "round"}
    recording = federate(NETWORK, **SMALL, batch_size=8, shuffle=shuffle, **settings)
    view = granted(recording)
    guess = launch(MaxEntropy(), view, 0)
    assert guess.diagnostics["method"] == "replay"
    if not settings.get("drop_last"):  # whoever is dropped in every epoch is in no message
        assert guess.diagnostics["proven"] == "True"
        assert accuracy(recording, view, guess) == 1.0
    sure = guess.probabilities.max(axis=1) > 0.99
    assert sure.mean() > 0.9
    assert (guess.choice() == recording.truth()[view.client]["s"])[sure].all()


@pytest.mark.parametrize("settings", [ADAM, {"learning_rate": 0.1}], ids=str)
def test_a_seed_that_people_like_is_found(settings: dict[str, Any], federate: Federate) -> None:
    """Granted nothing: seed and source by the first message."""
    shuffle = {"seed": 42, "restart": "run"}
    recording = federate(NETWORK, **SMALL, batch_size=8, shuffle=shuffle, **settings)
    view = observed(ATTRIBUTE, recording)
    guess = launch(MaxEntropy(), view, 0)
    named = guess.diagnostics["order_guessed"]
    assert named == "seed 42: torch's DataLoader after torch.manual_seed"
    assert accuracy(recording, view, guess) == 1.0


def test_it_is_a_finding_with_a_remedy(federate: Federate) -> None:
    recording = federate(NETWORK, **SMALL, batch_size=8, shuffle={"seed": 7}, **ADAM)
    options = overheard.AuditOptions(rounds=False)
    record = overheard.audit(recording, EAVESDROPPER, [MaxEntropy()], options=options)
    (note,) = [n for n in headline(record) if "can be guessed" in n]
    assert all(client in note for client in recording.clients)
    assert "seed 7: torch's DataLoader" in note
    assert "Do not seed" in note


def test_orders_that_nobody_seeded_are_not_claimed(federate: Federate) -> None:
    recording = federate(NETWORK, **SMALL, batch_size=8, **ADAM)
    guess = launch(MaxEntropy(), observed(ATTRIBUTE, recording), 0)
    assert "order_guessed" not in guess.diagnostics
    assert guess.diagnostics["method"] != "replay"


def test_one_of_these_seeds(federate: Federate) -> None:
    """A list of one's own, and the right one is not the first; without it nothing is found."""
    recording = federate(NETWORK, **SMALL, batch_size=8, shuffle={"seed": 77_777}, **MOMENTUM)
    view = granted(recording)
    several = view.knowing(BatchOrder((5, 77_777, 6, 7, 8, 9)))
    guess = launch(MaxEntropy(), several, 0)
    assert str(guess.diagnostics["order_guessed"]).startswith("seed 77777:")
    others = view.knowing(BatchOrder((5, 6, 7, 8, 9)))
    assert "order_guessed" not in launch(MaxEntropy(), others, 0).diagnostics

"""Training without chance: answers that are found and proven by replay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from federations import FAMILIES, heard, score

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.by_replay import _least_sure
from overheard.transcript.store import Recording
from overheard.transcript.view import launch

ATTRIBUTE = FAMILIES["attributes, linear"]
Federate = Callable[..., Recording]


def test_fewer_equations_than_records(federate: Federate) -> None:
    """A network too small to tell: that every record is one candidate or the other is needed too."""
    recording = federate(
        {"name": "mlp", "hidden": [8]},
        clients=2, people=100, columns=6, rounds=1, participation=1.0, epochs=5, learning_rate=0.2,
    )  # fmt: skip
    view = heard(ATTRIBUTE, recording)
    guess = launch(MaxEntropy(), view, 0)
    assert guess.diagnostics["proven"] == "True"
    assert score(recording, view, MaxEntropy(), guess).value == 1.0


def test_those_least_sure_are_doubted_and_no_others() -> None:
    found = np.column_stack([np.full(200, 1e-9), np.full(200, 1 - 1e-9)])
    found[7], found[11] = (0.1, 0.9), (0.999, 0.001)
    belief = _least_sure(found)
    doubted = np.flatnonzero(belief.max(axis=1) < 1)
    assert {7, 11} <= set(doubted)
    assert 2 < len(doubted) < 50
    assert (belief.argmax(axis=1) == found.argmax(axis=1)).all()
    assert 0.1 < belief[11, 1] < 0.5

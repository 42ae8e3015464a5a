"""Training without chance: answers that are found and proven by replay."""

from __future__ import annotations

from collections.abc import Callable

from federations import FAMILIES, heard, score

from overheard.attacks.attribute import MaxEntropy
from overheard.transcript.store import Recording
from overheard.transcript.view import launch

ATTRIBUTE = FAMILIES["attributes, linear"]
Federate = Callable[..., Recording]


def test_fewer_equations_than_records(federate: Federate) -> None:
    """A network too small to tell: that every record is one of two candidates is needed too."""
    recording = federate(
        {"name": "mlp", "hidden": [8]},
        clients=2, people=100, columns=6, rounds=1, participation=1.0, epochs=5, learning_rate=0.2,
    )  # fmt: skip
    view = heard(ATTRIBUTE, recording)
    guess = launch(MaxEntropy(), view, 0)
    assert guess.diagnostics["proven"] == "True"
    assert score(recording, view, MaxEntropy(), guess).value == 1.0

"""The same people in two federations: equations add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.together import Heard, decode_together
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

ONE = {"rounds": 1, "learning_rate": 0.1}


def heard(recording, people=None) -> Heard:
    view = observe(recording, EAVESDROPPER, attribute("s"), recording.clients[0])
    size = len(recording.truth()[recording.clients[0]])
    return Heard(view, np.arange(size) if people is None else people)


def test_one_federation_is_decoded_as_ever(federate) -> None:
    one = heard(federate({"name": "mlp", "hidden": [6]}, people=40, **ONE))
    (guess,) = decode_together([one])
    alone = launch(MaxEntropy(), one.view, 0)
    assert np.allclose(guess.probabilities, alone.probabilities, atol=1e-6)


def test_people_of_one_federation_only_are_decoded_too(federate) -> None:
    """Nobody shared: two answers, each as if alone."""
    first = heard(federate({"name": "mlp", "hidden": [6]}, people=40, **ONE))
    second = replace(first, people=np.arange(40) + 100)
    apart = decode_together([first, second])
    alone = launch(MaxEntropy(), first.view, 0)
    for guess in apart:
        assert np.allclose(guess.probabilities, alone.probabilities, atol=1e-3)


def test_every_record_has_an_id_of_its_own(federate) -> None:
    one = heard(federate({"name": "mlp", "hidden": [3]}, people=20, **ONE))
    with pytest.raises(FixData, match="give each its own"):
        decode_together([replace(one, people=np.zeros(20))])


def test_several_steps_are_refused(federate) -> None:
    one = heard(federate({"name": "mlp", "hidden": [3]}, people=20, **ONE, epochs=2, batch_size=5))
    with pytest.raises(ChooseAnotherAttack, match="one full-batch step"):
        decode_together([one])

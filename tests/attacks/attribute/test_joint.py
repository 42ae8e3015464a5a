"""Attribute and label at once: what is not explained is flagged, what is left open is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from overheard.attacks.attribute.joint_decode import JointDecode
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.knowledge import Link
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

LOGISTIC = {"name": "logistic"}


def test_updates_that_no_pairs_explain_are_flagged(federate: Any) -> None:
    recording = federate(LOGISTIC, people=40, columns=6, rounds=2, participation=1.0)
    view = observe(recording, EAVESDROPPER, attribute("s"), "0")
    link = view.know(Link)
    strange = replace(link, returned=(link.sent + 3 * link.updates()).astype(np.float32))
    guess = launch(JointDecode(), view.knowing(strange), 0)
    assert "flag" in guess.diagnostics


def test_few_equations_are_rehearsed_and_not_taken_for_more_than_they_are(federate: Any) -> None:
    recording = federate(LOGISTIC, people=40, columns=6, rounds=2, participation=1.0)
    for client in recording.clients:
        guess = launch(JointDecode(), observe(recording, EAVESDROPPER, attribute("s"), client), 0)
        hits = attribute_hits(guess, recording.truth()[client]["s"]).mean()
        assert "rehearsed" in guess.diagnostics
        sure = guess.probabilities.max(axis=1).mean()
        assert "flag" in guess.diagnostics or sure < hits + 3 * np.sqrt(0.25 / 40)

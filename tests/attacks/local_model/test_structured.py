"""What `structured` says when mini-batches do not show the local optimum."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.attacks.baselines import LastReturned
from overheard.attacks.local_model import Structured
from overheard.evaluation.metrics import excess_losses, local_optimum
from overheard.transcript.observe import observe, recipe_of
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch


@pytest.mark.parametrize("rounds", [8, 12, 20, 60])
def test_fewer_rounds_than_parameters(federate, rounds):
    """Linear least squares in mini-batches, 32 parameters: no crash, no explosion, and it says so
    where its answer is the last returned model."""
    settings = {"participation": 1.0, "batch_size": 32, "learning_rate": 0.02}
    recording = federate(columns=30, rounds=rounds, **settings)
    recipe, truth = recipe_of(recording), recording.truth()
    for client in recording.clients:
        view = observe(recording, EAVESDROPPER, LOCAL_MODEL, client)
        guess, last = launch(Structured(), view, 0), launch(LastReturned(), view, 0)
        optimum = local_optimum(recipe, truth[client])
        mine, base = (
            excess_losses(recipe, g, optimum, truth[client]).mean() for g in (guess, last)
        )
        assert mine <= 1.5 * base
        same = np.array_equal(guess.parameters, last.parameters)
        assert same == ("last returned model" in guess.diagnostics.get("flag", ""))

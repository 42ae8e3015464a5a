"""Clients that take many local steps between two messages do not hide their records by it."""

from __future__ import annotations

import numpy as np
import pytest
from federations import digits, guessed, simulated, view_of
from generated import tumours

from overheard.attacks.attribute import MaxEntropy
from overheard.data.bundled import VICTIM
from overheard.evaluation.baselines import Imputer, majority_share
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.kind import recipe_of
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.view import launch

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("rate", "seed", "column"), [(0.3, 1, "c010"), (1.0, 2, "c043")])
def test_never_an_unflagged_collapse(tmp_path, rate, seed, column):
    """Small batches and large steps: better than the majority guess and than an imputation,
    flagged, or by its own word undecided; and never surer than right.
    ``experiments/robustness/unseen.py`` looks at many more."""
    recording = digits(
        tmp_path / "run", {"name": "mlp", "hidden": [32]}, victim=100, participants=2,
        column=column, seed=seed, learning_rate=rate, batch_size=8,
    )  # fmt: skip
    truth, recipe = recording.truth(), recipe_of(recording)
    view = view_of(recording, f"attribute.{column}", VICTIM)
    guess = launch(MaxEntropy(), view, seed)
    secret = truth[VICTIM][column]
    accuracy = float(attribute_hits(guess, secret).mean())
    values = view.know(AttributeDomain).values
    imputed = Imputer(seed).values(recipe, truth, VICTIM, view.target, values)
    best = max(majority_share(secret, values), float(imputed.hits.mean()))
    named = guess.diagnostics
    assert accuracy > best or "flag" in named or "undecided" in named
    above = float(guess.probabilities.max(axis=1).mean()) - accuracy
    assert above <= 0.05 or above < 3 * np.sqrt(accuracy * (1 - accuracy) / len(secret))


def test_how_a_column_is_coded_does_not_matter(tmp_path):
    """The same people, once with ones for the rare value and once with zeros."""
    training = {"rounds": 2, "learning_rate": 0.03, "batch_size": 32, "epochs": 3}
    model, hits = {"name": "mlp", "hidden": [64]}, []
    config = {"data": {"source": "file"}, "model": model, "training": training}
    for recoded in (False, True):
        recording = simulated(tmp_path / str(recoded), config, tumours(100, 0.2, recoded))
        guess, secret = guessed(MaxEntropy(), recording, "v0", "a")
        assert "flag" not in guess.diagnostics
        hits.append(attribute_hits(guess, secret).mean())
    assert min(hits) >= 0.97

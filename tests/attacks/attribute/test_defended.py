"""Decoding what was defended: noise, clipping and compression, declared and not declared."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from federations import digits, view_of

from overheard.attacks.attribute import MaxEntropy
from overheard.data.bundled import VICTIM
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.knowledge import AppliedDefence, Messages
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

pytestmark = pytest.mark.slow

COLUMN = "c043"


@pytest.fixture(scope="module")
def attack(tmp_path_factory):
    """The guess, the truth and the first update's norm under these defences."""

    @functools.cache
    def make(*defences, known=True, rounds=1):
        path = tmp_path_factory.mktemp("defended") / "run"
        defence, model = [dict(d) for d in defences], {"name": "mlp", "hidden": [32]}
        recording = digits(path, model, victim=200, defence=defence, rounds=rounds)
        threat = EAVESDROPPER if known else EAVESDROPPER.without(AppliedDefence)
        view = view_of(recording, f"attribute.{COLUMN}", VICTIM, threat=threat)
        norm = float(np.linalg.norm(view.know(Messages).updates()[0]))
        guess = launch(MaxEntropy(), view, 0)
        return guess, recording.truth()[VICTIM][COLUMN], norm, view.know(Messages).sent.shape[1]

    return make


def accuracy(guess, secret):
    return float(attribute_hits(guess, secret).mean())


def clip(norm):
    return (("name", "clip"), ("norm", norm))


def noise(sd):
    return (("name", "gaussian"), ("sd", sd))


@pytest.mark.parametrize("known", [True, False])
def test_noise_raises_the_error_and_leaves_the_probabilities_honest(attack, known):
    _, _, norm, size = attack()
    got = []
    for strength in (0.02, 0.2, 0.6, 2.0):
        guess, secret, _, _ = attack(noise(strength * norm / np.sqrt(size)), known=known)
        got.append(accuracy(guess, secret))
        sure = float(guess.probabilities.max(axis=1).mean())
        assert abs(sure - got[-1]) < 0.08  # 200 records: a standard error is up to 0.035
    assert got[0] == 1.0
    assert got[-1] < 0.85  # what an imputation gives without listening, and little more
    assert np.all(np.diff(got) <= 0.02)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("scale", [0.5, 0.01])
def test_a_clipped_update_is_decoded_as_if_it_were_whole(attack, scale, known):
    _, _, norm, _ = attack()
    guess, secret, _, _ = attack(clip(scale * norm), known=known)
    assert accuracy(guess, secret) == 1.0
    assert guess.diagnostics["scale"] == pytest.approx(scale, rel=0.01)


def test_every_round_has_its_own_scale(attack):
    """Later rounds have shorter updates, so that some are clipped and some are not."""
    _, _, norm, _ = attack(rounds=4)
    guess, secret, _, _ = attack(clip(0.9 * norm), rounds=4)
    assert accuracy(guess, secret) == 1.0

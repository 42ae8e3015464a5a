"""Convolutions, and DP-SGD: clipping hides nothing, noise does, and the listener knows both."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.attacks.attribute import MaxEntropy
from overheard.programs.networks import initial
from overheard.programs.recipe import LeNet, PrivateSteps, Recipe, Target
from overheard.programs.records import Encoding, Records, Scaled, encode
from overheard.programs.training import local_training, shards
from overheard.transcript.knowledge import (
    AttributeDomain,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.target import attribute
from overheard.transcript.view import View, launch

pytestmark = pytest.mark.slow

PEOPLE, PIXELS, SECRET = 40, 256, "p136"


def heard(rng, private=None, **changes):
    """The view of one round of a small LeNet on 16 x 16 pixels, one of them binary and secret."""
    model = LeNet(image=(1, 16, 16), filters=(3, 4), hidden=(8,), outputs=3, **changes)
    columns = {f"p{i}": rng.random(PEOPLE) for i in range(PIXELS)}
    secret = columns[SECRET] = (rng.random(PEOPLE) < 0.4).astype(np.float64)
    labels = rng.integers(3, size=PEOPLE).astype(np.float64)
    recipe = Recipe(
        model=model,
        loss="cross_entropy",
        encoding=Encoding(blocks=tuple(Scaled(column=c) for c in columns)),
        target=Target(column="y", classes=(0.0, 1.0, 2.0)),
        learning_rate=0.5,
        private=private,
    )
    records = Records(columns)
    theta = initial(model, 5).astype(np.float32)
    data = shards([encode(recipe.encoding, records)], [labels], "float32")
    returned = local_training(recipe, theta, data, rng)
    link = Link("model", np.arange(1), theta[None], returned, np.array([float(PEOPLE)]))
    pieces = (
        link,
        LocalTraining(recipe),
        PublicRecords(records.without(SECRET)),
        Labels(labels),
        AttributeDomain(SECRET, (0.0, 1.0)),
    )
    view = View("a", attribute(SECRET), "eavesdropper", {type(p): p for p in pieces})
    return view, secret


def test_a_pixel_is_decoded_from_one_step_of_a_lenet(rng):
    view, secret = heard(rng)
    guess = launch(MaxEntropy(), view, 0)
    assert (guess.choice() == secret).mean() >= 0.95
    assert guess.diagnostics["unknowns"] == PEOPLE


def test_chance_in_the_network_is_not_taken_for_the_secret(rng):
    view, secret = heard(rng, dropout=0.5)
    guess = launch(MaxEntropy(), view, 0)
    sure = guess.probabilities.max(axis=1) > 0.99
    assert (guess.choice() == secret)[sure].all()
    assert guess.diagnostics["simulated_accuracy"] < 1.0


def test_clipping_each_record_hides_nothing_and_noise_does(rng):
    view, secret = heard(rng, PrivateSteps(clip=0.5, noise=0.0))
    assert (launch(MaxEntropy(), view, 0).choice() == secret).mean() >= 0.95
    view, secret = heard(rng, PrivateSteps(clip=0.5, noise=50.0))
    assert (launch(MaxEntropy(), view, 0).choice() == secret).mean() <= 0.8

"""Training without chance: answers that are found and proven by replay."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from federations import FAMILIES, heard, score

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.by_replay import (
    DEFAULT,
    likeliest,
    single_changes,
)
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


@pytest.mark.parametrize(("n", "values", "absent"), [(4, 3, 0), (5, 2, 0), (5, 3, 1)])
def test_the_likeliest_of_all(n: int, values: int, absent: int) -> None:
    """Of all answers with at most two records otherwise, and as many members."""
    rng = np.random.default_rng(n)
    found = rng.dirichlet(np.ones(values), size=n)
    present = np.arange(values) >= absent
    choice = found.argmax(axis=1)
    made = likeliest(found, choice, present, DEFAULT)
    every = [
        answer
        for answer in map(np.array, product(range(values), repeat=n))
        if 0 < (answer != choice).sum() <= 2 and present[answer].sum() == present[choice].sum()
    ]
    likely = [-np.log(found[np.arange(n), a]).sum() for a in every]
    expected = [tuple(every[i]) for i in np.argsort(likely)[: DEFAULT.tried]]
    assert tuple(made[0]) == tuple(choice)
    if len(single_changes(choice, values)[0]) <= 32:
        assert [tuple(a) for a in made[1:]] == expected

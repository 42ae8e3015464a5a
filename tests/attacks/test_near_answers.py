"""The answers that are tried first, against trying all of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from overheard.attacks.by_replay import TRIED, best_pairs, likeliest, single_changes


@pytest.mark.parametrize(("n", "values", "absent"), [(4, 3, 0), (5, 2, 0), (5, 3, 1)])
def test_the_likeliest_of_all(n: int, values: int, absent: int) -> None:
    """Of all answers with at most two records otherwise, and as many members."""
    rng = np.random.default_rng(n)
    found = rng.dirichlet(np.ones(values), size=n)
    present = np.arange(values) >= absent
    choice = found.argmax(axis=1)
    made = likeliest(found, choice, present)
    every = [
        answer
        for answer in map(np.array, product(range(values), repeat=n))
        if 0 < (answer != choice).sum() <= 2 and present[answer].sum() == present[choice].sum()
    ]
    likely = [-np.log(found[np.arange(n), a]).sum() for a in every]
    expected = [tuple(every[i]) for i in np.argsort(likely)[:TRIED]]
    assert tuple(made[0]) == tuple(choice)
    if len(single_changes(choice, values)[0]) <= 32:
        assert [tuple(a) for a in made[1:]] == expected


def test_pairs_that_are_ruled_out_are_not_tried() -> None:
    choice = np.zeros(4, dtype=np.int64)
    record, other = single_changes(choice, 2)
    score = np.full((4, 4), -np.inf)
    score[1, 3] = score[3, 1] = 1.0
    made = best_pairs(choice, (record, other), score, np.ones(2, dtype=bool))
    assert made.tolist() == [[0, 1, 0, 1]]

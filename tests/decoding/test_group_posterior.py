"""The posterior of group means: against a slow twin, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from overheard.decoding.group_posterior import SHARE_OF_RECORDS, Grouped, group_posterior
from overheard.errors import FixData

pytestmark = pytest.mark.slow


def asked(gram, overlap, labels, predictions, *client, noise=0.0, **named):
    return group_posterior(gram, overlap, labels, predictions, Grouped(*client, **named), noise)


def people(rng, n, width, hidden=0.4, shares=(0.4, 0.3, 0.2, 0.1)):
    """Records of four groups: features, predictions and labels."""
    groups = rng.choice(len(shares), n, p=shares)
    x = rng.normal(size=(n, width)) * hidden + np.eye(len(shares), width)[groups]
    features = np.column_stack([x, np.ones(n)])
    predictions = 1.0 + groups * 0.5 + 0.3 * x[:, 0]
    labels = predictions + rng.normal(0, 1, n) * (0.5 + 0.2 * groups)
    psi = (predictions - labels)[:, None] * features
    return psi, labels, predictions, groups


def slow(psi, labels, predictions, groups, how_many, size, counts, total):
    """Explicit features, explicit hat matrices, one regression per number of directions."""
    n, members = len(labels), np.bincount(groups, minlength=how_many)
    inside = groups[:, None] == np.arange(how_many)
    known = counts is not None
    asked = counts > 0 if known else members > 0
    if known:
        weight = (counts * (1 + counts / members) / (members - 1))[groups]
        centre = inside @ np.diag(1 / members) @ inside.T
        expected = counts.astype(float)
        expectation = sum(counts[c] * psi[groups == c].mean(0) for c in range(how_many))
    else:
        weight = np.full(n, size * (1 + size / n) / (n - 1))
        centre = np.full((n, n), 1 / n)
        p = members / n
        expected = size * p / (1 - (1 - p) ** size)
        expectation = size * psi.mean(0)
    root = np.sqrt(weight)
    z = root[:, None] * (psi - centre @ psi)
    left, _, right = np.linalg.svd(z, full_matrices=False)

    def share(v):
        means = np.array([v[groups == c].mean() for c in range(how_many)])
        parts = inside[:, asked] * (v - means[groups])[:, None] / expected[asked]
        return parts * root[:, None]

    truth, own = share(labels), (1 - 1 / members[groups])[:, None]
    best = (np.sqrt(((truth / own) ** 2).sum(0)).sum(), None)
    rank = int((np.linalg.svd(z, compute_uv=False) > 1e-5 * np.linalg.norm(z)).sum())
    for offset in (np.zeros(n), predictions):
        target = share(labels - offset)
        for k in range(1, min(rank, n // SHARE_OF_RECORDS) + 1):
            basis = left[:, :k]
            hat = basis @ basis.T
            leverage = np.minimum(np.diag(hat) + np.diag(centre), 0.99)
            errors = (target - hat @ target) / (1 - leverage)[:, None] + (truth - target) / own
            score = np.sqrt((errors**2).sum(0)).sum()
            if score < best[0]:
                scores = z @ right[:k].T
                coefficients = np.linalg.lstsq(scores, target, rcond=None)[0]
                best = (score, (right[:k].T @ coefficients, np.sqrt((errors**2).sum(0))))
    means = np.array([labels[groups == c].mean() for c in range(how_many)])
    if best[1] is None:
        return means, None
    weights, sd = best[1]
    sd = sd * stats.t.ppf(0.975, members[asked] - 1) / stats.norm.ppf(0.975)
    means[asked] += weights.T @ (total - expectation)
    return means, sd


@given(st.integers(0, 10_000), st.booleans(), st.integers(2, 6))
def test_agrees_with_the_slow_twin(seed, known, width):
    rng = np.random.default_rng(seed)
    psi, labels, predictions, groups = people(rng, 90, width, shares=(0.4, 0.35, 0.25))
    mine, _, _, mine_groups = people(rng, 12, width, shares=(0.4, 0.35, 0.25))
    counts = np.bincount(mine_groups, minlength=3) if known else None
    total = mine.sum(0)
    args = (labels, predictions, groups, 3, 12, counts)
    means, sd = slow(psi, *args, total)
    found = asked(
        psi @ psi.T, psi @ total, labels, [predictions], groups, 3, 12,
        None if counts is None else counts.astype(float),
    )  # fmt: skip
    np.testing.assert_allclose(found.means, means, rtol=1e-6, atol=1e-8)
    if known and sd is not None:
        np.testing.assert_allclose(found.sd[counts > 0], sd, rtol=1e-5)
        assert np.isnan(found.sd[counts == 0]).all()


@pytest.mark.parametrize(("known", "least"), [(True, 0.93), (False, 0.90)])
def test_intervals_cover_and_listening_helps(known, least):
    rng = np.random.default_rng(3)
    covered, narrowed, errors, strange = [], [], [], []
    for _ in range(12):
        psi, labels, predictions, groups = people(rng, 400, 8)
        gram = psi @ psi.T
        for _ in range(12):
            mine, own, _, where = people(rng, 40, 8)
            counts = np.bincount(where, minlength=4)
            there = counts > 0
            truth = np.array([own[where == c].mean() if there[c] else 0.0 for c in range(4)])
            found = asked(
                gram, psi @ mine.sum(0), labels, [predictions], groups, 4, 40,
                counts.astype(float) if known else None,
            )  # fmt: skip
            misses = np.abs(found.means - truth)[there]
            covered += (misses <= 1.96 * found.sd[there]).tolist()
            narrowed += (found.sd / found.prior_sd)[there].tolist()
            errors += misses.tolist()
            strange += np.abs(found.prior_means - truth)[there].tolist()
            assert found.bits() > 0
    assert least <= np.mean(covered) <= 0.98  # 144 clients of four groups: standard error 0.01
    assert np.mean(narrowed) < 0.8
    assert np.mean(errors) < 0.8 * np.mean(strange)


def test_noise_on_the_wire_widens(rng):
    psi, labels, predictions, groups = people(rng, 200, 6)
    counts = np.array([10.0, 10.0, 10.0, 10.0])
    args = (psi @ psi.T, psi @ psi[:40].sum(0), labels, [predictions], groups, 4, 40, counts)
    quiet, loud = asked(*args), asked(*args, noise=30.0)
    assert (loud.sd > quiet.sd).all()
    assert loud.bits() < quiet.bits()


def test_bad_input(rng):
    psi, labels, predictions, groups = people(rng, 50, 3)
    gram, overlap = psi @ psi.T, psi @ psi[0]
    good = [gram, overlap, labels, [predictions], groups, 4, 8, np.full(4, 2.0)]

    def call(**changed):
        names = "gram overlap labels predictions groups how_many size counts".split()
        return asked(**(dict(zip(names, good, strict=True)) | changed))

    call()
    for changed, words in [
        ({"gram": gram[:5]}, "do not match"),
        ({"predictions": [predictions[:5]]}, "do not match"),
        ({"labels": labels * np.nan}, "finite"),
        ({"counts": np.full(3, 2.0)}, "do not fit"),
        ({"counts": np.full(4, 3.0)}, "add up"),
        ({"counts": np.array([-1.0, 5.0, 2.0, 2.0])}, "add up"),
        ({"size": 0}, "do not fit"),
        ({"how_many": 3, "counts": np.array([4.0, 2.0, 2.0])}, "not one of"),
        ({"groups": np.where(groups == 3, 2, groups)}, "fewer than two"),
    ]:
        with pytest.raises(FixData, match=words):
            call(**changed)

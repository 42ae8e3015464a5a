"""p-values: uniform or larger where there is nothing to learn, small where there is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, fisher_exact, ttest_rel

from overheard.evaluation.decision import (
    found_p_value,
    pooled_evidence,
    share_p_value,
    smaller_p_value,
)
from overheard.evaluation.sureness import Posterior, oversure


def test_hits_by_the_exact_binomial_test():
    expected = binomtest(70, 100, 0.55, alternative="greater").pvalue
    assert share_p_value(70, 100, 0.55, None) == pytest.approx(expected)
    assert share_p_value(70, 100, 0.55, -3.0) == pytest.approx(2 * expected)
    assert share_p_value(100, 100, 1.0, 50.0) == pytest.approx(2 * 2.0**-50)  # hits cannot show it
    assert share_p_value(100, 100, None, None) == 1.0


def test_a_likelihood_ratio_against_the_client_s_own_shares_rarely_exceeds_one_in_p():
    """Universal inference: truths of any share, and an adversary that heard nothing of them."""
    rng = np.random.default_rng(3)
    small = []
    for _ in range(4000):
        n, share = int(rng.integers(5, 60)), float(rng.beta(0.4, 0.8))
        truth = rng.random(n) < share
        if not truth.any() or truth.all():
            continue
        claimed = np.clip(
            rng.beta(0.5, 0.5, n) if rng.random() < 0.5 else np.full(n, share), 0.01, 0.99
        )
        given = np.where(truth, claimed, 1 - claimed)
        own = np.where(truth, truth.mean(), 1 - truth.mean())
        small.append(2.0 ** -float((np.log2(given) - np.log2(own)).sum()) < 0.05)
    assert np.mean(small) <= 0.05


@pytest.mark.parametrize("clients", [1, 2, 6])
def test_clients_set_aside_by_the_truth_do_not_make_the_others_evidence(clients):
    """Each bets all it has on a coin: it doubles or, set aside, is gone. Counting only those that
    won would have an expectation of 1.5 to the power of the clients."""
    outcomes = list(product([1.0, None], repeat=clients))
    expected = np.mean([2.0 ** pooled_evidence(gains) for gains in outcomes])
    assert expected <= 1 + 1e-12
    assert pooled_evidence([30.0, None]) < 30.0 - 1


def test_evidence_of_many_clients_adds_up_and_outlasts_one_that_fails():
    assert pooled_evidence([9.66]) == pytest.approx(9.66, abs=0.2)
    assert pooled_evidence([2.0] * 20) == pytest.approx(40.0, abs=0.2)
    assert pooled_evidence([200.0] * 5 + [None]) > 900


def test_smaller_means_by_student_s_t():
    rng = np.random.default_rng(0)
    a = rng.normal(size=12)
    b = a + 0.3 + 0.5 * rng.normal(size=12)
    assert smaller_p_value(a, b) == pytest.approx(ttest_rel(a, b, alternative="less").pvalue)
    assert smaller_p_value(np.zeros(5), 0.01) == 0.0
    assert smaller_p_value(np.full(5, 0.02), 0.01) == 1.0
    assert smaller_p_value(np.array([-9.0]), 0.0) == 1.0


def test_accusations_by_fisher_s_test():
    table = [[3, 2], [1, 44]]  # 5 accused, 3 of them among the 4 of 50 that have it
    assert found_p_value(3, 5, 4, 50) == pytest.approx(fisher_exact(table, "greater").pvalue)


def test_what_is_surer_than_right_is_said():
    hits = np.repeat([1.0, 0.0], [60, 40])
    told = oversure(Posterior(np.full(100, 0.97), hits, hits))
    assert told == "97% sure on average, and right for 60%"
    assert oversure(Posterior(np.full(100, 0.63), hits, hits)) == ""
    few = np.repeat([1.0, 0.0], [6, 4])
    assert oversure(Posterior(np.full(10, 0.8), few, few)) == ""

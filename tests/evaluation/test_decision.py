"""How many looks an audit takes is paid for; p-values are what they say."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, fisher_exact

from overheard.evaluation.decision import (
    EXPOSED,
    NO_SIGN,
    NOT_MEASURED,
    UNCLEAR,
    clustered_interval,
    decide,
    found_p_value,
    pooled_evidence,
    share_interval,
    share_p_value,
)
from overheard.evaluation.record import AttackInfo, Audit, Finding, Run
from overheard.evaluation.scoring import Posterior, overconfident

pytestmark = pytest.mark.slow

RUN = Run(
    recording="r", data="d", origin="o", clients=("0",), rounds=1, closed=True, threat="t",
    threat_words="t", knows=(), recipe={}, seed=0, software={},
)  # fmt: skip


def audit_of(
    p_values: dict[tuple[str, str, str], float], pooled: dict[tuple[str, str], float]
) -> Audit:
    """p-values by (secret, client, attack), and pooled ones by (secret, attack)."""
    shared = {
        "question": "attribute", "metric": "accuracy", "value": 0.6, "low": 0.5, "high": 0.7,
        "majority": 0.5, "n": 10,
    }  # fmt: skip
    every = [*p_values.items(), *(((s, None, a), p) for (s, a), p in pooled.items())]
    found = [
        Finding.model_construct(attribute=s, client=c, attack=a, p_value=p, **shared)
        for (s, c, a), p in every
    ]
    kept = {"question": "attribute", "paper": "p", "needs": ("individual messages",), "words": "w"}
    infos = tuple(AttackInfo(name=a, **kept) for a in {a for _, _, a in p_values})
    parts = found[: len(p_values)], found[len(p_values) :]
    return Audit(run=RUN, attacks=infos, findings=parts[0], pooled=parts[1], skipped=())


def named(audit: Audit) -> tuple[set[str | None], set[tuple[str | None, str]]]:
    found = decide(audit)
    secrets = {topic.attribute for topic, client in found if client is None}
    return secrets, {(topic.attribute, client) for topic, client in found if client is not None}


def test_all_clients_together_come_first():
    one = {("s", "0", "a"): 0.001, ("s", "1", "a"): 0.5}
    assert named(audit_of(one, {("s", "a"): 0.04})) == ({"s"}, {("s", "0")})
    assert named(audit_of(one, {("s", "a"): 0.06})) == (set(), set())


def test_secrets_and_attacks_share_the_error():
    one = {("s", "0", "a"): 0.03}
    assert named(audit_of(one, {("s", "a"): 0.03}))[0] == {"s"}
    two = one | {("t", "0", "a"): 0.9}
    both = {("s", "a"): 0.03, ("t", "a"): 0.9}
    assert named(audit_of(two, both))[0] == set()
    more = {("s", "0", "a"): 0.03, ("s", "0", "b"): 0.9}
    assert named(audit_of(more, {("s", "a"): 0.03, ("s", "b"): 0.9}))[0] == set()


def test_clients_by_holm_s_method():
    p = {("s", str(k), "a"): x for k, x in enumerate([0.012, 0.016, 0.024, 0.2])}
    assert named(audit_of(p, {("s", "a"): 0.0}))[1] == {("s", "0"), ("s", "1"), ("s", "2")}
    p["s", "0", "a"] = 0.013
    assert named(audit_of(p, {("s", "a"): 0.0}))[1] == set()


def test_what_is_left_over_goes_to_other_secrets():
    p = {("s", "0", "a"): 1e-9, ("t", "0", "a"): 0.04}
    pooled = {("s", "a"): 1e-9, ("t", "a"): 0.04}
    assert named(audit_of(p, pooled))[0] == {"s", "t"}
    p["s", "1", "a"] = 0.5  # not all of s is exposed: nothing is left over
    assert named(audit_of(p, pooled))[0] == {"s"}


@pytest.mark.parametrize("clients", [6, 100])
def test_uniform_p_values_are_called_exposed_and_unclear_as_often_as_stated(clients: int):
    """Rarely, and not never: a rule that is silent would keep its promise too."""
    rng, levels = np.random.default_rng(clients), Counter[str]()
    for _ in range(200):
        p = {
            (s, str(c), a): float(rng.random()) for s in "st" for c in range(clients) for a in "ab"
        }
        pooled = {(s, a): float(rng.random()) for s in "st" for a in "ab"}
        levels[audit_of(p, pooled).level] += 1
    for share, times in ((0.05, levels[EXPOSED]), (0.15, levels[EXPOSED] + levels[UNCLEAR])):
        assert 0.4 * share * 200 <= times <= share * 200 + 2 * np.sqrt(200 * share * (1 - share))
    assert sum(levels.values()) == levels[EXPOSED] + levels[UNCLEAR] + levels[NO_SIGN]


@pytest.mark.parametrize(
    ("high", "clients", "level"), [(0.69, 1, UNCLEAR), (0.69, 99, NO_SIGN), (0.55, 99, UNCLEAR)]
)
def test_a_model_nearer_than_every_guess_is_unclear_by_a_test(high, clients, level):
    """The more looks there are, the farther it must be from the guess; nothing is compared with
    nothing."""
    shared = {"question": "local_model", "metric": "excess_loss", "n": 100}
    ours = {"attack": "a", "value": 0.4, "low": 0.3, "high": high, "p_value": 0.9, **shared}
    free = {"attack": "g", "value": 0.7, "low": 0.6, "high": 0.8, **shared}
    names = [str(k) for k in range(clients)]
    kept = {"question": "local_model", "paper": "p", "words": "w"}
    needs = {"a": ("individual messages",), "g": ()}
    infos = tuple(AttackInfo(name=n, needs=of, **kept) for n, of in needs.items())
    made = [Finding(client=c, **one) for c in names for one in (ours, free)]
    both = (tuple(made), tuple(f for f in made if f.attack == "a"))
    levels = [
        Audit(run=RUN, attacks=infos, findings=some, pooled=(), skipped=()).level for some in both
    ]
    assert levels == [level, NOT_MEASURED]


def test_an_interval_that_is_none_is_refused():
    found = audit_of({("s", "0", "a"): 0.5}, {}).findings[0].model_dump()
    for wrong in ({"low": 0.8, "high": 0.2}, {"high": 1.2}, {"value": 0.9}, {"p_value": 1.5}):
        with pytest.raises(
            ValueError, match=r"not in this order|outside 0 to 1|less than or equal"
        ):
            Finding.model_validate(found | wrong)
    for certain, right, match in ((11, 3, "11 of 10 records"), (3, 4, "4 of 3 are right")):
        sure = {"bits": 0.1, "certain": certain, "certain_right": right}
        with pytest.raises(ValueError, match=match):
            Finding.model_validate(found | {"calibration": sure})


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


def test_accusations_by_fisher_s_test():
    table = [[3, 2], [1, 44]]  # 5 accused, 3 of them among the 4 of 50 that have it
    assert found_p_value(3, 5, 4, 50) == pytest.approx(fisher_exact(table, "greater").pvalue)


def test_what_is_surer_than_right_is_said():
    hits = np.repeat([1.0, 0.0], [60, 40])
    told = overconfident(Posterior(np.full(100, 0.97), hits, hits))
    assert told == "97% sure on average, and right for 60%"
    assert overconfident(Posterior(np.full(100, 0.63), hits, hits)) == ""
    few = np.repeat([1.0, 0.0], [6, 4])
    assert overconfident(Posterior(np.full(10, 0.8), few, few)) == ""


# --- intervals; how often they contain what they should is simulated in tests/numbers


def test_share_interval_is_wilsons():
    for right, n in (*((right, 7) for right in range(8)), (0, 1), (1, 1), (95, 100)):
        wilson = binomtest(right, n).proportion_ci(0.9, method="wilson")
        mine = share_interval(np.repeat([1.0, 0.0], [right, n - right]), 0.9)
        assert mine == pytest.approx((wilson.low, wilson.high))


def test_clustered_shares_stay_shares_and_are_never_surer_than_their_records():
    perfect = [np.ones(30), np.ones(50)]
    assert clustered_interval(perfect, share=True) == share_interval(np.ones(80))
    nearly = [np.ones(30), np.concatenate([np.ones(49), [0.0]])]
    low, high = clustered_interval(nearly, share=True)
    least, most = share_interval(np.concatenate(nearly))
    assert 0 < low <= least
    assert most <= high < 1

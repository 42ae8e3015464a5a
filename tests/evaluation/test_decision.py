"""How many looks an audit takes is paid for."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.evaluation.decision import decide
from overheard.evaluation.record import AttackInfo, Audit, Finding, Pooled, Run

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
    one = Finding(attack="", paper="p", threat="t", client="", seconds=0, seed=0, **shared)
    findings = [
        one.model_copy(update={"attribute": s, "client": c, "attack": a, "p_value": p})
        for (s, c, a), p in p_values.items()
    ]
    rows = [
        Pooled(attack=a, attribute=s, clients=2, p_value=p, **shared)
        for (s, a), p in pooled.items()
    ]
    names = {a for _, _, a in p_values}
    infos = [
        AttackInfo(
            name=a, question="attribute", paper="p", needs=("individual updates",), words="w"
        )
        for a in names
    ]
    return Audit(
        run=RUN, attacks=tuple(infos), findings=tuple(findings), pooled=tuple(rows), skipped=()
    )


def named(audit: Audit) -> tuple[set[str | None], set[tuple[str | None, str]]]:
    found = decide(audit)
    return {t.attribute for t in found.topics}, {(t.attribute, c) for t, c in found.clients}


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
def test_uniform_p_values_are_rarely_called_exposed(clients: int):
    rng = np.random.default_rng(clients)
    wrong = 0
    for _ in range(200):
        p = {
            (s, str(c), a): float(rng.random()) for s in "st" for c in range(clients) for a in "ab"
        }
        pooled = {(s, a): float(rng.random()) for s in "st" for a in "ab"}
        wrong += any(named(audit_of(p, pooled)))
    assert wrong <= 0.05 * 200 + 2 * np.sqrt(200 * 0.05 * 0.95)


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
            Finding.model_validate(found | {"sure": sure})

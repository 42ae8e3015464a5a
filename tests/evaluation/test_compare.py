"""Two audits side by side: a real rise is found, chance is not called one."""

from __future__ import annotations

import numpy as np

from overheard.evaluation.audit import audit
from overheard.evaluation.compare import Compared, Side, compare
from overheard.evaluation.intervals import share_interval
from overheard.transcript.threat import EAVESDROPPER, SERVER

ATTACKS = ("max_entropy", "majority")


def test_a_network_leaks_more_than_a_linear_model(federate):
    linear = audit(federate(rounds=2, participation=1.0), EAVESDROPPER, ATTACKS, targets=["s"])
    model = {"name": "mlp", "hidden": [60]}
    network = audit(
        federate(model, rounds=2, participation=1.0), EAVESDROPPER, ATTACKS, targets=["s"]
    )
    found = compare(linear, network)
    (row,) = found.rows
    assert row.change == "rose"
    assert found.rose
    assert row.before.attack == row.after.attack == "max_entropy"
    assert ("model.hidden", "[]", "[60]") in found.changed
    assert compare(network, linear).rows[0].change == "fell"
    assert not compare(linear, linear, clients=True).rose
    assert len(compare(linear, network, clients=True).rows) == 1 + 4


def test_other_threats_and_clients_are_not_comparable(federate):
    one = audit(federate(), EAVESDROPPER, ATTACKS)
    assert compare(one, audit(federate(), SERVER, ATTACKS)).differs
    assert compare(one, audit(federate(clients=3), EAVESDROPPER, ATTACKS)).differs
    assert compare(one, one).differs == ()
    assert compare(one, one).cautions == ()
    damaged = one.model_copy(update={"run": one.run.model_copy(update={"damage": ("a", "b")})})
    (caution,) = compare(one, damaged).cautions
    assert caution.startswith("after: 2 part(s) of a damaged recording were left out")


def test_copies_of_a_model_are_equally_exact():
    """1e-9 and 1e-12 above the optimum are the same copy."""
    from overheard.evaluation.compare import _leak
    from overheard.evaluation.record import Pooled

    def loss(value):
        return Pooled(attack="a", question="local_model", metric="excess_loss", value=value,
                      low=value / 2, high=value * 2, clients=1, n=10)  # fmt: skip

    assert _leak(loss(1e-9)) == _leak(loss(1e-12))
    assert _leak(loss(0.01))[0] > _leak(loss(0.1))[0]
    low, high = _leak(loss(0.01))[1:]
    assert low < high


def test_the_interval_of_a_difference_covers(rng):
    """Both shares 0.7: a rise is announced in at most about 2.5 of 100 comparisons."""
    rises = 0
    for _ in range(1000):
        ends = []
        for _ in range(2):
            hits = (rng.random(300) < 0.7).astype(np.float64)
            ends.append((hits.mean(), *share_interval(hits)))
        (a, _, a_high), (b, b_low, _) = ends
        rises += b - a - np.hypot(b - b_low, a_high - a) > 0
    assert 8 <= rises <= 45


def test_changes_in_words():
    side = Side("a", 0.5, 0.4, 0.6, 0.1, 10)

    def row(low, high):
        return Compared("s", "accuracy", None, side, side, (low + high) / 2, low, high)

    assert row(0.01, 0.2).change == "rose"
    assert row(-0.2, -0.01).change == "fell"
    assert row(-0.1, 0.1).change == "no change shown"

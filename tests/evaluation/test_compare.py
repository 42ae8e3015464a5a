"""Two audits side by side: a real rise is found, chance is not called one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from federations import recorded

from experiments.robustness import compare as script
from overheard.evaluation.audit import audit
from overheard.evaluation.compare import compare
from overheard.evaluation.record import Skipped
from overheard.transcript.threat import EAVESDROPPER, SERVER

pytestmark = pytest.mark.slow

ATTACKS = ("max_entropy", "majority")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("compare") / "run", rounds=10)


@pytest.fixture(scope="module")
def one(run):
    return audit(run, EAVESDROPPER, ATTACKS, targets=["s"])


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


def test_other_threats_and_clients_are_not_comparable(one, run, federate):
    assert compare(one, audit(run, SERVER, ATTACKS)).differs
    assert compare(one, audit(federate(clients=3), EAVESDROPPER, ATTACKS)).differs
    assert compare(one, one).differs == ()
    assert compare(one, one).changed == ()


def test_the_strongest_attack_of_each_side_counts(run):
    """Whatever order they come in; what needs no listening does not."""
    record = audit(run, EAVESDROPPER, (*ATTACKS, "model_based_global"), targets=["s"])
    ours, free = (next(p for p in record.pooled if p.attack == name) for name in ATTACKS)
    weak = ours.model_copy(update={"attack": "model_based_global", "lift": -0.3})
    free, strong = (p.model_copy(update={"lift": x}) for p, x in ((free, 0.9), (ours, 0.2)))
    for order in ((weak, free, strong), (strong, weak, free)):
        (row,) = compare(record, record.model_copy(update={"pooled": order})).rows
        assert row.after.attack == "max_entropy"
        assert row.after.lift == 0.2


def test_what_is_not_the_same_is_named(one, run):
    part = audit(run, EAVESDROPPER, ATTACKS, ["0"], ["s"])
    assert compare(one, part).differs == ("audited clients: 0, 1, 2 and 1 more and 0",)
    nothing = one.model_copy(update={"pooled": ()})
    assert compare(one, nothing).differs == ("no secret was measured in both",)
    fewer = audit(run, EAVESDROPPER, ATTACKS[:1], targets=["s"])
    software = {**fewer.run.software, "overheard": "0.0.1"}
    older = fewer.model_copy(update={"run": fewer.run.model_copy(update={"software": software})})
    changed = {name: there for name, *there in compare(older, one).changed}
    assert changed["attacks"] == ["max_entropy", "majority, max_entropy"]
    assert changed["overheard"][0] == "0.0.1"


def test_what_learned_most_before_must_run_again(run):
    """Else nothing could rise. Whether it was left out, skipped, or does not trust itself."""
    names = ("max_entropy", "model_based_global", "majority")
    one = audit(run, EAVESDROPPER, names, targets=["s"])
    assert compare(one, one).lost == ()
    fewer = audit(run, EAVESDROPPER, names[1:], targets=["s"])
    (line,) = compare(one, fewer).lost
    assert line.startswith("max_entropy, which learned most about s before, gave no answer")
    assert line.endswith("for 4 of 4 client(s): it was not tried")
    assert compare(fewer, one).lost == ()
    skip = Skipped(attack="max_entropy", client="2", attribute="s", reason="too slow")
    (line,) = compare(one, fewer.model_copy(update={"skipped": (skip,)})).lost
    assert line.endswith(": too slow")
    flagged = tuple(
        f.model_copy(update={"details": {"flag": "poor fit"}})
        if (f.attack, f.client) == ("max_entropy", "1")
        else f
        for f in one.findings
    )
    (line,) = compare(one, one.model_copy(update={"findings": flagged})).lost
    assert line.endswith("for 1 of 4 client(s): poor fit")
    # a guess does not count, however well it did
    only = audit(run, EAVESDROPPER, ["majority"], targets=["s"])
    found = compare(only, one)
    assert (found.rows, found.lost) == ((), ())
    assert found.differs == ("no secret was measured in both",)


def test_clients_that_did_not_train_as_declared_are_no_measurement(one):
    bad = [r.model_copy(update={"outcome": "does not fit"}) for r in one.replays[:1]]
    unfit = one.model_copy(update={"replays": (*bad, *one.replays[1:])})
    (line,) = compare(one, unfit).differs
    assert line.startswith("after, 0 did not train as declared")


def test_all_rows_hold_together_and_agree_on_the_difference():
    """More rows, wider intervals, and the same difference of lifts."""
    world = replace(script.RISEN[0], clients=4, records=80)
    before, after = script.drawn(world, np.random.default_rng(0))
    whole = compare(before, after).rows[0]
    (again, *singles) = compare(before, after, True).rows
    assert again.low < whole.low < whole.high < again.high
    lifts = [x.pooled[0].lift for x in (before, after)]
    assert whole.difference == pytest.approx(lifts[1] - lifts[0])
    assert np.mean([row.difference for row in singles]) == pytest.approx(whole.difference)
    # what guessing gets is taken off
    easier = after.model_copy(
        update={
            "findings": tuple(
                f.model_copy(update={"majority": 0.6, "lift": f.value - 0.6})
                for f in after.findings
            )
        }
    )
    shifted = compare(before, easier).rows[0]
    assert shifted.difference == pytest.approx(whole.difference - 0.1)
    assert shifted.low == pytest.approx(whole.low - 0.1)


@pytest.mark.parametrize("world", script.RISEN[1:3], ids=lambda w: w.what)
def test_a_rise_of_ten_points_is_seen(world):
    """``python -m experiments run robustness-compare`` does so with many more worlds."""
    assert script.rises(world, 40) >= 0.7


@pytest.mark.parametrize("world", [script.NO_RISE[0], script.NO_RISE[3]], ids=lambda w: w.what)
def test_chance_is_rarely_called_a_rise(world):
    assert script.rises(world, 60) <= 0.05

"""Two audits side by side: a real rise is found, chance is not called one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import recorded

from experiments.robustness import compare as script
from overheard.errors import FixRecording
from overheard.evaluation.audit import audit
from overheard.evaluation.compare import HITS, about, compare, hits_json, read_hits
from overheard.evaluation.record import Skipped, read_audit
from overheard.evaluation.scoring import Scored
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
    assert compare(one, one).cautions == ()
    damaged = one.model_copy(update={"run": one.run.model_copy(update={"damage": ("a", "b")})})
    (caution,) = compare(one, damaged).cautions
    assert caution.startswith("after: 2 part(s) of a damaged recording were left out")


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
    (caution,) = compare(one, fewer).cautions
    assert "(only before: majority)" in caution
    software = {**one.run.software, "overheard": "0.0.1"}
    older = one.model_copy(update={"run": one.run.model_copy(update={"software": software})})
    (caution,) = compare(older, one).cautions
    assert caution.startswith("made by different versions: 0.0.1, ")


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


def drawn(**changes):
    """Two audits of a world, with their hits."""
    world = replace(script.RISEN[0], **changes)
    return script.drawn(world, np.random.default_rng(0))


def test_pairs_by_record_by_client_or_says_that_it_does_not():
    (before, one), (after, other) = drawn(clients=3, records=50)
    found = compare(before, after, hits=(one, other))
    assert [row.paired for row in found.rows] == ["records"]
    assert found.unpaired == ()
    found = compare(before, after)
    assert [row.paired for row in found.rows] == ["clients"]
    assert found.unpaired[0].startswith("records could not be paired: no hits.json (before and")
    found = compare(before, after, hits=(one, {}))
    assert found.unpaired[0].startswith("records could not be paired: no hits.json (after)")
    strangers = {
        key: guessed.model_copy(update={"records": "others"}) for key, guessed in other.items()
    }
    found = compare(before, after, True, (one, strangers))
    assert [row.paired for row in found.rows] == ["clients", "nothing", "nothing", "nothing"]
    assert "not the same records" in found.unpaired[0]
    assert found.unpaired[1].endswith("s0 of 0, s0 of 1, s0 of 2")
    assert found.to_dict()["rows"][0]["paired"] == "clients"


def test_all_rows_hold_together_and_agree_on_the_difference():
    """More rows, wider intervals; however they are paired, the same difference of lifts."""
    (before, one), (after, other) = drawn(clients=4, records=80)
    whole = compare(before, after, hits=(one, other)).rows[0]
    (again, *singles) = compare(before, after, True, (one, other)).rows
    assert again.low < whole.low < whole.high < again.high
    lifts = [x.pooled[0].lift for x in (before, after)]
    assert whole.difference == pytest.approx(lifts[1] - lifts[0])
    assert compare(before, after).rows[0].difference == pytest.approx(whole.difference)
    assert np.mean([row.difference for row in singles]) == pytest.approx(whole.difference)
    # what guessing gets is taken off
    easier = after.model_copy(
        update={"findings": tuple(f.model_copy(update={"majority": 0.6}) for f in after.findings)}
    )
    shifted = compare(before, easier, hits=(one, other)).rows[0]
    assert shifted.difference == pytest.approx(whole.difference - 0.1)
    assert shifted.low == pytest.approx(whole.low - 0.1)


def test_hits_are_looked_up_for_each_sides_own_attack():
    (before, one), (after, other) = drawn(clients=2, records=40, attacks=2, rise=0.0)
    row = compare(before, after, hits=(one, other)).rows[0]
    sides = ((before, one, row.before), (after, other, row.after))
    mine = [h[about(f)].bits for x, h, side in sides for f in x.findings if f.attack == side.attack]
    assert row.difference == pytest.approx(np.mean(mine[2:]) - np.mean(mine[:2]))


@pytest.mark.parametrize("world", script.RISEN[2:4], ids=lambda w: w.what)
def test_a_rise_of_ten_points_is_seen(world):
    """``python -m experiments run robustness-compare`` does so with many more worlds."""
    assert script.rises(world, 40) >= 0.7


@pytest.mark.parametrize("world", [script.NO_RISE[0], script.NO_RISE[4]], ids=lambda w: w.what)
def test_chance_is_rarely_called_a_rise(world):
    assert script.rises(world, 60) <= 0.05


# --- hits beside an audit: only where asked for, for the owner alone; what lies is refused


FEW = ("--attack", "max_entropy", "--attack", "majority", "--target", "s")


def test_they_are_kept_where_asked_for_and_pair_records(workplace: Any) -> None:
    workplace.overheard("simulate", "federation.toml", "--out", "run")
    done = workplace.overheard("audit", "run", "--out", "one", "--keep-hits", *FEW)
    assert done.returncode == 0, done.stderr
    assert "hits.json: which records were guessed right" in done.stdout
    one = workplace.path / "one"
    assert sorted(p.name for p in one.iterdir()) == ["audit.json", HITS, "report.html"]
    assert (one / HITS).stat().st_mode & 0o777 == 0o600
    audit = read_audit(one / "audit.json")
    hits = read_hits(one / HITS, audit)
    assert len(hits) == len(audit.findings)
    for found in audit.findings:
        guessed = hits[about(found)]
        assert guessed.bits.mean() == pytest.approx(found.value)
    assert len({guessed.records for guessed in hits.values()}) == 3  # one for each client
    done = workplace.overheard("compare", "one/audit.json", "one/audit.json", "--json")
    assert done.returncode == 0
    (row,) = json.loads(done.stdout)["rows"]
    assert row["paired"] == "records"
    assert (row["difference"], row["low"] < 0 < row["high"]) == (0.0, True)
    # without asking there are none, and clients are paired
    done = workplace.overheard("audit", "run", "--out", "two", *FEW)
    assert done.returncode == 0, done.stderr
    assert {p.name for p in (workplace.path / "two").iterdir()} == {"audit.json", "report.html"}
    done = workplace.overheard("compare", "one/audit.json", "two/audit.json")
    assert done.returncode == 0
    assert "records could not be paired: no hits.json (after)" in " ".join(done.stdout.split())
    # what learned most before must run again
    done = workplace.overheard("audit", "run", "--out", "three", *FEW[2:])
    assert done.returncode == 0, done.stderr
    done = workplace.overheard("compare", "one/audit.json", "three/audit.json")
    assert done.returncode == 1
    assert "not measured now: max_entropy, which learned most about s before" in done.stderr


@pytest.fixture
def kept(workplace: Any) -> Any:
    """``one/``: an audit of two clients of 30 records, made by hand, with its hits."""
    world = replace(script.RISEN[0], clients=2, records=30)
    (audit, hits), _ = script.drawn(world, np.random.default_rng(0))
    folder = workplace.path / "one"
    folder.mkdir()
    (folder / "audit.json").write_text(audit.to_json())
    scored = [
        Scored(f, hits[about(f)].bits.astype(np.float64), None, None, "the same")
        for f in audit.findings
    ]
    (folder / HITS).write_text(hits_json(scored))
    return workplace


def damaged(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / HITS).read_text())
    content["lines"][0] |= changes
    (folder / HITS).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"about": ["other", "attribute", "s", "0"]}, "line 0 is not what the audit beside it"),
        ({"right": "1"}, "line 0 is not what the audit beside it found"),
        ({"right": "0" * 30}, "line 0 is not what the audit beside it found"),
        ({"right": ""}, "lines.0.right: String should match"),
        ({"right": "AAAAAA=="}, "lines.0.right: String should match"),
        ({"extra": 1}, "lines.0.extra: Extra inputs"),
    ],
)
def test_a_file_that_lies_is_refused_in_a_line(kept: Any, changes: Any, complaint: str) -> None:
    one = kept.path / "one"
    damaged(one, **changes)
    with pytest.raises(FixRecording, match=complaint):
        read_hits(one / HITS, read_audit(one / "audit.json"))
    done = kept.overheard("compare", "one/audit.json", "one/audit.json")
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1


def test_there_may_be_none_but_not_a_trap(kept: Any) -> None:
    audit = read_audit(kept.path / "one" / "audit.json")
    assert read_hits(kept.path / HITS, audit) == {}
    (kept.path / HITS).symlink_to(kept.path / "nowhere")
    with pytest.raises(FixRecording, match="cannot be read"):
        read_hits(kept.path / HITS, audit)

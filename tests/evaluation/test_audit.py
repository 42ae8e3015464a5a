"""The audit: everything that applies is run, scored and compared; the rest is listed."""

from __future__ import annotations

import numpy as np
import pytest
from federations import recorded

from overheard.attacks import all_attacks
from overheard.evaluation.audit import _pool, audit
from overheard.evaluation.notes import flag_notes
from overheard.evaluation.record import Finding
from overheard.evaluation.resume import Kept
from overheard.evaluation.scoring import Scored
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

QUICK = tuple(
    name
    for name, attack in all_attacks().items()
    if attack.question in ("attribute", "local_model")
    and not {"learned_map", "gumbel", "l2_lbfgs", "cos_matching"} & {name}
)


def without_seconds(record):
    return [f.model_copy(update={"seconds": 0.0}) for f in record.findings]


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    run = recorded(tmp_path_factory.mktemp("audit") / "run", rounds=10)
    return audit(run, EAVESDROPPER, QUICK)


def test_every_attack_is_either_found_or_skipped_with_a_reason(record):
    for name in QUICK:
        for client in record.run.clients:
            found = any(f.attack == name and f.client == client for f in record.findings)
            skipped = [s for s in record.skipped if s.attack == name and s.client == client]
            assert found != bool(skipped)
            assert all(s.reason for s in skipped)
    assert {a.name for a in record.attacks} == set(QUICK)


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_what_was_kept_is_not_done_again_and_what_was_not_is(federate, tmp_path, share):
    """An audit stopped anywhere, also among the attacks on one client."""
    recording, names = federate(), ("majority", "max_entropy", "model_based_linear")
    folder = tmp_path / "kept"
    folder.mkdir()
    whole = audit(recording, EAVESDROPPER, names, kept=Kept(folder))
    pieces = sorted(folder.iterdir())
    for piece in pieces[int(share * len(pieces)) :]:
        piece.unlink()
    again = audit(recording, EAVESDROPPER, names, kept=Kept(folder))
    assert without_seconds(again) == without_seconds(whole)
    assert (again.pooled, again.skipped) == (whole.pooled, whole.skipped)
    assert sorted(folder.iterdir()) == pieces
    seconds = {(f.attack, f.client): f.seconds for f in whole.findings}
    same = [f.seconds == seconds[f.attack, f.client] for f in again.findings]
    assert np.mean(same) == pytest.approx(share, abs=0.2)


def test_findings_carry_what_honesty_needs(record):
    for finding in record.findings:
        assert finding.low <= finding.value <= finding.high
        assert finding.n == 120
        if finding.metric == "accuracy":
            assert 0.5 <= finding.majority <= 1.0
            assert 0.0 <= finding.imputation <= 1.0
            best = max(finding.majority, finding.imputation)
            assert finding.lift == pytest.approx(finding.value - best)
    bounded = [f for f in record.findings if f.bound is not None]
    assert {f.attack for f in bounded} == {"model_based_linear"}
    assert all(f.value >= f.bound - 1e-9 for f in bounded)


def test_pooled_rows_are_the_means_of_all_records(record):
    for row in record.pooled:
        members = [
            f for f in record.findings if (f.attack, f.attribute) == (row.attack, row.attribute)
        ]
        members = [f for f in members if not f.flag] or members  # flagged ones are left out
        mean = np.average([f.value for f in members], weights=[f.n for f in members])
        assert row.value == pytest.approx(mean)
        assert row.low <= row.value <= row.high
        assert row.clients == len(members)


def error_of(client: str, errors: list[float], stranger: list[float] | None) -> Scored:
    units = np.array(errors)
    value = float(units.mean())
    finding = Finding(
        attack="a", paper="p", question="label", threat="t", client=client, seconds=0.0, seed=0,
        metric="mean_absolute_error", value=value, low=value, high=value, n=len(units),
    )  # fmt: skip
    return Scored(finding, units, None if stranger is None else np.array(stranger), None)


def test_pooled_errors_are_set_against_a_stranger_s():
    """The mean over all records, an interval that ends at zero, and a lift that falls with it."""
    mine = [error_of("0", [0.0, 4.0], [3.0, 5.0]), error_of("1", [2.0], [7.0])]
    (row,) = _pool(mine, frozenset({"a"}))
    assert (row.metric, row.clients, row.n) == ("mean_absolute_error", 2, 3)
    assert row.value == pytest.approx(2.0)
    assert row.low == 0.0 < row.value < row.high
    assert row.majority is None
    assert (row.imputation, row.lift) == (pytest.approx(5.0), pytest.approx(3.0))
    (row,) = _pool([mine[0], error_of("1", [2.0], None)], frozenset({"a"}))
    assert (row.imputation, row.lift) == (None, None)


def test_what_flags_itself_is_noted_once_with_its_clients(record):
    found = [f for f in record.findings if f.attack == "max_entropy"]
    assert all("rare_f1" in f.details and "balanced_accuracy" in f.details for f in found)
    plain = [f.model_copy(update={"details": {}}) for f in found]
    assert flag_notes(plain) == ()
    flagged = [f.model_copy(update={"details": {"flag": "poor fit: words"}}) for f in found]
    (note,) = flag_notes(flagged)
    assert note.startswith("max_entropy on s flags its own answer for 0, 1")
    assert note.endswith("poor fit: words.")

"""What the guard reads from an audit of one client's messages, beside the limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clients import config, table

from overheard.errors import FixConfig
from overheard.evaluation.audit import audit
from overheard.evaluation.record import Audit, Finding, Replay, Skipped
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.guard.exposure import Exposure, Limits, answer_of, exposures, worst_draw
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

QUIET = Exposure("a", 100, 0.6, 0.5, 0.7, 0.6, 0, 0.0, 0.0)
ME, LIMITS = "site 0", Limits()


def changed(one: Exposure, **changes: Any) -> Exposure:
    return Exposure(**{**vars(one), **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A client whose noise hides its secret."""
    folder = tmp_path_factory.mktemp("client")
    noise = [{"name": "gaussian", "sd": 10.0}]
    ready = plan(config(table(folder, 40), defence=noise))
    return Recording.open(simulate(ready, folder / "run"))


@pytest.fixture(scope="module")
def found(run: Recording) -> Audit:
    return audit(run, EAVESDROPPER)


def with_finding(found: Audit, attack: str, **changes: Any) -> Audit:
    """The audit, in which this attack found something else."""
    findings = tuple(
        Finding(**{**dict(f), **changes}) if f.attack == attack else f for f in found.findings
    )
    return found.model_copy(update={"findings": findings})


def read(run: Recording, found: Audit) -> Exposure:
    (one,) = exposures(run, found, ME, LIMITS)
    return one


def test_each_limit_stops_by_itself() -> None:
    limits = Limits(bits=0.1, entropy=0.2, certain=0.05)
    assert QUIET.answer(limits) == "ok"
    for changes in ({"bits": 0.11}, {"share": 0.21}, {"certain": 6}, {"exposed": "by its rule"}):
        loud = changed(QUIET, **changes)
        assert len(loud.beyond(limits)) == 1
        assert loud.answer(limits) == "too much"
    for doubt in ({"doubt": "poor fit"}, {"p_values": {"x": 0.2}}, {"evidence": {"x": 0.6}}):
        assert changed(QUIET, **doubt).answer(limits) == "not known"
    assert changed(QUIET, p_values={"x": 0.4}, evidence={"x": 0.4}).answer(limits) == "ok"
    with pytest.raises(FixConfig, match="entropy = -1"):
        Limits(entropy=-1)


def test_the_worst_secret_counts_and_none_is_not_known() -> None:
    doubted, loud = changed(QUIET, doubt="poor fit"), changed(QUIET, bits=1.0)
    assert answer_of([QUIET], LIMITS) == "ok"
    assert answer_of([QUIET, doubted], LIMITS) == "not known"
    assert answer_of([doubted, QUIET, loud], LIMITS) == "too much"
    assert answer_of([], LIMITS) == "not known"


def test_a_hidden_secret_is_ok_and_every_figure_is_the_audits(run: Recording, found: Audit) -> None:
    one = read(run, found)
    assert one.answer(LIMITS) == "ok"
    best = max(f.value for f in found.findings if f.attack in found.listening)
    assert (one.name, one.value, one.records) == ("s", best, 40)
    tested = {f.attack: f.p_value for f in found.findings if f.attack in found.listening}
    assert dict(one.p_values) == tested


def test_what_the_audit_doubts_is_not_known(run: Recording, found: Audit) -> None:
    flagged = with_finding(found, "max_entropy", details={"flag": "poor fit"}, p_value=None)
    assert "max_entropy: poor fit" in read(run, flagged).doubt
    assert read(run, flagged).answer(LIMITS) == "not known"
    for off, far in ((0.5, "50.0% of the update"), (1e9, "more than ten times the update")):
        strange = Replay(client=ME, outcome="does not fit", off=off, by_chance=0.1)
        unfit = read(run, found.model_copy(update={"replays": (strange,)}))
        assert f"off by {far}, and chance explains 10.0%" in unfit.doubt
        assert unfit.answer(LIMITS) == "not known"


def test_what_the_audit_exposes_is_too_much_whatever_the_limits(
    run: Recording, found: Audit
) -> None:
    pooled = tuple(
        p.model_copy(update={"p_value": 1e-9}) if p.attack == "max_entropy" else p
        for p in found.pooled
    )
    known = with_finding(found.model_copy(update={"pooled": pooled}), "max_entropy", p_value=1e-9)
    one = read(run, known)
    assert one.beyond(Limits(9.0, 9.0, 9.0)) == ["exposed, by the audit's own rule"]


def test_what_no_attack_reads_is_not_known(run: Recording, found: Audit) -> None:
    silent = [f for f in found.findings if f.attack not in found.listening]
    skipped = [
        Skipped(attack=name, client=ME, attribute="s", reason="does not apply")
        for name, question in found.questions.items()
        if name in found.listening and question == "attribute"
    ]
    update = {"findings": tuple(silent), "pooled": (), "skipped": tuple(skipped)}
    one = read(run, found.model_copy(update=update))
    assert one.doubt == "no attack could run: does not apply"
    assert one.answer(LIMITS) == "not known"


def test_what_a_guess_makes_certain_is_not_made_certain_by_listening(tmp_path: Path) -> None:
    """One of 200 has the value: calling nobody so is certain enough by the prior."""
    noise = [{"name": "gaussian", "sd": 10.0}]
    ready = plan(config(table(tmp_path, 200, rare=True), defence=noise))
    run = Recording.open(simulate(ready, tmp_path / "run"))
    found = audit(run, EAVESDROPPER)
    sure = [
        f.calibration.certain for f in found.findings if f.attack == "max_entropy" and f.calibration
    ]
    assert sure == [200]
    assert read(run, found).certain == 0


def test_draws_are_one_answer_the_worst_and_of_hints_the_typical() -> None:
    one = changed(QUIET, p_values={"x": 0.1}, evidence={"x": 1.0}, certain=1, seconds=1.0)
    two = changed(QUIET, p_values={"x": 0.9}, evidence={"x": -1.0}, bits=0.05, seconds=2.0)
    both = worst_draw([one, two])
    assert both.p_values == {"x": pytest.approx(0.5)}
    assert both.evidence == {"x": 0.0}
    assert (both.certain, both.bits, both.seconds) == (1, 0.05, 3.0)
    assert worst_draw([one, changed(two, doubt="poor fit")]).answer(Limits(certain=1)) != "ok"

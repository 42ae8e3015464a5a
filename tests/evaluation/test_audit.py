"""The audit: everything that applies is run, scored and compared; the rest is listed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from federations import recorded, simulated
from report_words import without_seconds

import overheard
from overheard import attacks
from overheard.attacks import all_attacks
from overheard.attacks.baselines import LastReturned
from overheard.errors import FixConfig, FixRecording
from overheard.evaluation.audit import audit, flag_notes, promise_notes
from overheard.evaluation.parts import AuditOptions
from overheard.evaluation.record import VERSION, Finding, read_audit
from overheard.evaluation.scoring import Scored, pooled
from overheard.report.html import render, render_markdown
from overheard.transcript.guess import LocalModel
from overheard.transcript.knowledge import Messages
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import View

pytestmark = pytest.mark.slow

QUICK = tuple(
    name
    for name, attack in all_attacks().items()
    if attack.question in ("attribute", "local_model")
    and not {"learned_map", "gumbel", "l2_lbfgs", "cos_matching"} & {name}
)


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


def test_findings_carry_what_honesty_needs(record):
    for finding in record.findings:
        assert finding.low <= finding.value <= finding.high
        assert finding.n == 120
        if finding.metric == "accuracy":
            assert 0.5 <= finding.majority <= 1.0
            assert 0.0 <= finding.imputation <= 1.0
            best = max(finding.majority, finding.imputation)
            assert finding.lift == pytest.approx(finding.value - best)


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
    _, (row,) = pooled(mine, frozenset({"a"}))
    assert (row.metric, row.clients, row.n) == ("mean_absolute_error", 2, 3)
    assert row.value == pytest.approx(2.0)
    assert row.low == 0.0 < row.value < row.high
    assert row.majority is None
    assert (row.imputation, row.lift) == (pytest.approx(5.0), pytest.approx(3.0))
    _, (row,) = pooled([mine[0], error_of("1", [2.0], None)], frozenset({"a"}))
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


@dataclass(frozen=True)
class Returned:
    """Takes the model that the client returned ``back`` rounds before its last."""

    name: ClassVar[str] = "returned"
    paper: ClassVar[str] = "none"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Messages})
    back: int = 0

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        model = view.know(Messages).returned[-1 - self.back].astype(np.float64)
        return LocalModel(model, np.full(len(model), np.nan), 0)


def test_an_attack_with_settings_of_its_own(federate: Any) -> None:
    recording = federate(rounds=6, participation=1.0)
    asked = {"threat": EAVESDROPPER, "clients": ["0"], "targets": ["local_model"]}
    asked["options"] = AuditOptions(rounds=True)
    first, last = (
        overheard.audit(recording, attacks=[Returned(back), "last_returned"], **asked)
        for back in (5, 0)
    )
    values = [{f.attack: f.value for f in record.findings} for record in (first, last)]
    assert values[0]["returned"] > values[0]["last_returned"]
    assert values[1]["returned"] == values[1]["last_returned"]
    # and the curves are there, of the object that was given
    assert {f.rounds for f in last.curves} == {1, 2, 5, 6}
    with pytest.raises(FixConfig, match="'last_returned' is given twice"):
        overheard.audit(recording, attacks=[LastReturned(), "last_returned"], **asked)


def test_the_command_and_the_function_agree(federate: Any, tmp_path: Any, workplace: Any) -> None:
    recording = federate(rounds=4, participation=1.0)
    names = ["max_entropy", "majority"]
    options = AuditOptions(rounds=True, ladder="brief")
    made = overheard.audit(recording, EAVESDROPPER, names, ["0"], ["s"], options)
    words = [word for name in names for word in ("--attack", name)]
    words += ["--client", "0", "--target", "s", "--out", str(tmp_path / "audit")]
    workplace.done("audit", str(recording.path), *words)
    written = overheard.read_audit(tmp_path / "audit" / "audit.json")
    assert made.findings
    assert made.curves
    assert made.replays
    assert {one.rung for one in made.ladder} == {"colleague", "half"}  # schema takes minutes
    assert [s.question for s in made.secrets] == ["attribute"]
    assert without_seconds(written.to_json()) == without_seconds(made.to_json())


def test_what_another_package_announces_must_be_an_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    """That attacks are found so: tests/examples/test_new_question.py."""
    point = SimpleNamespace(value="theirs:Thing", load=lambda: object)
    monkeypatch.setattr(attacks, "entry_points", lambda group: [point])
    with pytest.raises(FixConfig, match="is no attack: it lacks name, question, needs, paper"):
        attacks.all_attacks.__wrapped__()


# --- the audit's record travels as json and is checked when it comes back


@pytest.fixture
def read(tmp_path):
    """``read(text)``: the audit in a file with this text."""

    def reading(text):
        (tmp_path / "audit.json").write_text(text)
        return read_audit(tmp_path / "audit.json")

    return reading


def test_what_is_written_is_read(record, read):
    assert read(record.to_json()) == record
    assert record.version == VERSION


@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1])
def test_other_versions_are_refused_by_number(record, read, version):
    """Whatever else they have or lack."""
    other = {**json.loads(record.to_json()), "version": version, "seals": []}
    del other["run"]
    with pytest.raises(FixRecording, match=rf"version {version}, .* reads {VERSION} only"):
        read(json.dumps(other))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"findings": [{"attack": 1}]}, "findings.0"),
        ({"surprise": 1}, "surprise"),
        ({"run": None}, "run"),
    ],
)
def test_a_wrong_field_is_named(record, read, change, words):
    with pytest.raises(FixRecording, match=words):
        read(json.dumps({**json.loads(record.to_json()), **change}))


def test_not_a_number_is_no_finding(record, read):
    text = record.to_json().replace(f'"value": {record.findings[0].value}', '"value": NaN', 1)
    with pytest.raises(FixRecording, match="is not an audit"):
        read(text)


# --- what was promised stands in the audit and in its report


def run_with(path: Path, *defences: dict[str, Any]) -> Recording:
    config = {
        "data": {"source": "digits", "options": {"victim": 20, "participants": 2}},
        "model": {"name": "logistic"},
        "training": {"rounds": 2, "learning_rate": 0.1, "batch_size": 10},
        "defence": list(defences),
    }
    return simulated(path, config)


def test_an_audit_and_its_report_say_what_was_promised(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    run = run_with(tmp_path / "run", {"name": "dp_sgd", "clip": 1.0, "noise": 4.0})
    record = audit(run, EAVESDROPPER, ["majority"], ["victim"])
    (note,) = [n for n in record.notes if "Differential privacy" in n]
    promise = run.side("PrivacyBudget")["victim"]
    assert f"epsilon {promise['epsilon']:.3g} for its presence" in note
    assert f"{promise['changed']:.3g} for its values, at delta 1e-05" in note
    assert "DP-SGD: 4 steps, sampling rate 0.5, noise 4" in note
    assert promise["epsilon"] < promise["changed"]
    for page in (render(record), render_markdown(record)):
        assert "Differential privacy promised to a record" in page


class SideOnly:
    """A recording of which only the side knowledge is asked."""

    side_folder = Path("run/side")

    def __init__(self, content: Any) -> None:
        self.content = content

    def side(self, kind: str) -> Any:
        return self.content if kind == "PrivacyBudget" else None


def test_of_several_clients_the_one_promised_least() -> None:
    said = {"delta": 1e-5, "words": "DP-SGD"}
    both = {"a": {"epsilon": 3.0, "changed": 8.0, **said}, "b": {"epsilon": 5.0, **said}}
    note, published = promise_notes(SideOnly(both))  # type: ignore[arg-type]
    assert "does not count what the recipe publishes" in published
    assert "epsilon 5 for its presence, at delta 1e-05 (DP-SGD; client b" in note
    assert "the least of 2" in note
    note, _ = promise_notes(SideOnly(both | {"c": {"epsilon": None, **said}}))  # type: ignore[arg-type]
    assert note == (
        "Differential privacy: none is promised to a record "
        "(DP-SGD; client c, promised the least of 3)."
    )


@pytest.mark.parametrize("content", [{"a": {"epsilon": "x"}}, {"a": 3}, {"a": {}}, [1]])
def test_what_is_no_promise_is_refused(content: Any) -> None:
    with pytest.raises(FixRecording, match="PrivacyBudget is not what the format says"):
        promise_notes(SideOnly(content))  # type: ignore[arg-type]

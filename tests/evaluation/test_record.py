"""The audit's record travels as JSON and is checked when it comes back."""

from __future__ import annotations

import json

import pytest

from overheard.errors import FixRecording
from overheard.evaluation.audit import audit
from overheard.evaluation.record import VERSION, read_audit
from overheard.transcript.threat import SERVER

pytestmark = pytest.mark.slow


@pytest.fixture
def record(federate):
    return audit(federate(rounds=4), SERVER, ["exact_linear", "max_entropy", "majority"])


def test_what_is_written_is_read(record, tmp_path):
    path = tmp_path / "audit.json"
    path.write_text(record.to_json())
    assert read_audit(path) == record
    assert record.version == VERSION


@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1])
def test_other_versions_are_refused_by_number(record, tmp_path, version):
    """Whatever else they have or lack."""
    path = tmp_path / "audit.json"
    other = {**json.loads(record.to_json()), "version": version, "seals": []}
    del other["run"]
    path.write_text(json.dumps(other))
    with pytest.raises(FixRecording, match=rf"version {version}, .* reads {VERSION} only"):
        read_audit(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"findings": [{"attack": 1}]}, "findings.0"),
        ({"surprise": 1}, "surprise"),
        ({"run": None}, "run"),
    ],
)
def test_a_wrong_field_is_named(record, tmp_path, change, words):
    path = tmp_path / "audit.json"
    path.write_text(json.dumps({**json.loads(record.to_json()), **change}))
    with pytest.raises(FixRecording, match=words):
        read_audit(path)


def test_not_a_number_is_no_finding(record, tmp_path):
    text = record.to_json().replace(f'"value": {record.findings[0].value}', '"value": NaN', 1)
    path = tmp_path / "audit.json"
    path.write_text(text)
    with pytest.raises(FixRecording, match="is not an audit"):
        read_audit(path)

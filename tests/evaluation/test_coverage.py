"""Accuracy against the share of a client's records that the adversary knows."""

from __future__ import annotations

import pytest

from overheard.data import digits
from overheard.evaluation.audit import audit
from overheard.evaluation.complete import COVERAGES, by_coverage
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.report.html import render
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    config = parse_config(
        {
            "data": {"source": "digits"},
            "model": {"name": "mlp", "hidden": [32]},
            "training": {"rounds": 1, "learning_rate": 0.1},
        }
    )
    data = digits.load(victim=120, participants=1, attributes=("c043",))
    return Recording.open(simulate(plan(config, data), tmp_path_factory.mktemp("c") / "run"))


def test_the_audit_shows_accuracy_against_coverage(recording):
    record = audit(recording, EAVESDROPPER, ("max_entropy", "majority"))
    line = by_coverage(recording, EAVESDROPPER, record)
    assert [c.coverage for c in line] == list(COVERAGES)
    assert [c.known for c in line] == [12, 30, 60, 90, 108, 120]
    assert all(c.low <= c.value <= c.high for c in line)
    assert line[-1].value == 1.0
    assert line[2].value > line[2].majority
    page = render(record.model_copy(update={"covered": line}))
    assert "If only some of the records are known" in page
    assert "c043 by share of records known" in page
    assert "If only some of the records are known" not in render(record)


def test_large_clients_are_left_out_unless_asked_for(recording):
    record = audit(recording, EAVESDROPPER, ("max_entropy",))
    assert by_coverage(recording, EAVESDROPPER, record, most=100) == ()


def test_what_cannot_be_decoded_in_part_has_no_curve(federate):
    """Several local steps a round: partial knowledge is not decoded, and nothing is claimed."""
    recording = federate(batch_size=16)
    record = audit(recording, EAVESDROPPER, ("max_entropy",))
    assert by_coverage(recording, EAVESDROPPER, record) == ()

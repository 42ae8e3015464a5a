"""How sure the adversary is: every record in one bin, with the shares of its records."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.evaluation.audit import AuditOptions, audit
from overheard.evaluation.scoring import Posterior, calibration
from overheard.transcript.threat import EAVESDROPPER


def posterior(rng, records=500):
    confidence = rng.uniform(0.5, 1.0, records)
    hits = (rng.random(records) < confidence).astype(float)
    return Posterior(confidence, hits, np.log2(confidence) + 1)


def test_bins_hold_every_record_once(rng):
    found = posterior(rng)
    bins = calibration(found, bins=True).bins
    assert sum(b.n for b in bins) == 500
    for b in bins:
        inside = (found.confidence >= b.least) & (found.confidence < b.most)
        assert b.n == inside.sum()
        assert b.right == pytest.approx(found.hits[inside].mean())
        assert b.least <= b.confidence < b.most
        assert b.low <= b.right <= b.high


def test_beyond_99_is_counted_and_rows_only_on_request(rng):
    found = Posterior(
        np.array([0.6, 0.995, 1.0, 0.99, 0.999]),
        np.array([1.0, 1.0, 1.0, 1.0, 0.0]),
        np.array([0.1, 0.9, 1.0, 0.9, -5.0]),
    )
    quiet, asked = calibration(found, bins=True), calibration(found, rows=True)
    assert (quiet.certain, quiet.certain_right, quiet.rows) == (3, 2, ())
    assert quiet.bins[-1].n == 3  # 99% itself is not beyond 99%
    assert calibration(Posterior(*np.full((3, 4), 0.5)), bins=True).bins[0].least == 0.5
    assert asked.rows == (2, 1)  # the one that is sure and wrong is not known
    alike = Posterior(np.array([0.992, 0.999, 0.999]), np.ones(3), np.ones(3))
    assert alike.rows() == (1, 2, 0)  # of as many bits: the surer first, then by number
    assert alike.rows(1) == (1,)


def test_an_audit_carries_it_and_names_rows_only_when_asked(federate):
    recording = federate()
    record = audit(recording, EAVESDROPPER, ["max_entropy", "exact_linear"])
    for row in record.pooled:
        assert (row.calibration is not None) == (row.metric == "accuracy")
        if row.calibration is not None:
            assert sum(b.n for b in row.calibration.bins) == row.n
    assert '"rows":[' not in record.model_dump_json().replace('"rows":[]', "")
    model = {"name": "mlp", "hidden": [60]}
    sharp = audit(
        federate(model, rounds=1), EAVESDROPPER, ["max_entropy"], options=AuditOptions(rows=True)
    )
    assert all(f.calibration.rows for f in sharp.findings)
    assert all(r < f.n for f in sharp.findings for r in f.calibration.rows)

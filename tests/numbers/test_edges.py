"""The edges of arithmetic, from records to report: a right answer or a clear refusal.

Warnings are errors here, so that an overflow nobody thought of is a failure too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generated import changing

from overheard.errors import FixConfig
from overheard.evaluation.audit import audit
from overheard.report.html import render, render_markdown
from overheard.transcript.threat import SERVER

pytestmark = pytest.mark.slow

MLP = {"name": "mlp", "hidden": [6]}
LOGISTIC = {"name": "logistic"}
SMALL = {"clients": 2, "people": 20, "columns": 2, "rounds": 6, "participation": 1.0}


def audited(recording: Any, attacks: tuple[str, ...] = ()) -> Any:
    """Audit and report; every number in the record must be finite, the page must be made."""
    record = audit(recording, SERVER, attacks)
    for found in record.findings:
        assert np.isfinite([found.value, found.low, found.high]).all()
        assert found.low <= found.value <= found.high
    assert "<html" in render(record)
    assert render_markdown(record).startswith("#")
    return record


def learned(record: Any, attack: str, metric: str = "value") -> list[float]:
    return [getattr(f, metric) for f in record.findings if f.attack == attack]


FINE = {
    "denormals": changing(x1=lambda c: c["x1"] * 1e-310),
    "1e-30": changing(x1=lambda c: c["x1"] * 1e-30),
    "1e200": changing(x1=lambda c: c["x1"] * 1e200),
    "denormal labels": changing(y=lambda c: c["y"] * 1e-310),
    "labels of 1e250": changing(y=lambda c: c["y"] * 1e250),
}


def test_units_do_not_matter(federate):
    """Columns are scaled by their own spread: people measured in other units are the same people.

    Tolerance: accuracies equal; the optimum's excess loss to 2% of the optimum's loss, because
    denormals have few digits.
    """
    attacks = ("exact_linear", "max_entropy")
    plain = audited(federate(**SMALL), attacks)
    exact = pytest.approx(learned(plain, "exact_linear"), abs=0.02)
    for case, change in FINE.items():
        other = audited(federate(**SMALL, change=change), attacks)
        assert learned(other, "max_entropy") == learned(plain, "max_entropy"), case
        assert learned(other, "exact_linear") == exact, case


@pytest.mark.parametrize("model", [None, LOGISTIC, MLP], ids=["linear", "logistic", "mlp"])
@pytest.mark.parametrize("batch", [{}, {"batch_size": 7}], ids=["full", "mini"])
def test_updates_of_exactly_zero_tell_nothing(federate, model, batch):
    """A learning rate below the last place of every parameter: nobody beats the shares."""
    record = audited(federate(model, **SMALL, learning_rate=1e-20, **batch))
    for found in record.findings:
        if found.attack == "max_entropy":
            assert found.value <= (found.majority or 0) + 1e-12
            assert found.details["rank"] == 0
            assert found.flag == ""  # what it says is right, and little
            assert str(found.details["undecided"]).startswith("the decoder itself expects 0.")
            assert found.calibration.certain == 0
    assert not learned(record, "exact_linear")


@pytest.mark.parametrize(("model", "rate"), [(None, 1e5), (LOGISTIC, 1e8)])
def test_a_federation_that_grows_without_end_is_audited(federate, model, rate):
    """Models of 1e30 and more: what float32 still holds is decoded, nothing overflows."""
    record = audited(federate(model, **SMALL, learning_rate=rate))
    assert learned(record, "max_entropy")


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e-300, 1e300, float("nan"), float("inf")])
def test_learning_rates_that_float64_cannot_square_are_refused(federate, rate):
    with pytest.raises(FixConfig, match="learning_rate"):
        federate(**SMALL, learning_rate=rate)


@pytest.mark.parametrize("model", [None, LOGISTIC, MLP], ids=["linear", "logistic", "mlp"])
def test_one_record_is_read_off_its_update(federate, model):
    record = audited(federate(model, **{**SMALL, "people": 1, "clients": 4}))
    assert learned(record, "max_entropy") == [1.0] * 4


@pytest.mark.parametrize("model", [None, LOGISTIC, MLP], ids=["linear", "logistic", "mlp"])
def test_one_client_in_one_round(federate, model):
    record = audited(federate(model, **{**SMALL, "clients": 1, "rounds": 1}))
    (found,) = [f for f in record.findings if f.attack == "max_entropy"]
    assert found.imputation is None
    assert found.value >= 0.75
    if model is None:
        reasons = {s.attack: s.reason for s in record.skipped}
        assert "record more rounds" in reasons["exact_linear"]


@pytest.mark.parametrize("model", [None, LOGISTIC], ids=["linear", "logistic"])
@pytest.mark.parametrize(
    "change",
    [
        changing(x1=lambda c: np.full(len(c["x1"]), 3.0)),
        changing(x1=lambda c: 2 * c["x0"] - 1),
        changing(x0=lambda c: 0.0 * c["x1"], x1=lambda c: 0.0 * c["x1"]),
    ],
    ids=["constant", "collinear", "everybody alike in public"],
)
def test_flat_directions_are_audited(federate, model, change):
    record = audited(federate(model, **SMALL, change=change), ("exact_linear", "max_entropy"))
    assert learned(record, "max_entropy")
    if model is None:
        assert max(learned(record, "exact_linear")) < 0.01

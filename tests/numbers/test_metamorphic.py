"""What must not matter: names, the order of records, and units."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generated import changing

from overheard.attacks import attack_named
from overheard.evaluation.audit import audit
from overheard.programs.records import Records
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import SERVER
from overheard.transcript.view import launch, observe

pytestmark = pytest.mark.slow

SMALL = {"clients": 3, "people": 30, "columns": 2, "rounds": 6}
NETWORK = {"name": "mlp", "hidden": [24]}
ATTACKS = ("exact_linear", "max_entropy", "model_based_last_returned", "partial_decode", "majority")


def wire_bytes(recording: Recording) -> list[bytes]:
    files = sorted((recording.path / "messages").glob("*.safetensors"))
    return [file.read_bytes()[-400:] for file in files]


def probabilities(recording: Recording, client: str, attack: str = "max_entropy") -> Any:
    view = observe(recording, SERVER, attribute("s"), client)
    return launch(attack_named(attack), view, 0).probabilities


@pytest.mark.parametrize("model", [{"name": "linear"}, NETWORK], ids=["linear", "mlp"])
def test_renaming_clients_changes_no_finding(federate, model):
    """Values, shares, baselines and probabilities to the last bit. Only what is drawn by lot in a
    client's own name differs: the ends of bootstrap intervals."""
    names = np.array(["Leuven", "Milano", "Namur"])
    change = changing(at=lambda c: names[c["at"].astype(int)])
    plain = audit(federate(model, **SMALL), SERVER, ATTACKS)
    other = audit(federate(model, **SMALL, change=change), SERVER, ATTACKS)
    assert len(plain.findings) == len(other.findings) > 3
    for one, two in zip(plain.findings, other.findings, strict=True):
        assert two.client == names[int(one.client)]
        assert (one.attack, one.value, one.majority, one.n) == (
            two.attack,
            two.value,
            two.majority,
            two.n,
        )
        assert one.details == two.details
        if one.metric == "accuracy":
            assert (one.low, one.high) == (two.low, two.high)
            assert (one.imputation, one.lift) == (two.imputation, two.lift)
        else:
            assert one.low == pytest.approx(two.low, abs=0.1 * max(abs(one.high), 1e-6))
    assert [(p.value, p.low, p.high) for p in plain.pooled] == [
        (p.value, p.low, p.high) for p in other.pooled
    ]


ORDER = np.random.default_rng(3).permutation(30)


def shuffled(dataset: Any) -> Any:
    """Every client's records in another order."""
    rows = np.stack([3 * ORDER + c for c in range(3)], axis=1).ravel()
    return replace(dataset, records=dataset.records.take(rows))


def turned(dataset: Any) -> Any:
    """The columns in another order."""
    columns = dict(reversed(dataset.records.columns.items()))
    return replace(dataset, records=Records(columns))


@pytest.mark.parametrize(
    ("model", "change", "order"),
    [
        ({"name": "linear"}, shuffled, ORDER),
        (NETWORK, shuffled, ORDER),
        ({"name": "linear"}, changing(x1=lambda c: 1.8 * c["x1"] + 32), np.arange(30)),
        ({"name": "linear", "initial": "zeros"}, turned, np.arange(30)),
    ],
    ids=["shuffled, linear", "shuffled, mlp", "Fahrenheit for Celsius", "columns turned"],
)
def test_orders_and_units_change_next_to_nothing(federate, model, change, order):
    """Sums are added in another order, encodings differ in the last place: probabilities agree to
    1e-3 in float64 messages, each with its record."""
    plain = federate(model, **SMALL, precision="float64")
    other = federate(model, **SMALL, precision="float64", change=change)
    for client in plain.clients:
        one, two = probabilities(plain, client), probabilities(other, client)
        np.testing.assert_allclose(two, one[order], atol=1e-3)


@pytest.mark.parametrize("power", [-40, 10])
def test_scaling_a_column_by_a_power_of_two_changes_no_bit(federate, power):
    """The encoding is part of the recipe and follows: the same numbers reach the model."""
    change = changing(x1=lambda c: np.ldexp(c["x1"], power))
    plain, other = federate(**SMALL), federate(**SMALL, change=change)
    assert wire_bytes(plain) == wire_bytes(other)
    for attack in ("max_entropy", "model_based_last_returned"):
        one, two = (probabilities(r, "1", attack) for r in (plain, other))
        np.testing.assert_array_equal(one, two)

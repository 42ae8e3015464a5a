"""Two federations of the same people in one chart."""

from __future__ import annotations

import pytest

from overheard.evaluation.audit import audit
from overheard.report.html import render
from overheard.report.model import compared, federation_words
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow


def test_a_linear_model_beside_a_network(federate):
    attacks = ["majority", "max_entropy"]
    linear = audit(federate(), EAVESDROPPER, attacks)
    deep = federate({"name": "mlp", "hidden": [32]}, rounds=1, participation=1.0)
    network = audit(deep, EAVESDROPPER, attacks)
    assert federation_words(linear) == "linear regression, 30 rounds"
    assert federation_words(network) == "network with 32 hidden units, 1 round"
    (chart,) = compared([linear, network])
    assert chart.name == "s"
    rows = [row for row, _ in chart.rows]
    assert [row.lanes[0].found.attack for row in rows] == ["max_entropy", "max_entropy"]
    assert rows[1].lanes[0].found.value == 1.0 > rows[0].lanes[0].found.value
    assert rows[0].majority is not None
    page = render(network, beside=[linear])
    assert "The same people, another model" in page
    assert "network with 32 hidden units" in page
    assert "another model" not in render(network)


def test_nothing_shared_nothing_drawn(federate):
    one = audit(federate(), EAVESDROPPER, ["last_returned"])
    assert compared([one]) == []
    assert compared([one, one]) == []

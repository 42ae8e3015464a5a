"""The server's rules: what they make of a round, and that everybody uses the same ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import planned, simulated, view_of

from overheard.errors import FixConfig
from overheard.federation.federation import parse_config
from overheard.federation.server import RULES, Mean, Server
from overheard.transcript.knowledge import Messages

Settings = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("rule", "weighting", "equal"),
    [("mean", "size", 0), ("adam", "size", 0), ("mean", "equal", 1), ("adam", "equal", 1)],
)
def test_sums_of_unequal_clients_want_a_rule_that_takes_them_equally(
    settings_for: Settings, tmp_path: Path, rule: str, weighting: str, equal: bool
) -> None:
    settings = {"server": {"rule": rule}, "training": {"weighting": weighting}}
    content = settings_for(defence=[{"name": "secure_sum"}], **settings)
    words = pytest.raises(FixConfig, match=r"unweighted, and .* hold 5 to 12")
    with nullcontext() if equal else words:
        simulated(tmp_path / "run", content)


def test_a_sum_moves_as_its_clients_do(settings_for: Settings) -> None:
    start, returned = np.ones(3), np.random.default_rng(0).normal(size=(4, 3))
    for algorithm, updates in (
        ("fedavg", start - returned),
        ("fedsgd", returned),
    ):
        recipe = planned(settings_for(training={"algorithm": algorithm})).recipe
        server = Server(Mean(), recipe, start, ())
        one = server.averaged(returned, np.full(4, 0.25)).model
        other = server.summed(updates.sum(axis=0), 4).model
        np.testing.assert_allclose(one, other)


def momentum(ways: list[np.ndarray], rate: float, beta: float) -> np.ndarray:
    """By the sum that the recursion comes to."""
    end = len(ways)
    return rate * np.sum(
        [beta ** (t - k) * ways[k] for t in range(end) for k in range(t + 1)], axis=0
    )


def adam(ways: list[np.ndarray], rate: float, b1: float, b2: float, tau: float) -> np.ndarray:
    """Coordinate by coordinate."""
    moved = []
    for coordinate in np.transpose(ways):
        m, v, x = 0.0, tau**2, 0.0
        for way in coordinate:
            m, v = b1 * m + (1 - b1) * way, b2 * v + (1 - b2) * way**2
            x += rate * m / (v**0.5 + tau)
        moved.append(x)
    return np.array(moved)


@pytest.mark.parametrize(
    ("settings", "naive"),
    [
        ({"rule": "momentum"}, lambda w: momentum(w, 1.0, 0.9)),
        (
            {"rule": "momentum", "learning_rate": 0.3, "momentum": 0.5},
            lambda w: momentum(w, 0.3, 0.5),
        ),
        ({"rule": "adam"}, lambda w: adam(w, 0.1, 0.9, 0.99, 1e-3)),
        (
            {"rule": "adam", "learning_rate": 0.02, "beta1": 0.0, "beta2": 0.5, "tau": 0.1},
            lambda w: adam(w, 0.02, 0.0, 0.5, 0.1),
        ),
    ],
)
def test_rules_with_a_memory_are_those_of_their_papers(settings: Any, naive: Any) -> None:
    rule = RULES[settings["rule"]].model_validate(settings)
    ways = list(np.random.default_rng(1).normal(size=(5, 4)))
    model, state = np.zeros(4), rule.init(4)
    for way in ways:
        before, were = model.copy(), [part.copy() for part in state]
        after, kept = rule.update(state, model, model + way)
        for part, was in zip((model, *state), (before, *were), strict=True):
            np.testing.assert_array_equal(part, was)  # nothing is changed in place
        model, state = after, kept
    np.testing.assert_allclose(model, naive(ways), rtol=1e-12)


def test_a_rule_is_written_and_read(settings_for: Settings) -> None:
    plain = parse_config(settings_for())
    assert plain.server == Mean()
    assert parse_config(plain.model_dump(mode="json")) == plain
    given = parse_config(settings_for(server={"rule": "adam", "tau": 0.01}))
    assert parse_config(given.model_dump(mode="json")) == given


def test_an_isolated_client_has_a_memory_of_its_own(settings_for: Settings, tmp_path: Path) -> None:
    """Its own model moves by its own updates alone, whoever else there is."""
    alone = settings_for(training={"isolate": "site 0"}, server={"rule": "momentum"})
    run = simulated(tmp_path / "run", alone)
    link, velocity = view_of(run, client="site 0").know(Messages), 0.0
    for number in range(2):
        velocity = 0.9 * velocity + link.updates()[number]
        np.testing.assert_allclose(link.sent[number + 1], link.sent[number] - velocity, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server": {"rule": "median"}}, "unknown server rule 'median'; did you mean 'mean'"),
        ({"server": {}}, "unknown server rule None; known: mean, momentum, adam"),
        ({"server": {"rule": "mean", "tau": 1.0}}, "server rule 'mean': unknown key 'tau'"),
        ({"server": {"rule": "adam", "beta1": 1.0}}, "beta1.*less than 1"),
    ],
)
def test_what_makes_no_sense_is_refused(
    settings_for: Settings, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(FixConfig, match=words):
        parse_config(settings_for(**changes))

"""Histograms of gradients: what is sent, what it tells, and what strangers may have written."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from federations import generated_people

from overheard.errors import FixRecording
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.programs.program import Candidates, Exchange, program_of
from overheard.programs.records import Records, encode

MODEL = {"name": "histograms", "objective": "reg:squarederror", "max_depth": 3, "bins": 8}


def planned(people=50, **more):
    """The program and the records of two clients."""
    content = {
        "data": {"source": "file"},
        "model": {**MODEL, **more},
        "training": {"rounds": 1},
    }
    classify = more.get("objective") == "binary:logistic"
    ready = plan(parse_config(content), generated_people(2, people, 3, 0, classify))
    return ready.told, list(ready.clients.values())


def grown(program, clients, rounds):
    """What each client was sent and returned, round after round."""
    sent, rng, heard = program.first(), np.random.default_rng(0), [[] for _ in clients]
    for number in range(1, rounds + 1):
        back = {str(k): program.respond(sent, c, rng) for k, c in enumerate(clients)}
        for k, mine in enumerate(heard):
            mine.append(Exchange(number, sent, back[str(k)]))
        sent = program.following(sent, back)
    return sent, heard


def under(records):
    return Candidates(
        tuple(Records({**records.columns, "s": np.full(len(records), v)}) for v in (0.0, 1.0))
    )


def test_sums_are_those_that_anybody_computes():
    program, clients = planned()
    sent, heard = grown(program, clients, 2)
    inputs, labels = encode(program.encoding, clients[0]), clients[0]["y"]
    root = heard[0][0].returned
    gap = np.float32(0.5) - labels.astype(np.float32)
    at = 0
    for cuts, x in zip(program.cuts, inputs.T, strict=True):
        edges = [-np.inf, *cuts, np.inf]
        for low, high in itertools.pairwise(edges):
            mine = (x > low) & (x <= high)
            np.testing.assert_allclose(root["gradient"][0, at], gap[mine].sum(), atol=1e-4)
            assert root["hessian"][0, at] == mine.sum()
            at += 1
    assert at == root["gradient"].shape[1]
    level = heard[0][1]
    feature, cut = (int(level.sent[n][0, 0]) for n in ("feature", "cut"))
    left = inputs[:, feature] <= program.cuts[feature][cut]
    assert level.returned["hessian"][0].sum() == left.sum() * len(program.cuts)
    assert sent["level"][0] == 2


def test_the_server_grows_the_trees_of_everybodys_records():
    program, clients = planned()
    pooled = Records({c: np.concatenate([r[c] for r in clients]) for c in clients[0].columns})
    apart, _ = grown(program, clients, 9)
    together, _ = grown(program, [pooled], 9)
    assert len(apart["feature"]) == 4  # three of depth three, and one that begins
    for name in ("feature", "cut", "level"):
        np.testing.assert_array_equal(apart[name], together[name])
    np.testing.assert_allclose(apart["value"], together["value"], atol=1e-6)


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_the_equations_are_exact_at_the_truth_and_only_there(objective):
    program, clients = planned(objective=objective)
    _, heard = grown(program, clients, 9)
    equations = program.equations(heard[0], under(clients[0]))
    truth = clients[0]["s"].astype(np.int64)
    assert np.abs(equations.residual_at(truth)).max() < 1
    wrong = truth.copy()
    wrong[7] = 1 - wrong[7]
    assert np.abs(equations.residual_at(wrong)).max() > 1000


@pytest.mark.parametrize(
    "change",
    [
        {"feature": None},
        {"feature": np.full((1, 15), 99)},
        {"feature": np.full((1, 15), 0.5)},
        {"feature": np.zeros((1, 15))},
        {"feature": np.zeros((0, 15))},
        {"value": np.full((1, 15), np.nan)},
        {"level": np.array([3])},
        {"level": np.array([-1])},
        {"gradient": np.zeros((2, 3))},
    ],
    ids=str,
)
def test_messages_of_another_program_are_refused_in_a_line(change):
    program, clients = planned(20)
    _, ((one,), _) = grown(program, clients, 1)
    sent, back = (
        {n: change.get(n, a) for n, a in message.items() if change.get(n, a) is not None}
        for message in (one.sent, one.returned)
    )
    with pytest.raises(FixRecording, match="round 4") as refused:
        program.equations([Exchange(4, sent, back)], under(clients[0]))
    assert len(str(refused.value).splitlines()) == 1


def test_descriptions_that_contradict_themselves_are_refused():
    program, _ = planned(20)
    content = program.model_dump(mode="json")
    for change in (
        {"settings": {**content["settings"], "objective": "binary:logistic"}},
        {"cuts": content["cuts"][1:]},
        {"cuts": [[2.0, 1.0], *content["cuts"][1:]]},
    ):
        with pytest.raises(FixRecording, match="histograms"):
            program_of({**content, **change}, "side")

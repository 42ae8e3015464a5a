"""Wires of half precision: audited as what they are, whatever they were widened to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import recipe_in

from overheard.attacks.client import format_of
from overheard.evaluation.audit import audit
from overheard.federation.server import Mean, Server
from overheard.federation.simulate import client_shards, train_clients
from overheard.programs.recipe import named
from overheard.recorders.recorder import Recorder as LiveRecorder
from overheard.transcript.knowledge import Messages
from overheard.transcript.store import Recorder, Recording
from overheard.transcript.target import LOCAL_MODEL, attribute
from overheard.transcript.threat import SERVER
from overheard.transcript.view import observe


def to_bfloat16(numbers: Any) -> Any:
    return torch.from_numpy(np.array(numbers, np.float32)).to(torch.bfloat16).float().numpy()


def to_float16(numbers: Any) -> Any:
    return np.asarray(numbers, np.float32).astype(np.float16).astype(np.float32)


SHORT = {"float16": (to_float16, 2.0**-10), "bfloat16": (to_bfloat16, 2.0**-7)}


@pytest.mark.parametrize("name", SHORT)
def test_the_format_is_seen_in_the_numbers(rng, name):
    shorten, epsilon = SHORT[name]
    numbers = rng.normal(size=(4, 30)).astype(np.float32)
    short = shorten(numbers)
    found = format_of(short)
    assert (found.name, found.epsilon) == (name, epsilon)
    # one unit in the last place is the distance to a neighbour that the format can hold
    apart = np.abs(shorten(short.astype(np.float64) * (1 + 0.8 * epsilon)) - short)
    assert np.median(apart / found.last_place) == 1.0
    error = np.abs(numbers - short)
    assert (error <= found.last_place / 2 * (1 + 1e-6)).all()
    assert np.sqrt(np.mean((error / found.last_place) ** 2)) == pytest.approx(12**-0.5, rel=0.2)


def test_numbers_that_use_their_digits_are_left_alone(rng):
    numbers = rng.normal(size=(4, 30))
    assert format_of(numbers).name == "float64"
    assert format_of(numbers.astype(np.float32)).name == "float32"
    assert format_of(numbers.astype(np.float16)).name == "float16"
    one_uses_them = to_float16(numbers)
    one_uses_them[2, 3] = np.float32(1) / 3
    assert format_of(one_uses_them).name == "float32"
    # a model of zeros, or of a handful of round numbers, says nothing about the format
    assert format_of(np.zeros((3, 20), np.float32)).name == "float32"
    assert format_of(np.tile(np.float32([0.5, 1.0, -2.0]), (5, 1))).name == "float32"
    beyond = to_bfloat16(np.geomspace(1e-3, 1e30, 20))
    assert format_of(beyond).name == "bfloat16"


def half(federate: Any, path: Path, model: Any, name: str, as_float16: bool) -> Recording:
    """A federation that computes in float32 and sends half precision."""
    whole = federate(model, clients=3, people=30, rounds=6, participation=1.0)
    recipe, clients = recipe_in(whole), whole.truth()
    shorten, data = SHORT[name][0], client_shards(recipe, clients)
    layout = recipe.model.layout()

    def arrays(flat: Any) -> Any:
        kind = np.float16 if as_float16 else np.float32
        return {n: a.astype(kind) for n, a in named(layout, flat).items()}

    with Recorder(path, "model", whole.about) as recorder:
        key = attribute("s").key
        recorder.side("ClientProgram", whole.side("ClientProgram"))
        for kind in ("PublicRecords", "Labels", "AttributeDomain", "AttributePrior"):
            recorder.side(kind, whole.side(kind, key), key)
        recorder.truth(clients)
        theta = shorten(first_model(whole))
        for number in range(6):
            back = shorten(train_clients(recipe, theta, data, np.arange(3), 0, number))
            sizes = {n: float(s) for n, s in zip(clients, data.sizes, strict=True)}
            returned = {n: arrays(b) for n, b in zip(clients, back, strict=True)}
            recorder.round(number, arrays(theta), returned, sizes)
            server = Server(Mean(), recipe, theta, ())
            theta = shorten(server.averaged(back, data.sizes / data.sizes.sum()).model)
    return Recording.open(path)


def first_model(recording: Recording) -> Any:
    return observe(recording, SERVER, LOCAL_MODEL, "0").know(Messages).sent[0]


LOGISTIC, NETWORK = {"name": "logistic"}, {"name": "mlp", "hidden": [24]}


@pytest.mark.parametrize(
    ("model", "name", "as_float16"),
    [
        (LOGISTIC, "float16", True),
        (LOGISTIC, "bfloat16", False),
        (NETWORK, "float16", False),
        (NETWORK, "bfloat16", False),
    ],
)
def test_half_precision_is_audited_and_nobody_is_surer_than_it_allows(
    federate, tmp_path, model, name, as_float16
):
    record = audit(half(federate, tmp_path / "half", model, name, as_float16), SERVER,
                   ("max_entropy", "majority"))  # fmt: skip
    found = [f for f in record.findings if f.attack == "max_entropy"]
    assert len(found) == 3
    reliable = [f for f in found if not f.flag]
    assert reliable
    for one in reliable:  # of what it calls certain without flagging itself, nearly all is right
        assert one.calibration is not None
        assert one.calibration.certain_right >= 0.95 * one.calibration.certain
    for one in found:
        if one.flag:  # then nobody is told what it is sure of
            assert one.calibration is None
            assert (model["name"], name) == ("logistic", "bfloat16")  # 8 bits, 4 numbers a round
            assert one.flag.startswith("not unique")
    if model["name"] == "mlp":
        assert min(f.value for f in found) >= 0.9


def test_bfloat16_is_recorded_exactly(tmp_path):
    """numpy has no such type: torch tensors and ml_dtypes arrays become float32."""
    recorder = LiveRecorder(tmp_path / "run")
    model = torch.arange(1, 13, dtype=torch.float32).reshape(3, 4) / 7
    sent = {"w": model.to(torch.bfloat16)}
    recorder.sent(0, "", sent)
    recorder.returned(0, "a", {"w": (model * 1.01).to(torch.bfloat16)})
    recorder.close()
    recording = Recording.open(tmp_path / "run")
    observed = observe(recording, SERVER, LOCAL_MODEL, "a").know(Messages).sent[0]
    assert observed.dtype == np.float32
    np.testing.assert_array_equal(observed, sent["w"].float().numpy().ravel())

"""A misfit that random orders hide is seen by who knows where to look; nobody else is accused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import load

from overheard.evaluation.audit import AuditOptions, audit
from overheard.evaluation.leaning import alternatives, doubted, rescaled
from overheard.evaluation.replay import replays
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.recipe import Recipe
from overheard.programs.records import Encoding, OneHot, Records, Scaled
from overheard.transcript.observe import recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

PEOPLE = load(Path(__file__).parents[2] / "reliability" / "identify.py").people


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Adam, batches of 16: an order changes as much as a wrong label does."""
    config = {
        "data": {"source": "file"},
        "model": {"name": "mlp", "hidden": [8], "activation": "sigmoid"},
        "training": {"rounds": 4, "learning_rate": 0.0005, "batch_size": 16,
                     "optimiser": {"name": "adam"}},
    }  # fmt: skip
    ready = plan(parse_config(config), PEOPLE(np.random.default_rng(2)))
    return Recording.open(simulate(ready, tmp_path_factory.mktemp("leaning") / "run"))


@pytest.fixture
def told(recording: Recording) -> Recipe:
    recipe = recipe_of(recording)
    assert recipe is not None
    return recipe


def called(recording: Recording, told: Recipe, truth: dict[str, Records]) -> list[str]:
    found = replays(recording, told, truth, recording.clients)
    return [replay.client for replay in found if replay.outcome == "does not fit"]


def relabelled(truth: dict[str, Records]) -> dict[str, Records]:
    """With a tenth of the labels wrong."""
    made = {}
    for client, records in truth.items():
        label = records["y"].copy()
        label[::10] = np.where(label[::10] == "yes", "no", "yes")
        made[client] = Records({**records.columns, "y": label})
    return made


def test_who_did_as_stated_leans_nowhere(recording: Recording, told: Recipe) -> None:
    assert called(recording, told, recording.truth()) == []


@pytest.mark.parametrize("wrong", ["labels", "scaling"])
def test_what_orders_hide_is_seen(
    recording: Recording, told: Recipe, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = recording.truth()
    labels = {c: told.target.encode(records) for c, records in truth.items()}
    if wrong == "scaling":
        _, told, _ = next(alternatives(told, truth, labels))
    else:
        truth = relabelled(truth)
    found = replays(recording, told, truth, recording.clients)
    leans = {"labels": "other labels", "scaling": "columns scaled together"}[wrong]
    assert any(r.outcome == "does not fit" and leans in r.reason for r in found)
    monkeypatch.setattr("overheard.evaluation.replay.PARAMETERS", 0)
    assert called(recording, told, truth) == []  # replays alone do not show it


def test_a_check_that_ends_in_an_error_is_said_not_to_have_been_made(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> dict[str, str]:
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr("overheard.evaluation.replay.leaning", broken)
    options = AuditOptions(rounds=False, coverage=False)
    found = audit(recording, EAVESDROPPER, ["majority"], [], ["s"], options)
    assert {r.outcome for r in found.replays} == {"fits"}
    [note] = [note for note in found.notes if note.startswith("3 client(s): not checked")]
    assert "not positive definite" in note


def test_alternatives_are_the_other_scaling_and_other_labels(
    recording: Recording, told: Recipe
) -> None:
    truth = recording.truth()
    labels = {c: told.target.encode(records) for c, records in truth.items()}
    own, relabelled = alternatives(told, truth, labels)
    assert [words for words, *_ in (own, relabelled)] == [
        "columns scaled per client",
        "other labels",
    ]
    assert sorted(own[1].own) == sorted(truth)
    assert own[2] is labels
    assert relabelled[1] is told
    together, _ = alternatives(own[1], truth, labels)
    assert together[0] == "columns scaled together"
    assert together[1].own == {}
    for block, stated in zip(together[1].encoding.blocks, told.encoding.blocks, strict=True):
        assert isinstance(block, Scaled)
        assert isinstance(stated, Scaled)
        assert (block.shift, block.scale) == pytest.approx((stated.shift, stated.scale))


def test_only_what_is_scaled_is_rescaled() -> None:
    hot = OneHot(column="b", values=("u", "v"))
    plain, some = Scaled(column="c"), Scaled(column="a", shift=1.0)
    records = Records({"a": np.array([2.0, 4.0]), "b": np.array(["u", "v"]), "c": np.ones(2)})
    first, *others = rescaled(Encoding(blocks=(some, hot, plain)), records).blocks
    assert first == Scaled(column="a", shift=3.0, scale=1.0)
    assert others == [hot, plain]


@pytest.mark.parametrize("classes", [0, 2])
def test_labels_that_do_not_go_with_their_records_are_doubted_most(classes: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y: Any = x[:, 0] + 0.1 * rng.normal(size=200)
    y = (y > 0).astype(float) if classes else y
    wrong = np.argsort(-np.abs(x[:, 0]))[:10]
    stated = y.copy()
    stated[wrong] = 1 - y[wrong] if classes else -y[wrong]
    changed = (doubted(x, stated, classes, rng) != stated).mean(axis=0)
    others = np.setdiff1d(np.arange(200), wrong)
    assert changed[wrong].min() > 0.5
    assert changed[others].mean() < 0.15

"""Holders of a target record, dishonest clients, free-riders; and who they are is a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import changed, planned, simulated, view_of

from overheard.errors import FixConfig
from overheard.programs.recipe import LeNet
from overheard.transcript.knowledge import (
    AuxiliaryData,
    Messages,
    ShardSize,
    SuspectedBehaviour,
    TargetRecord,
)
from overheard.transcript.store import POSITIVE_COLUMN, Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import observe


def settings(kind: str = "membership", **changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "data": {
            "source": "digits_images",
            "options": {"clients": 10, "records": 6, "auxiliary": 50},
        },
        "model": {"name": "mlp", "hidden": [5]},
        "training": {"rounds": 3, "learning_rate": 0.1, "participation": 0.6},
        "property": {"kind": kind, "positives": 3},
    }
    return changed(content, changes)


def record(path: Path, kind: str = "membership", **changes: Any) -> Recording:
    return simulated(path, settings(kind, **changes))


def positives(recording: Recording, column: str) -> set[str]:
    answers = recording.truth("Property", f"property.{column}")
    assert list(answers) == list(recording.clients)
    return {c for c, a in answers.items() if a[POSITIVE_COLUMN][0] == 1.0}


def test_holders_have_the_record_and_nobody_else_has(tmp_path: Path) -> None:
    recording = record(tmp_path / "run", property={"targets": 3})
    sizes = {len(r) for r in recording.truth().values()}
    assert sizes == {6}
    everybody = []
    for column in ("membership", "membership-2", "membership-3"):
        view = observe(recording, SECURE_SERVER, client_property(column), "")
        record_ = view.know(TargetRecord)
        image, label = record_.records["image"][0], record_.labels[0]
        holders = {
            c
            for c, r in recording.truth().items()
            if ((r["image"] == image).all(axis=1) & (r["class"] == label)).any()
        }
        assert len(holders) == 3
        assert holders == positives(recording, column)
        auxiliary = view.know(AuxiliaryData)
        assert len(auxiliary.labels) == 47
        assert not (auxiliary.records["image"] == image).all(axis=1).any()
        assert view.know(ShardSize).records == 6
        assert SuspectedBehaviour not in view.kinds
        everybody.append(frozenset(holders))
    assert len(set(everybody)) > 1


@pytest.mark.parametrize(
    ("kind", "column"),
    [("inversion", "poisoning"), ("ascent", "poisoning"), ("free-rider", "free-rider")],
)
def test_what_the_adversary_is_told_of_dishonest_clients(
    tmp_path: Path, kind: str, column: str
) -> None:
    recording = record(tmp_path / "run", kind)
    assert len(positives(recording, column)) == 3
    view = observe(recording, SECURE_SERVER, client_property(column), "")
    assert view.know(SuspectedBehaviour).behaviour == kind
    assert len(view.know(AuxiliaryData).labels) == 50
    assert TargetRecord not in view.kinds


def first_updates(recording: Recording) -> dict[str, np.ndarray]:
    """Each client's update of round 0, where all start from one model."""
    views = {client: view_of(recording, "local_model", client) for client in recording.clients}
    return {client: view.know(Messages).updates()[0] for client, view in views.items()}


ONE = {"training": {"rounds": 1, "participation": 1.0}}


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsgd"])
def test_dishonest_clients_do_what_the_paper_says(tmp_path: Path, algorithm: str) -> None:
    one = {"training": {**ONE["training"], "algorithm": algorithm}}
    honest = first_updates(record(tmp_path / "honest", property={"positives": 0}, **one))
    for kind in ("inversion", "ascent"):
        recording = record(tmp_path / kind, kind, **one)
        bad = positives(recording, "poisoning")
        for client, update in first_updates(recording).items():
            expected = -honest[client] if client in bad else honest[client]
            np.testing.assert_allclose(update, expected, atol=1e-7)


def test_ascent_climbs_at_every_step(tmp_path: Path) -> None:
    more = {"training": {"rounds": 1, "participation": 1.0, "epochs": 3, "learning_rate": 0.4}}
    inverted = first_updates(record(tmp_path / "inversion", "inversion", **more))
    climbing = record(tmp_path / "ascent", "ascent", **more)
    updates = first_updates(climbing)
    for client in positives(climbing, "poisoning"):
        # beyond the first step going up is not going down reversed
        assert not np.allclose(updates[client], inverted[client], atol=1e-6)
        assert updates[client] @ inverted[client] > 0


def test_free_riders_send_nothing_or_noise_of_an_updates_length(tmp_path: Path) -> None:
    honest = first_updates(record(tmp_path / "honest", property={"positives": 0}, **ONE))
    for ride in ("unchanged", "noise"):
        recording = record(tmp_path / ride, "free-rider", property={"ride": ride}, **ONE)
        bad = positives(recording, "free-rider")
        for client, update in first_updates(recording).items():
            if client not in bad:
                np.testing.assert_allclose(update, honest[client], atol=1e-9)
            elif ride == "unchanged":
                assert not update.any()
            else:
                length = np.linalg.norm(honest[client])
                assert np.linalg.norm(update) == pytest.approx(length, rel=1e-3)
                assert abs(update @ honest[client]) < 0.2 * length**2


def test_lenet_of_the_paper_by_the_images() -> None:
    made = planned(settings(model={"name": "lenet", "hidden": []}))
    assert isinstance(made.recipe.model, LeNet)
    assert made.recipe.model.filters == (10, 20)
    assert made.recipe.model.hidden == (50,)
    assert made.recipe.model.dropout == 0.5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"property": {"positives": 11}}, "positives = 11 of 10 clients"),
        ({"property": {"kind": "ascent", "targets": 2}}, "targets belongs to kind = 'membership'"),
        ({"property": {"targets": 7}}, "a client holds 6 records"),
        ({"property": {"kind": "theft"}}, "property.kind"),
        ({"property": {"positive": 1}}, "did you mean 'positives'"),
        ({"model": {"filters": [1, 1]}}, "belong to name = 'lenet'"),
        (
            {"data": {"options": {"clients": 10, "records": 6, "auxiliary": 0}}},
            "0 records are held by no client",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(FixConfig, match=words):
        planned(settings(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": {"name": "lenet"}}, "takes one image of at least 16 x 16"),
        (
            {"model": {"name": "logistic"}, "property": {"kind": "ascent"}},
            "the clients hold 5 to 12 records",
        ),
    ],
)
def test_tables_have_no_lenet_and_unequal_clients_no_property(
    settings_for: Any, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(FixConfig, match=words):
        planned(settings_for(data={"target": "ill", "drop": ["y"]}, **changes))


def test_who_has_it_is_in_truth_only(tmp_path: Path) -> None:
    recording = record(tmp_path / "run")
    for folder in ("messages", "side"):
        text = (recording.path / folder / "index.jsonl").read_text()
        assert "Property" not in text
        assert POSITIVE_COLUMN not in text
    assert "Property" in (recording.path / "truth" / "index.jsonl").read_text()

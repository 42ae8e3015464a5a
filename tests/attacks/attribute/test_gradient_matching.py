"""Cos-matching when labels are unknown too (lyu2021 section 5.4), and where it starts and looks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from overheard.attacks.attribute import gradient_matching as gm
from overheard.data.dataset import Dataset
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.evaluation.metrics import attribute_hits
from overheard.learning.records import Records
from overheard.transcript.knowledge import AttributePrior, Labels
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import View, launch

MLP = {"name": "mlp", "hidden": [32]}


def two_classes(dataset: Dataset) -> Dataset:
    label = dataset.records["y"]
    halves = (label > np.median(label)).astype(np.float64)
    records = Records({**dataset.records.columns, "y": halves})
    return dataclasses.replace(dataset, records=records, task="classification")


@pytest.fixture
def unlabelled(federate: Any) -> Any:
    """A view without labels of 20 people in two classes, and what is true of them."""
    recording = federate(MLP, change=two_classes, clients=1, people=20, columns=8, rounds=5,
                         participation=1.0)  # fmt: skip
    view = observe(recording, EAVESDROPPER.without(Labels), attribute("s"), "0")
    return view, recording.truth()["0"]


def test_labels_are_found_along_with_the_attribute(unlabelled: Any) -> None:
    view, truth = unlabelled
    assert Labels not in view.kinds
    guess = launch(gm.CosMatching(phases=("pre5",), steps=400, temperatures=(1.0,)), view, 0)
    assert guess.labels is not None
    assert guess.labels.values == (0.0, 1.0)
    assert attribute_hits(guess.labels, truth["y"]).mean() == 1.0
    assert attribute_hits(guess, truth["s"]).mean() >= 0.9


def test_gradients_of_certain_classes_are_those_of_labels(unlabelled: Any) -> None:
    import torch

    view, truth = unlabelled
    known = gm.matching(view.knowing(Labels(truth["y"])))
    unknown = gm.matching(view)
    assert unknown.labels is None
    shares = torch.softmax(torch.from_numpy(np.random.default_rng(0).normal(size=(20, 2))), dim=1)
    rounds = torch.arange(3)
    classes = torch.from_numpy(np.eye(2)[truth["y"].astype(int)])
    assert torch.allclose(known.virtual(shares, rounds), unknown.virtual(shares, rounds, classes))


def test_labels_that_are_granted_are_used_and_not_guessed(unlabelled: Any) -> None:
    view, truth = unlabelled
    labelled = view.knowing(Labels(truth["y"]))
    guess = launch(gm.CosMatching(phases=("pre1",), steps=5, temperatures=(1.0,)), labelled, 0)
    assert guess.labels is None


def test_unknown_numbers_cannot_be_searched(federate: Any) -> None:
    recording = federate(MLP, people=12, rounds=2, participation=1.0)
    view = observe(recording, EAVESDROPPER.without(Labels), attribute("s"), "0")
    with pytest.raises(ChooseAnotherAttack, match="grant the labels"):
        launch(gm.CosMatching(), view, 0)


def starts(view: View, prior_known: bool) -> Any:
    return gm._start(gm.matching(view), view, np.random.default_rng(0), prior_known)


def test_start_is_the_prior_where_known_else_normal(unlabelled: Any) -> None:
    view, _ = unlabelled
    view = view.knowing(AttributePrior((0.25, 0.75)))
    values, classes = starts(view, prior_known=True)
    assert np.allclose(values.numpy(), np.log([0.25, 0.75]))
    # nobody grants a prior of labels: N(0, 1)
    assert np.ptp(classes.numpy()) > 1
    values, _ = starts(view, prior_known=False)
    assert abs(float(values.mean())) < 0.5
    assert 0.7 < float(values.std()) < 1.3
    # not granted, though wanted
    ungranted = view.narrowed(view.kinds - {AttributePrior})
    assert np.ptp(starts(ungranted, prior_known=True)[0].numpy()) > 1
    with pytest.raises(FixData, match="3 shares for 2 values"):
        starts(view.knowing(AttributePrior((0.2, 0.3, 0.5))), prior_known=True)


def test_phases_are_those_of_section_4_2() -> None:
    # epochs are counted from one in the paper and from zero here
    assert gm.phase(100, "pre1").tolist() == [0]
    assert gm.phase(100, "pre2").tolist() == [0, 1]
    assert gm.phase(100, "pre5").tolist() == [0, 1, 2, 3, 4]
    assert gm.phase(100, "gap10").tolist() == [9, 19, 29, 39, 49]
    assert gm.phase(100, "last5").tolist() == [95, 96, 97, 98, 99]
    assert gm.phase(3, "last5").tolist() == [0, 1, 2]

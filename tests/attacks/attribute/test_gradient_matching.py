"""Cos-matching when labels are unknown too (lyu2021 section 5.4), and where it starts and looks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from overheard.attacks.papers import lyu2021 as gm
from overheard.data.dataset import Dataset
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.evaluation.metrics import attribute_hits
from overheard.programs.networks import network
from overheard.programs.records import Records, encode
from overheard.transcript.knowledge import AttributePrior, AuxiliaryData, Labels, LocalTraining
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
    # the prior of labels is another matter: N(0, 1)
    assert np.ptp(classes.numpy()) > 1
    values, _ = starts(view, prior_known=False)
    assert abs(float(values.mean())) < 0.5
    assert 0.7 < float(values.std()) < 1.3
    # not granted, though wanted
    ungranted = view.narrowed(view.kinds - {AttributePrior})
    assert np.ptp(starts(ungranted, prior_known=True)[0].numpy()) > 1
    with pytest.raises(FixData, match="3 shares for 2 values"):
        starts(view.knowing(AttributePrior((0.2, 0.3, 0.5))), prior_known=True)


def test_classes_start_from_their_shares_elsewhere_where_that_is_wanted(unlabelled: Any) -> None:
    view, truth = unlabelled
    elsewhere = AuxiliaryData(truth.without("y"), np.repeat([0.0, 1.0], [5, 15]))
    told = view.knowing(elsewhere)
    problem, rng = gm.matching(told), np.random.default_rng(0)
    _, classes = gm._start(problem, told, rng, True, label_prior_known=True)
    assert np.allclose(classes.numpy(), np.log([0.25, 0.75]))
    assert AuxiliaryData in gm.CosMatching.uses
    assert launch(gm.CosMatching(("pre1",), steps=3, label_prior_known=True), told, 0).labels
    with pytest.raises(ChooseAnotherAttack, match="label_prior_known"):
        launch(gm.CosMatching(("pre1",), steps=3, label_prior_known=True), view, 0)


def four_values(dataset: Dataset) -> Dataset:
    """The attribute is a number from 1 to 4, and one input."""
    columns = dataset.records.columns
    records = Records({**columns, "s": 1.0 + np.arange(len(dataset.records)) % 4})
    return dataclasses.replace(dataset, records=records, ordinal=frozenset({"s"}))


def test_equation_2_of_more_than_two_values(federate: Any) -> None:
    """The virtual input is that of the mean value, a = sum_n n softmax_n, of which the answer is
    the nearest value; a column that is not ordinal would have an input a value."""
    import torch

    settings = {"clients": 1, "people": 12, "columns": 8, "rounds": 2, "participation": 1.0}
    recording = federate(MLP, change=four_values, **settings)
    view = observe(recording, EAVESDROPPER, attribute("s"), "0")
    problem = gm.matching(view)
    assert problem.candidates.shape[0] == 4
    rows = np.random.default_rng(0).dirichlet(np.ones(4), size=12)
    recipe, truth = view.know(LocalTraining).recipe, recording.truth()["0"]
    records = Records({**truth.columns, "s": rows @ np.arange(1.0, 5.0)})
    inputs = torch.from_numpy(encode(recipe.encoding, records))
    labels = torch.from_numpy(recipe.target.encode(records))
    rounds = torch.arange(2)
    wanted = network(recipe).mean_gradients(problem.thetas[rounds], inputs, labels)
    assert torch.allclose(problem.virtual(torch.from_numpy(rows), rounds), wanted)

    apart = federate(MLP, change=lambda d: dataclasses.replace(four_values(d), ordinal=frozenset()),
                     **settings)  # fmt: skip
    per_value = gm.matching(observe(apart, EAVESDROPPER, attribute("s"), "0"))
    assert per_value.candidates.shape[2] == problem.candidates.shape[2] + 3

    search = gm.CosMatching(phases=("pre1",), steps=400, temperatures=(1.0,), expected=True)
    assert attribute_hits(launch(search, view, 0), truth["s"]).mean() >= 0.9


def test_the_nearest_value_is_not_always_the_likeliest() -> None:
    shares = np.array([[0.5, 0.0, 0.0, 0.5], [0.1, 0.2, 0.7, 0.0]])
    assert gm.nearest_value(shares, (1.0, 2.0, 3.0, 4.0)).tolist() in ([1, 2], [2, 2])
    assert shares.argmax(axis=1).tolist() == [0, 2]
    with pytest.raises(ChooseAnotherAttack, match="are not numbers"):
        gm.nearest_value(shares, ("A", "C", "G", "T"))


def test_phases_are_those_of_section_4_2() -> None:
    # epochs are counted from one in the paper and from zero here
    assert gm.phase(100, "pre1").tolist() == [0]
    assert gm.phase(100, "pre2").tolist() == [0, 1]
    assert gm.phase(100, "pre5").tolist() == [0, 1, 2, 3, 4]
    assert gm.phase(100, "gap10").tolist() == [9, 19, 29, 39, 49]
    assert gm.phase(100, "last5").tolist() == [95, 96, 97, 98, 99]
    assert gm.phase(3, "last5").tolist() == [0, 1, 2]

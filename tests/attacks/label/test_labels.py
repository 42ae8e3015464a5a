"""Labels of single records and mean labels of groups, read off gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from federations import view_of

from overheard import attack_named, launch
from overheard.attacks import listens
from overheard.attacks.label import BayesGroups, LinearDecode
from overheard.attacks.papers.leprovost2023 import GroupMeansTikhonov, calibrated, last_layer
from overheard.errors import ChooseAnotherAttack, FixData, FixRecording, GrantKnowledge
from overheard.programs.records import Records
from overheard.transcript.guess import LabelValues
from overheard.transcript.knowledge import (
    AuxiliaryData,
    ClientProgram,
    GroupCounts,
    Groups,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.threat import EAVESDROPPER

KNOWING = EAVESDROPPER.granting(GroupCounts)
GROUP_ATTACKS = (
    "naive", "auxiliary_mean", "group_means_pinv", "group_means_tikhonov", "bayes_groups"
)  # fmt: skip


def look(recording, client=0, threat=EAVESDROPPER):
    return view_of(recording, "label", recording.clients[client], threat=threat)


def wages(recording, client=0):
    return recording.truth()[recording.clients[client]]["wage"]


def four(dataset):
    return replace(dataset, records=dataset.records.take(np.arange(4)))


# what is known


def test_a_recording_that_leaks_the_label_is_refused(hire, monkeypatch):
    monkeypatch.setattr(Records, "without", lambda self, *names: self)
    recording = hire()
    with pytest.raises(FixRecording, match="sensitive column 'wage'"):
        look(recording)


@pytest.mark.parametrize("training", [{}, {"batch_size": 4}])
def test_labels_of_a_network_that_are_classes_are_decoded_as_an_attribute(federate, training):
    audit = {"attributes": [], "label": True}
    few = {"people": 12, "columns": 12, "participation": 1.0}
    made = federate({"name": "logistic"}, audit=audit, **few, **training)
    view = view_of(made, "attribute.y")
    assert Labels not in view.kinds
    guess = launch(attack_named("max_entropy"), view, 0)
    right, sure = guess.choice() == made.truth()["0"]["y"], guess.probabilities.max(axis=1) > 0.99
    assert right[sure].all()
    assert right.mean() > 0.9


# one record


@pytest.mark.parametrize("algorithm", ["fedsgd", "fedavg"])
def test_a_single_record_gives_its_label_away(hire, algorithm):
    recording = hire(people=1, outside=0, group="", change=four, algorithm=algorithm)
    for client in range(4):
        guess = launch(attack_named("single_record"), look(recording, client), 0)
        assert isinstance(guess, LabelValues)
        np.testing.assert_allclose(guess.values, wages(recording, client), rtol=2e-4)
        assert abs(guess.values - wages(recording, client)) <= 10 * guess.sd + 1e-6


def test_single_record_says_why_not(hire):
    attack = attack_named("single_record")
    with pytest.raises(ChooseAnotherAttack, match="for one record; the client has"):
        launch(attack, look(hire()), 0)
    view = look(hire(people=1, outside=0, group="", change=four))
    link = view.know(Messages)
    still = replace(link, returned=np.zeros_like(link.returned))
    with pytest.raises(ChooseAnotherAttack, match="already predicts"):
        launch(attack, view.knowing(still), 0)


# every label


@pytest.mark.parametrize(
    "training",
    [{}, {"algorithm": "fedavg", "batch_size": 64}, {"algorithm": "fedprox"}],
    ids=["gradient", "a batch as large as the client", "fedprox"],
)
def test_one_float32_gradient_gives_all_labels(hire, training):
    """49 last-layer parameters, about 40 records, inputs known."""
    recording = hire(**training)
    for client in range(4):
        guess = launch(LinearDecode(), look(recording, client), 0)
        truth = wages(recording, client)
        assert np.max(np.abs(guess.values - truth) / truth) <= 1e-3
        assert guess.diagnostics["identified"] == len(truth)
        assert np.mean(np.abs(guess.values - truth) <= 1.96 * guess.sd) > 0.9


def test_equal_inputs_are_indistinguishable(hire):
    def twins(dataset):
        columns = {n: v.copy() for n, v in dataset.records.columns.items()}
        for n in ("diploma", "age", "female", "skill"):
            columns[n][4:20:4] = columns[n][0]  # five people of firm 0
        return replace(dataset, records=Records(columns))

    recording = hire(change=twins, outside=0, group="")
    guess = launch(LinearDecode(), look(recording), 0)
    truth = wages(recording)
    assert guess.diagnostics["identified"] == 35
    assert np.max(np.abs(guess.values - truth)[5:] / truth[5:]) <= 1e-3
    assert guess.values[:5].mean() == pytest.approx(truth[:5].mean(), rel=1e-3)
    assert (guess.sd[:5] > 0.1).all()


def test_fewer_equations_than_records_are_counted_and_more_rounds_help(hire):
    recording = hire(hidden=(), people=60, rounds=3)
    guess = launch(LinearDecode(), look(recording), 0)
    assert guess.diagnostics["rank"] == 7  # 7 inputs and a bias, the four diplomas sum to it
    assert guess.diagnostics["identified"] < 10
    one_layer = hire(hidden=(3,), people=60, rounds=12, learning_rate=0.3)
    ranks = [launch(LinearDecode(rounds=r), look(one_layer), 0).diagnostics["rank"] for r in (1, 6)]
    assert ranks[1] > ranks[0]


def test_linear_decode_wants_the_records_that_were_trained_on(hire):
    view = look(hire())
    fewer = PublicRecords(view.know(PublicRecords).records.take(np.arange(10)))
    with pytest.raises(FixData, match="10 records are known but the client reported"):
        launch(LinearDecode(), view.knowing(fewer), 0)


# group means


def test_counts_are_used_only_if_they_are_granted(hire):
    recording = hire()
    for name in ("group_means_pinv", "group_means_tikhonov", "bayes_groups"):
        attack = attack_named(name)
        blind, sighted = (
            launch(attack, look(recording), 0),
            launch(attack, look(recording, threat=KNOWING), 0),
        )
        assert blind.diagnostics["counts"] == "estimated"
        assert sighted.diagnostics["counts"] == "known"
        assert not np.allclose(blind.means, sighted.means)
    assert (
        launch(BayesGroups(), look(recording), 0).sd.mean()
        > launch(BayesGroups(), look(recording, threat=KNOWING), 0).sd.mean()
    )


def test_a_group_that_the_client_lacks(hire):
    def no_doctors(dataset):
        table = dict(dataset.records.columns)
        firm, diploma = table["firm"], table["diploma"].copy()
        diploma[(firm == "firm 1") & (diploma == "PhD")] = "master"
        return replace(dataset, records=Records({**table, "diploma": diploma}))

    view = look(hire(change=no_doctors), 1, KNOWING)
    lacking = view.know(Groups).values.index("PhD")
    assert view.know(GroupCounts).counts[lacking] == 0
    for name in GROUP_ATTACKS:
        guess = launch(attack_named(name), view, 0)
        assert np.isfinite(guess.means).all()
    assert np.isnan(launch(BayesGroups(), view, 0).sd[lacking])


def test_tikhonov_solves_the_penalised_problem(hire):
    view = look(hire(), threat=KNOWING)
    layer = last_layer(view, view.know(ClientProgram).recipe)
    a, t = layer.matrix, layer.total
    for strength in (0.0, 0.01, 1.0):
        penalty = (strength * np.linalg.norm(a, 2)) ** 2 * np.eye(a.shape[1])
        sums = np.linalg.solve(a.T @ a + penalty, a.T @ t)
        means = layer.solve(t[None], np.array([strength]))[0, 0]
        np.testing.assert_allclose(means, sums / layer.known.counts, rtol=1e-6)
    strength = calibrated(layer, 50, np.random.default_rng(0))
    guess = launch(GroupMeansTikhonov(), view, 0)
    assert guess.diagnostics["strength"] > 0
    assert 1e-4 <= strength <= 1e2


# what cannot be done


@pytest.mark.parametrize(
    "training",
    [{"algorithm": "fedavg", "epochs": 3}, {"algorithm": "fedavg", "batch_size": 8}],
)
def test_more_than_one_step_is_refused(hire, training):
    view = look(hire(**training))
    for name in (*GROUP_ATTACKS[2:], "linear_decode", "single_record"):
        with pytest.raises(ChooseAnotherAttack, match=r"one (full-batch )?step"):
            launch(attack_named(name), view, 0)


@pytest.mark.parametrize("name", [n for n in GROUP_ATTACKS if n != "auxiliary_mean"])
def test_auxiliary_data_that_do_not_fit(hire, name):
    view, attack = look(hire()), attack_named(name)
    good = view.know(AuxiliaryData)

    def refused(match, auxiliary):
        with pytest.raises(FixData, match=match):
            launch(attack, view.knowing(auxiliary), 0)

    refused("auxiliary data: no column 'age'", replace(good, records=good.records.without("age")))
    if listens(attack):  # a guess by the model's predictions does not look at labels
        refused("auxiliary data: .* not finite", replace(good, labels=good.labels * np.nan))
    rows = good.records["diploma"] != "PhD"
    refused(
        "fewer than two records of group PhD",
        AuxiliaryData(good.records.take(rows), good.labels[rows]),
    )
    three = Groups("diploma", view.know(Groups).values[:3])
    with pytest.raises(FixData, match="unknown group"):
        launch(attack, view.knowing(three), 0)
    with pytest.raises(GrantKnowledge, match="AuxiliaryData"):
        launch(attack, view.narrowed(view.kinds - {AuxiliaryData}), 0)


def test_without_any_count_of_records(hire):
    view = look(hire())
    silent = replace(view.know(Messages), weights=np.array([np.nan]))
    with pytest.raises(ChooseAnotherAttack, match="GroupCounts"):
        launch(BayesGroups(), view.knowing(silent), 0)
    with_counts = look(hire(), threat=KNOWING).knowing(silent)
    assert np.isfinite(launch(BayesGroups(), with_counts, 0).means).all()
    wrong = look(hire(), threat=KNOWING).knowing(GroupCounts((1, 2)))
    with pytest.raises(FixData, match="2 group counts for 4 groups"):
        launch(BayesGroups(), wrong, 0)

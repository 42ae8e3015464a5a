"""The papers' searches and baselines: they find what they can find, as their papers say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import digits, guessed, view_of
from generated import by_class, with_columns

from overheard import Recording, View, launch
from overheard.attacks.baselines import PublicModel
from overheard.attacks.papers import lyu2021 as gm
from overheard.attacks.papers.driouich2022 import algorithm_4
from overheard.data.bundled import VICTIM
from overheard.data.dataset import Dataset
from overheard.errors import ChooseAnotherAttack, FixConfig, GrantKnowledge
from overheard.evaluation.metrics import attribute_hits
from overheard.programs.layers import LayeredNetwork
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.records import Records, encode
from overheard.transcript.kind import recipe_of
from overheard.transcript.knowledge import (
    AuxiliaryData,
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "attack",
    [
        gm.L2Lbfgs(last=(0, 30), step=(10,)),
        gm.CosMatching(phases=("pre1", "pre5"), steps=150),
        gm.Gumbel(last=(0, 30), step=(10,), steps=150),
    ],
)
def test_searches_find_the_attribute_of_few_records(federate, attack):
    """20 people, a network with more equations than people: the papers' easy case."""
    recording = federate({"name": "mlp", "hidden": [32]}, people=20, rounds=40, participation=1.0)
    assert attribute_hits(*guessed(attack, recording)).mean() >= 0.9


@pytest.mark.parametrize("distance", [gm.squared_distance, gm.cosine_distance])
def test_all_are_compared_on_the_same_rounds(federate, distance):
    """The truth comes nearest on all rounds, in whatever order and beside whatever was found."""
    import torch

    recording = federate({"name": "mlp", "hidden": [8]}, rounds=30, participation=1.0)
    problem = gm.matching(view_of(recording))
    secret = recording.truth()["0"]["s"].astype(int)
    truth = torch.from_numpy(np.eye(2)[secret])
    wrong = 1 - truth
    options = [np.array([0]), np.array([0, 10, 20])]
    found = [(wrong,), (truth,), (0.9 * truth,)]
    guess = gm.reconstruct(problem, options, found, distance, expected=False)
    assert np.array_equal(guess.choice(), secret)
    rounds = torch.tensor([0, 10, 20])
    least = guess.diagnostics["objective"]
    assert least == pytest.approx(distance(problem, (truth,), rounds).item())
    assert least < distance(problem, (wrong,), rounds).item()
    assert least <= distance(problem, (0.9 * truth,), rounds).item()


def test_a_search_that_comes_no_nearer_ends(federate):
    import torch

    problem, tries = gm.matching(view_of(federate())), list[int]()

    def distance(matching, result, rounds):
        tries.append(1)
        return (result[0] ** 2).sum()

    start = (problem.thetas.new_ones(2, 2),)
    gm.search(problem, np.array([0]), start, abs, distance, lambda x: torch.optim.SGD(x, 0.0), 5000)
    assert len(tries) == 1001


def test_rounds_of_the_papers():
    # epochs are counted from one in the paper and from zero here
    assert gm.phase(100, "pre1").tolist() == [0]
    assert gm.phase(100, "pre5").tolist() == [0, 1, 2, 3, 4]
    assert gm.phase(100, "last5").tolist() == [95, 96, 97, 98, 99]
    assert gm.phase(3, "last5").tolist() == [0, 1, 2]
    assert gm.phase(25, "gap10").tolist() == [9, 19]
    assert gm.grid(1000, (300,), (100,))[0].tolist() == [0, 100, 200, 300]
    with pytest.raises(FixConfig, match="unknown phase"):
        gm.phase(10, "middle")
    # a grid without repetitions, for transcripts shorter than it
    assert [r.tolist() for r in gm.grid(5, (0, 100, 1000), (10, 2))] == [[0], [0, 2, 4]]


@pytest.mark.parametrize("name", ["linear", "logistic", "mlp"])
def test_algorithm_4_matches_a_loop_over_records(federate, name):
    model = {"name": name, "hidden": [4]} if name == "mlp" else {"name": name}
    recording = federate(model, rounds=5)
    recipe, records = recipe_of(recording), recording.truth()["0"]
    theta = np.random.default_rng(1).normal(size=recipe.model.size)
    view = view_of(recording)
    choice = algorithm_4(view, theta).choice()
    labels = recipe.target.encode(records)
    for i in range(len(records)):
        errors = []
        for value in (0.0, 1.0):
            x = encode(recipe.encoding, records.take(np.array([i])), {"s": value})
            out = network(recipe).predict(theta, x)[0, 0]
            out = 1 / (1 + np.exp(-out)) if name == "logistic" else out
            errors.append((out - labels[i]) ** 2)
        assert choice[i] == int(errors[1] < errors[0])


MLP = {"name": "mlp", "hidden": [32]}


@pytest.fixture
def unlabelled(federate: Any) -> Any:
    """A view without labels of 20 people in two classes, and what is true of them."""
    recording = federate(MLP, change=by_class, clients=1, people=20, columns=8, rounds=5,
                         participation=1.0)  # fmt: skip
    view = view_of(recording, threat=EAVESDROPPER.without(Labels))
    return view, recording.truth()["0"]


def test_labels_are_found_along_with_the_attribute(unlabelled: Any) -> None:
    view, truth = unlabelled
    assert Labels not in view.kinds
    guess = launch(gm.CosMatching(phases=("pre5",), steps=400, temperatures=(1.0,)), view, 0)
    assert guess.labels is not None
    assert guess.labels.values == (0.0, 1.0)
    assert attribute_hits(guess.labels, truth["y"]).mean() == 1.0
    assert attribute_hits(guess, truth["s"]).mean() >= 0.9


def test_unknown_numbers_cannot_be_searched(federate: Any) -> None:
    recording = federate(MLP, people=12, rounds=2, participation=1.0)
    view = view_of(recording, threat=EAVESDROPPER.without(Labels))
    with pytest.raises(ChooseAnotherAttack, match="grant the labels"):
        launch(gm.CosMatching(), view, 0)


def test_classes_start_from_their_shares_elsewhere_where_that_is_wanted(unlabelled: Any) -> None:
    view, truth = unlabelled
    elsewhere = AuxiliaryData(truth.without("y"), np.repeat([0.0, 1.0], [5, 15]))
    given = view.knowing(elsewhere)
    problem, rng = gm.matching(given), np.random.default_rng(0)
    _, classes = gm.start_of(problem, rng, label_prior_known=True)
    assert np.allclose(classes.numpy(), np.log([0.25, 0.75]))
    assert AuxiliaryData in gm.CosMatching.uses
    assert launch(gm.CosMatching(("pre1",), steps=3, label_prior_known=True), given, 0).labels
    with pytest.raises(ChooseAnotherAttack, match="label_prior_known"):
        launch(gm.CosMatching(("pre1",), steps=3, label_prior_known=True), view, 0)


def four_values(dataset: Dataset) -> Dataset:
    """The attribute is a number from 1 to 4, and one input."""
    about = {"ordinal": frozenset({"s"})}
    return with_columns(dataset, about, s=1.0 + np.arange(len(dataset.records)) % 4)


def test_equation_2_of_more_than_two_values(federate: Any) -> None:
    """The virtual input is that of the mean value, a = sum_n n softmax_n, of which the answer is
    the nearest value; a column that is not ordinal would have an input a value."""
    import torch

    settings = {"clients": 1, "people": 12, "columns": 8, "rounds": 2, "participation": 1.0}
    recording = federate(MLP, change=four_values, **settings)
    view = view_of(recording)
    problem = gm.matching(view)
    assert problem.candidates.shape[0] == 4
    rows = np.random.default_rng(0).dirichlet(np.ones(4), size=12)
    recipe, truth = view.know(ClientProgram).recipe, recording.truth()["0"]
    records = Records({**truth.columns, "s": rows @ np.arange(1.0, 5.0)})
    inputs = torch.from_numpy(encode(recipe.encoding, records))
    labels = torch.from_numpy(recipe.target.encode(records))
    rounds = torch.arange(2)
    net = LayeredNetwork(recipe.model, recipe.loss)
    wanted = net.mean_gradients(problem.thetas[rounds], inputs, labels)
    assert torch.allclose(problem.virtual(rounds, torch.from_numpy(rows)), wanted)

    apart = federate(MLP, change=lambda d: dataclasses.replace(four_values(d), ordinal=frozenset()),
                     **settings)  # fmt: skip
    per_value = gm.matching(view_of(apart))
    assert per_value.candidates.shape[2] == problem.candidates.shape[2] + 3

    search = gm.CosMatching(phases=("pre1",), steps=400, temperatures=(1.0,), expected=True)
    assert attribute_hits(launch(search, view, 0), truth["s"]).mean() >= 0.9


def test_free_shares_of_a_number_are_read_by_their_mean(federate: Any) -> None:
    """Only the mean of the shares is in the gradient; the greatest of them is an accident."""
    recording = federate({**MLP, "activation": "tanh"}, change=four_values, clients=1, people=12,
                         columns=8, rounds=2, participation=1.0)  # fmt: skip
    view = view_of(recording)
    mean, greatest = (
        launch(gm.L2Lbfgs(last=(0,), iterations=1000, expected=expected), view, 0)
        for expected in (True, False)
    )
    secret = recording.truth()["0"]["s"]
    assert attribute_hits(mean, secret).mean() >= 0.9 > attribute_hits(greatest, secret).mean()


def digits_run(folder: Path, **training: Any) -> Recording:
    model = {"name": "mlp", "hidden": [7]}
    return digits(folder / "run", model, **{"rounds": 6, "learning_rate": 0.5, **training})


@pytest.fixture
def view(tmp_path: Path) -> View:
    return view_of(digits_run(tmp_path), "attribute.c043", VICTIM)


def test_statistics_agree_with_a_slow_twin(view: View) -> None:
    recipe, link = view.know(ClientProgram).recipe, view.know(Messages)
    labels = recipe.target.encode_values(view.know(Labels).values)
    matrices = gm.matrices_of(view, 6)
    assert matrices.shape == (5, 2, 60, 6)
    last = 7 * 10 + 10
    for value, record, epoch in [(0, 0, 0), (1, 17, 3), (1, 59, 5)]:
        x = encode(recipe.encoding, view.know(PublicRecords).records, {"c043": float(value)})
        x, y = x[record : record + 1], labels[record : record + 1]
        theta = link.returned[epoch].astype(np.float64)
        hidden = np.maximum(theta[: 7 * 64].reshape(7, 64) @ x[0] + theta[7 * 64 : 7 * 65], 0)
        weights = theta[7 * 65 : 7 * 65 + 70].reshape(10, 7)
        outputs = weights @ hidden + theta[-10:]
        chances = np.exp(outputs) / np.exp(outputs).sum()
        gradient = network(recipe).rows(theta, x, y).explicit()[0, -last:]
        true = int(y[0])
        towards = [*gradient[7 * true : 7 * true + 7], gradient[70 + true]]
        expected = [
            float(chances.argmax() == true),
            chances[true],
            loss_named(recipe.loss).values(outputs[None], y)[0],
            np.linalg.norm(gradient),
            np.sum(towards),
        ]
        np.testing.assert_allclose(matrices[:, value, record, epoch], expected, rtol=1e-9)


def test_each_rule_chooses_its_row() -> None:
    # two values, one record, two epochs; value 1 is liked in all but the norm and the last loss
    right = np.array([[[0, 1]], [[1, 1]]])
    chance = np.array([[[0.2, 0.9]], [[0.8, 0.8]]])
    loss = np.array([[[3.0, 0.1]], [[0.5, 0.4]]])
    norm = np.array([[[5.0, 5.0]], [[1.0, 1.0]]])
    leading = np.array([[[-4.0, -4.0]], [[-1.0, -1.0]]])
    chosen = gm.votes(np.stack([right, chance, loss, norm, leading]).astype(np.float64))
    assert {rule: int(row[0]) for rule, row in chosen.items()} == {
        "majority": 1,
        "label_status": 1,
        "probability": 1,
        "loss_norm": 1,
        "final_loss": 0,
        "gradient_norm": 0,
        "true_label_gradient": 1,
    }


def test_the_public_model_learns_from_elsewhere(tmp_path: Path) -> None:
    recording = digits_run(tmp_path)
    guess, secret = guessed(PublicModel(400), recording, "c043", VICTIM)
    assert guess.diagnostics["trained_on"] == 400
    assert attribute_hits(guess, secret).mean() > 0.7 > max(secret.mean(), 1 - secret.mean())


def test_the_public_model_says_what_it_lacks(view: View) -> None:
    with pytest.raises(GrantKnowledge, match="AuxiliaryData"):
        launch(PublicModel(), view.narrowed(view.kinds - {AuxiliaryData}), 0)
    known = view.know(AuxiliaryData)
    lacking = AuxiliaryData(known.records.without("c043"), known.labels)
    with pytest.raises(ChooseAnotherAttack, match="do not tell"):
        launch(PublicModel(), view.knowing(lacking), 0)
    constant = Records({**known.records.columns, "c043": np.zeros(len(known.labels))})
    with pytest.raises(ChooseAnotherAttack, match="one value only"):
        launch(PublicModel(), view.knowing(AuxiliaryData(constant, known.labels)), 0)

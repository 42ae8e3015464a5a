"""What may be asked of every family of programs: members, labels, the client's own model."""

from __future__ import annotations

import numpy as np
import pytest
from federations import NEWTON, STATISTICS, TREES, recorded, score, view_of
from generated import with_columns

from overheard import attack_named, audit, launch
from overheard.errors import ChooseAnotherAttack
from overheard.transcript.knowledge import Labels, Messages
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

TWO_CLASSES = {"objective": "binary:logistic"}
POOLS = {"newton": (NEWTON, 7), "xgboost": (TREES, 10)}
CLASSES = {"newton": (NEWTON, 7), "xgboost": ({**TREES, **TWO_CLASSES}, 16)}
OF_LABELS = {**STATISTICS, "tables": [{"kind": "sum", "of": "y", "by": ["s", "x0", "x1"]}]}
NUMBERS = {
    "newton": ({**NEWTON, "likelihood": "linear"}, 1),
    "gamma": ({**NEWTON, "likelihood": "gamma"}, 3),
    "xgboost": (TREES, 20),
    "statistics": (OF_LABELS, 1),
}


def federated(path, model, rounds, audit, **more):
    """Two clients that take part in every round."""
    if model["name"] == "xgboost":
        pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
    return recorded(path, model, clients=2, rounds=rounds, participation=1.0, audit=audit, **more)


def positive(dataset):
    """Labels that a gamma likelihood allows."""
    return with_columns(dataset, y=np.exp(0.3 * dataset.records["y"]))


@pytest.fixture(scope="module", params=CLASSES)
def classes(request, tmp_path_factory):
    """Of each family, a federation whose labels are classes and are asked about."""
    path = tmp_path_factory.mktemp("classes") / request.param
    return federated(path, *CLASSES[request.param], {"label": True}, people=60)


def test_what_is_certain_is_right_and_grows_with_the_rounds(tmp_path):
    made = federated(tmp_path / "run", *CLASSES["xgboost"], {}, people=80)
    truth, certain = made.truth()["0"]["s"], []
    view = view_of(made)
    for rounds in (1, 2, 4, 16):
        guess = launch(
            attack_named("max_entropy"), view.knowing(view.know(Messages).first(rounds)), 0
        )
        sure = guess.probabilities.max(axis=1) > 0.99
        assert (guess.choice() == truth)[sure].all()
        certain.append(int(sure.sum()))
    assert certain == sorted(certain)
    assert certain[0] < 0.5 * len(truth)
    assert certain[-1] > 0.8 * len(truth)


@pytest.mark.parametrize("family", POOLS)
def test_members_are_found_in_a_pool(tmp_path, family):
    made = federated(tmp_path / "run", *POOLS[family], {"membership": 30}, people=40)
    view = view_of(made, "membership.s")
    guess = launch(attack_named("candidate_decode"), view, 0)
    answers = made.truth("Membership", "membership.s")["0"]
    member = answers["__member__"] > 0.5
    assert (guess.choice() == member).mean() > 0.9
    assert (guess.attribute.choice()[member] == answers["s"][member]).mean() > 0.9


def test_labels_that_are_classes_are_decoded_and_nobody_knows_them(classes):
    view, attack = view_of(classes, "attribute.y"), attack_named("max_entropy")
    assert Labels not in view.kinds
    guess = launch(attack, view, 0)
    right = guess.choice() == classes.truth()["0"]["y"]
    assert right[guess.probabilities.max(axis=1) > 0.99].all()
    found = score(classes, view, attack, guess)
    assert found.value == right.mean() > 0.97
    assert found.imputation < found.value  # an imputation does not know the labels either


def test_what_a_client_would_make_alone(classes):
    """Of Newton steps nearly its own optimum. Of trees its own ones, which lean on all others'."""
    view, attack = view_of(classes, "local_model"), attack_named("structured")
    found = score(classes, view, attack, launch(attack, view, 0))
    assert found.details["agreement"] > 0.8
    assert (found.value < found.imputation / 2) == (classes.path.name == "newton")


@pytest.mark.parametrize(
    ("model", "rounds"), [*CLASSES.values(), ({**STATISTICS, "tables": [{"by": ["s", "x0"]}]}, 1)]
)
def test_another_clients_messages_say_nothing_and_are_flagged(tmp_path, model, rounds):
    """The decoder says that it has been misled."""
    made = federated(tmp_path / "run", model, rounds, {}, people=80)
    theirs = view_of(made, client="1").know(Messages)
    guess = launch(attack_named("max_entropy"), view_of(made).knowing(theirs), 0)
    truth = made.truth()["0"]["s"]
    assert (guess.choice() == truth).mean() < max(truth.mean(), 1 - truth.mean()) + 0.1
    assert guess.diagnostics["flag"]
    assert not guess.diagnostics.get("proven")


def test_of_tables_no_model_is_made(tmp_path):
    made = recorded(tmp_path / "run", STATISTICS, rounds=1, participation=1.0)
    view, attack = view_of(made, "local_model"), attack_named("structured")
    with pytest.raises(ChooseAnotherAttack, match="makes no model"):
        launch(attack, view, 0)


def test_who_cannot_make_a_model_alone_is_passed_over(tmp_path):
    made = recorded(
        tmp_path / "run", {**NEWTON, "likelihood": "linear"}, people=3, rounds=2, participation=1.0
    )
    record = audit(made, EAVESDROPPER, ["structured"])
    assert not record.findings
    assert not record.failed
    assert "alone" in record.skipped[0].reason


@pytest.mark.parametrize("family", NUMBERS)
def test_labels_that_are_numbers_are_solved_for_within_their_intervals(tmp_path, family):
    """Over several federations; of trees most are identified, to the last digit of a float32."""
    covered, model = [], NUMBERS[family]
    for seed in range(3):
        made = federated(
            tmp_path / str(seed), *model, {"attributes": [], "label": True}, people=60, seed=seed,
            change=positive if family == "gamma" else lambda dataset: dataset,
        )  # fmt: skip
        view = view_of(made, "label")
        guess, truth = launch(attack_named("linear_decode"), view, 0), made.truth()["0"]["y"]
        covered += (np.abs(guess.values - truth) <= 1.96 * guess.sd).tolist()
        exact = guess.sd < 1e-3  # the others share their leaves or cells with somebody, always
        assert exact.sum() <= guess.diagnostics["identified"]
        np.testing.assert_allclose(guess.values[exact], truth[exact], atol=1e-5)
        assert exact.sum() > 45 or family != "xgboost"
    assert np.mean(covered) >= 0.92  # 180 labels: two standard errors below 0.95

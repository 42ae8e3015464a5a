"""Who is in the pool: exact from one update, flagged or refused where it cannot be decided."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from federations import view_of
from generated import tumours, visits

from overheard.attacks.attribute import CandidateDecode, pool_candidates
from overheard.attacks.client import client_of, rounding
from overheard.attacks.one_step import decode_one_step, inner_products, network_measurement
from overheard.attacks.papers.lyu2021 import CosMatching, GradientVarianceGmm, last_layer_variances
from overheard.decoding.ties import decode_tied
from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.federation.secrets import pool_of
from overheard.programs.linearise import encoded
from overheard.programs.networks import network
from overheard.programs.recipe import PrivateSteps
from overheard.programs.records import Records
from overheard.programs.training import local_training, shards
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    CandidatePool,
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.store import MEMBER_COLUMN, Recording
from overheard.transcript.view import launch

pytestmark = pytest.mark.slow

MLP = {"name": "mlp", "hidden": [24]}


@pytest.fixture
def pooled(federate):
    def record(outsiders=40, **options):
        return federate(
            MLP, people=50, clients=2, columns=6, audit={"membership": outsiders}, rounds=1,
            participation=1.0, **options,
        )  # fmt: skip

    return record


def asked(recording: Recording, column: str = "s", client: str = "0") -> Any:
    """What is observed of a client, who is a member, and the attribute."""
    view = view_of(recording, f"membership.{column}", client)
    truth = recording.truth("Membership", f"membership.{column}")[client]
    return view, truth[MEMBER_COLUMN] == 1, truth[column]


def test_members_and_their_attribute_from_one_update(pooled):
    recording = pooled()
    for client in recording.clients:
        view, member, secret = asked(recording, client=client)
        guess = launch(CandidateDecode(), view, 0)
        assert 0.3 < member.mean() < 0.7
        assert np.array_equal(guess.choice(), member)
        assert np.array_equal(guess.attribute.choice()[member], secret[member])
        assert guess.diagnostics["fit"] == "good"
        assert "flag" not in guess.diagnostics


def test_the_answer_of_inner_products_is_that_of_rows(pooled):
    """The twin writes the gradients out; of a wrong update both say that nothing explains it."""
    view, _, _ = asked(pooled())
    client, rng = client_of(view, *pool_candidates(view)), np.random.default_rng(0)
    quick = decode_one_step(client, rng)
    assert quick.method == "linear_solve"
    slow = decode_tied(network_measurement(client, 1), client.ties, client.prior)
    np.testing.assert_allclose(quick.probabilities, slow.probabilities, atol=1e-6)
    link = client.messages
    moved = link.returned + 0.1 * rng.normal(size=link.returned.shape).astype(link.returned.dtype)
    wrong = client.with_messages(dataclasses.replace(link, returned=moved))
    assert decode_one_step(wrong, rng).flag


def test_inner_products_say_what_rows_say(pooled, rng):
    """Each sums gradients over the members and counts them: the same sums of squares are left."""
    view, _, _ = asked(pooled())
    recipe, link, inputs, labels = _inside(view)
    client = client_of(view, *pool_candidates(view))
    members = client.candidates.members
    theta = link.sent[0].astype(float)
    naive = np.stack([network(recipe).rows(theta, x, labels).explicit() for x in inputs], axis=1)
    noise = rounding(link)[0] * members / recipe.learning_rate
    total = link.updates()[0] * members / recipe.learning_rate
    rows = network_measurement(client, 1)
    shown = inner_products(recipe, theta[None], total[None], noise[None], client.encoded)
    products = shown.measurement()
    for _ in range(5):
        answer = rng.dirichlet(np.ones(3), size=len(labels))
        gap = total - np.tensordot(answer[:, 1:], naive, 2)
        count = ((members - answer[:, 1:].sum()) / 0.01) ** 2
        for made, sd in ((rows, noise), (products, np.sqrt(np.mean(noise**2)))):
            written = (np.sum((gap / sd) ** 2) + count) / (len(gap) + 1)
            left = made.chi2_per_equation(answer) * made.rank + made.residual_ss
            mean_square = left / (made.rank + made.residual_dof)
            assert mean_square == pytest.approx(written, rel=1e-4)


def _inside(view):
    recipe = view.know(ClientProgram).recipe
    pool = encoded(recipe, pool_candidates(view)[0])
    return recipe, view.know(Messages), pool.inputs[1:], pool.labels[1]


def test_the_pool_says_nothing_of_who_is_in_it(pooled):
    view, member, _ = asked(pooled())
    assert not {"s", MEMBER_COLUMN} & set(view.know(CandidatePool).records.columns)
    assert member[: len(member) // 2].any()
    assert member[len(member) // 2 :].any()


def test_variances_are_those_of_the_gradient_entries(pooled):
    recipe, link, inputs, labels = _inside(asked(pooled())[0])
    theta = link.returned[0].astype(float)
    naive = network(recipe).rows(theta, inputs[0], labels).explicit()
    last = naive[:, -(24 + 1) : -1]  # the last layer's weights, without its bias
    fast = last_layer_variances(recipe, theta, inputs[0], labels)
    assert np.allclose(fast, last.var(axis=1))


def test_mixture_finds_records_that_the_model_has_learned_by_heart(federate):
    recording = federate(
        {"name": "mlp", "hidden": [64]}, clients=1, people=16, columns=12, rounds=1500,
        learning_rate=0.05, participation=1.0, audit={"membership": 8},
    )  # fmt: skip
    view, member, secret = asked(recording)
    guess = launch(GradientVarianceGmm(), view, 0)
    assert np.mean(guess.choice() == member) >= 0.8
    assert guess.attribute is None
    # section 5.2: then the attribute of those found, as if they were known to be members
    search = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=300)
    both = launch(GradientVarianceGmm(then=search), view, 0)
    assert np.array_equal(both.probabilities, guess.probabilities)
    named, rows = guess.choice(), both.attribute.probabilities
    assert set(rows[named].ravel()) == {0.0, 1.0}
    assert np.allclose(rows[~named], view.know(AttributePrior).shares)
    pool = view.know(CandidatePool)
    known = view.knowing(PublicRecords(pool.records.take(named)), Labels(pool.labels[named]))
    assert np.array_equal(rows[named], launch(search, known, 0).probabilities)
    right = both.attribute.choice() == secret
    assert right[named & member].mean() >= 0.8


def resized(view, keep):
    pool = view.know(CandidatePool)
    return view.knowing(CandidatePool(pool.records.take(keep), pool.labels[keep]))


def test_empty_questions_are_refused(pooled):
    view, member, _ = asked(pooled())
    member = np.flatnonzero(member)
    with pytest.raises(FixData, match="and others too"):
        launch(CandidateDecode(), resized(view, member), 0)
    with pytest.raises(FixData, match="client reported 31"):
        launch(CandidateDecode(), resized(view, member[:10]), 0)
    with pytest.raises(FixData, match="each record one label"):
        resized(view, member[:0])
    unsaid = dataclasses.replace(view.know(Messages), weights=np.array([np.nan]))
    with pytest.raises(ChooseAnotherAttack, match="no number of records"):
        launch(CandidateDecode(), view.knowing(unsaid), 0)


def test_pools_need_members_and_others_and_no_twins(pooled):
    with pytest.raises(FixConfig, match="leaves nothing for the clients"):
        pooled(outsiders=100)
    people = Records({"a": np.arange(4.0), "y": np.ones(4)})
    nobody = people.take(np.arange(0))
    with pytest.raises(FixData, match="0 members and 4 non-members"):
        pool_of(nobody, people, "c", 0)
    with pytest.raises(FixData, match="4 members and 0 non-members"):
        pool_of(people, nobody, "c", 0)
    with pytest.raises(FixData, match=r"2 non-member\(s\) of the pool are among its own"):
        pool_of(people, people.take(np.array([1, 2])), "c", 0)


def test_a_pool_that_lacks_some_members_is_flagged(pooled):
    view, member, _ = asked(pooled())
    keep = np.ones(len(member), dtype=bool)
    keep[np.flatnonzero(member)[:3]] = False
    guess = launch(CandidateDecode(), resized(view, keep), 0)
    assert guess.diagnostics["fit"] == "poor"


def test_a_copy_of_a_member_in_the_pool_is_a_tie(pooled):
    view, member, secret = asked(pooled())
    twin = int(np.flatnonzero(member)[0])
    again = np.append(np.arange(len(member)), twin)
    guess = launch(CandidateDecode(), resized(view, again), 0)
    assert guess.diagnostics["tied_records"] == 2
    assert guess.diagnostics["undecidable"] == 2
    assert guess.diagnostics["fit"] == "good"
    # one of the two was used, and nobody can say which
    assert guess.probabilities[[twin, -1]] == pytest.approx([0.5, 0.5], abs=1e-3)
    others = np.delete(np.arange(len(member)), twin)
    assert np.array_equal(guess.choice()[others], member[others])
    inside = others[member[others]]
    assert np.array_equal(guess.attribute.choice()[inside], secret[inside])


@pytest.fixture
def observed(federate: Any) -> Any:
    """``observed(people, **training)``: a view of a pool half of which are members; truth."""

    def record(people: int = 48, seed: int = 0, **training: Any) -> Any:
        how = {"rounds": 3, "participation": 1.0, "seed": seed, **training}
        dataset, audit = visits(people, 40, seed=seed), {"membership": people // 2}
        return asked(federate(MLP, lambda _: dataset, audit=audit, **how), "v0", "a")

    return record


@pytest.mark.parametrize(
    "training",
    [
        {"batch_size": 8},
        {"batch_size": 10, "epochs": 3, "learning_rate": 0.03},  # 24 members: a smaller last batch
        {"batch_size": 64, "epochs": 4},  # every batch is all of them
        {"batch_size": 8, "steps": 6},
        {"batch_size": 8, "algorithm": "fedprox", "proximal": 0.1},
        {"batch_size": 8, "optimiser": {"name": "sgd", "momentum": 0.9}, "learning_rate": 0.02},
        {"epochs": 3, "optimiser": {"name": "adam"}, "learning_rate": 0.005},
    ],
    ids=str,
)
def test_members_of_many_local_steps(observed: Any, training: dict[str, Any]) -> None:
    view, member, secret = observed(**training)
    guess = launch(CandidateDecode(), view, 0)
    assert np.mean(guess.choice() == member) >= 0.97
    assert guess.diagnostics["fit"] == "good"
    assert "flag" not in guess.diagnostics
    assert guess.probabilities.sum() == pytest.approx(member.sum(), abs=0.5)
    right = guess.attribute.choice()[member] == secret[member]
    assert right.mean() >= 0.9


def calibration_error(probabilities: Any, truth: Any) -> float:
    """Expected gap between what is claimed and what is so, in five bins of the probability."""
    bins = np.minimum((probabilities * 5).astype(int), 4)
    gaps = [abs((probabilities - truth)[bins == b].sum()) for b in range(5)]
    return float(np.sum(gaps) / len(truth))


@pytest.mark.parametrize("rate", [1.0, 30.0])
def test_large_learning_rates_are_refused_flagged_or_admitted(observed: Any, rate: float) -> None:
    """The sum is blurred beyond decoding: nothing may be claimed that is not so."""
    meant, true = [], []
    for seed in range(2):
        view, member, _ = observed(learning_rate=rate, batch_size=4, seed=seed, rounds=1)
        try:
            guess = launch(CandidateDecode(), view, seed)
        except ChooseAnotherAttack:  # refused
            continue
        if guess.diagnostics["fit"] == "good":
            meant.append(guess.probabilities)
            true.append(member)
            hits = np.mean(guess.choice() == member)
            assert hits >= 0.8 or {"flag", "undecided"} & guess.diagnostics.keys()
    if meant:
        assert calibration_error(np.concatenate(meant), np.concatenate(true)) <= 0.12


@pytest.mark.parametrize("training", [{}, {"batch_size": 8}], ids=str)
def test_a_pool_without_any_member_is_flagged(observed: Any, training: dict[str, Any]) -> None:
    """36 others, declared to hold 18 members: no choice of them explains the update."""
    view, member, _ = observed(people=72, **training)
    link = view.know(Messages)
    meant = dataclasses.replace(link, weights=np.full_like(link.weights, 18.0))
    guess = launch(CandidateDecode(rounds=1), resized(view, ~member).knowing(meant), 0)
    assert guess.diagnostics["flag"].startswith("poor fit")


def test_parts_of_an_epoch_are_refused(observed: Any) -> None:
    view, _, _ = observed(batch_size=8, steps=4)
    with pytest.raises(ChooseAnotherAttack, match="4 mini-batch steps, not whole epochs"):
        launch(CandidateDecode(), view, 0)


def noisy(view: Any, factor: float) -> tuple[Any, float]:
    """The view with Gaussian noise on every update, in units of the first one's size; its size."""
    link = view.know(Messages)
    sd = factor * float(np.sqrt(np.mean(link.updates()[0] ** 2)))
    added = np.random.default_rng(5).normal(0, sd, link.returned.shape)
    returned = (link.returned + added).astype(link.returned.dtype)
    return view.knowing(dataclasses.replace(link, returned=returned)), sd


def test_declared_noise_keeps_probabilities_calibrated(observed: Any) -> None:
    view, member, _ = observed(people=100, batch_size=8)
    blurred, sd = noisy(view, 1.0)
    given = blurred.knowing(AppliedDefence(("gaussian",), None, sd, effects=(("additive",),)))
    guess = launch(CandidateDecode(rounds=1), given, 0)
    assert guess.diagnostics["fit"] == "good"
    assert 0.6 < np.mean(guess.choice() == member) < 1.0
    assert calibration_error(guess.probabilities, member) <= 0.08


def test_undeclared_noise_is_noticed(observed: Any) -> None:
    view, _, _ = observed(batch_size=8)
    guess = launch(CandidateDecode(rounds=1), noisy(view, 1.0)[0], 0)
    assert guess.diagnostics["fit"] == "poor"
    assert guess.diagnostics["flag"].startswith("poor fit")


def private_view(observed: Any, noise: float, **training: Any) -> Any:
    """As ``observed``, of a client that takes private steps: its training is done again with
    them."""
    view, member, secret = observed(people=100, rounds=1, **training)
    recipe = view.know(ClientProgram).recipe.model_copy(
        update={"private": PrivateSteps(clip=1.0, noise=noise)}
    )
    pool, link = encoded(recipe, pool_candidates(view)[0]), view.know(Messages)
    inputs, labels = pool.inputs[1:], pool.labels[1]
    value = (secret[member] == view.know(AttributeDomain).values[1]).astype(int)
    x = inputs[value, np.flatnonzero(member)].astype("float32")
    data = shards([x], [labels[member].astype("float32")], "float32")
    rng = np.random.default_rng(3)
    ends = [local_training(recipe, sent, data, rng)[0] for sent in link.sent]
    given = dataclasses.replace(link, returned=np.stack(ends))
    return view.knowing(given, ClientProgram(recipe)), member


def test_private_steps_of_little_noise_hide_only_who_was_never_drawn(observed: Any) -> None:
    """Records are drawn by chance: of five epochs one in e^5 members is never used."""
    view, member = private_view(observed, noise=0.01, batch_size=10, epochs=5, learning_rate=0.05)
    guess = launch(CandidateDecode(rounds=1), view, 0)
    assert guess.diagnostics["fit"] == "good"
    assert np.mean(guess.choice() == member) >= 0.95


def test_a_right_recipe_is_not_blamed_for_a_secret_that_goes_with_other_columns(federate):
    """Secrets drawn record by record would add noise alone; these move all members' sum."""
    model = {"name": "mlp", "hidden": [16], "activation": "tanh"}
    how = {"rounds": 1, "learning_rate": 0.03, "batch_size": 16, "participation": 1.0}
    dataset, audit = tumours(150, seed=0), {"membership": 75}
    view, member, _ = asked(federate(model, lambda _: dataset, audit=audit, **how), "v0", "a")
    guess = launch(CandidateDecode(), view, 0)
    assert guess.diagnostics["fit"] == "good"
    assert "flag" not in guess.diagnostics
    sure = np.maximum(guess.probabilities, 1 - guess.probabilities).mean()
    assert sure < np.mean(guess.choice() == member) + 0.08

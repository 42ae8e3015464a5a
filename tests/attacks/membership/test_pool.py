"""Who is in the pool: exact from one update, flagged or refused where it cannot be told."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from overheard.attacks.client import client_of, rounding
from overheard.attacks.membership import CandidateDecode, pool_candidates
from overheard.attacks.one_step import inner_products, network_measurement
from overheard.attacks.papers.lyu2021 import CosMatching, GradientVarianceGmm, last_layer_variances
from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.federation.secrets import pool_of
from overheard.programs.networks import network
from overheard.programs.records import Records
from overheard.programs.simulated import encoded
from overheard.transcript.knowledge import (
    AttributePrior,
    CandidatePool,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.side import MEMBER_COLUMN
from overheard.transcript.target import membership
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

pytestmark = pytest.mark.slow

MLP = {"name": "mlp", "hidden": [24]}


@pytest.fixture
def pooled(federate):
    def record(strangers=40, **options):
        return federate(
            MLP, people=50, clients=2, columns=6, audit={"membership": strangers}, rounds=1,
            participation=1.0, **options,
        )  # fmt: skip

    return record


def look(recording, client="0"):
    view = observe(recording, EAVESDROPPER, membership("s"), client)
    return view, recording.truth("Membership", "membership.s")[client]


def test_members_and_their_attribute_from_one_update(pooled):
    recording = pooled()
    for client in recording.clients:
        view, truth = look(recording, client)
        guess = launch(CandidateDecode(), view, 0)
        member = truth[MEMBER_COLUMN] == 1
        assert 0.3 < member.mean() < 0.7
        assert np.array_equal(guess.choice(), member)
        assert np.array_equal(guess.attribute.choice()[member], truth["s"][member])
        assert guess.diagnostics["fit"] == "good"
        assert "flag" not in guess.diagnostics


def test_inner_products_say_what_rows_say(pooled, rng):
    """Each sums gradients over the members and counts them: the same sums of squares are left."""
    view = look(pooled())[0]
    recipe, link, inputs, labels = _inside(view)
    client = client_of(view, *pool_candidates(view))
    members = client.candidates.members
    theta = link.sent[0].astype(float)
    naive = np.stack([network(recipe).rows(theta, x, labels).explicit() for x in inputs], axis=1)
    noise = rounding(link)[0] * members / recipe.learning_rate
    total = link.updates()[0] * members / recipe.learning_rate
    rows = network_measurement(client, 1)
    products = inner_products(recipe, theta[None], total[None], noise[None], client.encoded)
    for _ in range(5):
        answer = rng.dirichlet(np.ones(3), size=len(labels))
        gap = total - np.tensordot(answer[:, 1:], naive, 2)
        count = ((members - answer[:, 1:].sum()) / 0.01) ** 2
        for made, sd in ((rows, noise), (products, np.sqrt(np.mean(noise**2)))):
            written = (np.sum((gap / sd) ** 2) + count) / (len(gap) + 1)
            left = made.chi2_per_equation(answer) * made.rank + made.spare_chi2
            mean_square = left / (made.rank + made.spare_rows)
            assert mean_square == pytest.approx(written, rel=1e-4)


def _inside(view):
    recipe = view.know(LocalTraining).recipe
    pool = encoded(recipe, pool_candidates(view)[0])
    return recipe, view.know(Link), pool.inputs[1:], pool.labels[1]


def test_the_pool_says_nothing_of_who_is_in_it(pooled):
    recording = pooled()
    view, truth = look(recording)
    pool = view.know(CandidatePool)
    assert "s" not in pool.records.columns
    assert MEMBER_COLUMN not in pool.records.columns
    member = truth[MEMBER_COLUMN] == 1
    assert member[: len(member) // 2].any()
    assert member[len(member) // 2 :].any()


def test_variances_are_those_of_the_gradient_entries(pooled):
    recipe, link, inputs, labels = _inside(look(pooled())[0])
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
    view, truth = look(recording)
    guess = launch(GradientVarianceGmm(), view, 0)
    member = truth[MEMBER_COLUMN] == 1
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
    right = both.attribute.choice() == truth["s"]
    assert right[named & member].mean() >= 0.8


def resized(view, keep):
    pool = view.know(CandidatePool)
    return view.knowing(CandidatePool(pool.records.take(keep), pool.labels[keep]))


def test_empty_questions_are_refused(pooled):
    view, truth = look(pooled())
    member = np.flatnonzero(truth[MEMBER_COLUMN] == 1)
    with pytest.raises(FixData, match="all are members"):
        launch(CandidateDecode(), resized(view, member), 0)
    with pytest.raises(FixData, match="some members are not in"):
        launch(CandidateDecode(), resized(view, member[:10]), 0)
    with pytest.raises(FixData, match="each candidate record one label"):
        resized(view, member[:0])
    unsaid = dataclasses.replace(view.know(Link), weights=np.array([np.nan]))
    with pytest.raises(ChooseAnotherAttack, match="no number of records"):
        launch(CandidateDecode(), view.knowing(unsaid), 0)


def test_pools_need_members_and_strangers_and_no_twins():
    people = Records({"a": np.arange(4.0), "y": np.ones(4)})
    nobody = people.take(np.arange(0))
    with pytest.raises(FixData, match="0 members and 4 strangers"):
        pool_of(nobody, people, "c", 0)
    with pytest.raises(FixData, match="4 members and 0 strangers"):
        pool_of(people, nobody, "c", 0)
    with pytest.raises(FixData, match=r"2 stranger\(s\) of the pool are among its own"):
        pool_of(people, people.take(np.array([1, 2])), "c", 0)


def test_too_many_strangers(pooled):
    with pytest.raises(FixConfig, match="leaves nothing for the clients"):
        pooled(strangers=100)


def test_a_pool_without_any_member_is_flagged(pooled):
    """40 strangers, said to hold 20 members: no choice of them explains the update."""
    view, truth = look(pooled())
    member = truth[MEMBER_COLUMN] == 1
    link = view.know(Link)
    said = dataclasses.replace(link, weights=np.full_like(link.weights, 20.0))
    guess = launch(CandidateDecode(), resized(view, ~member).knowing(said), 0)
    assert guess.diagnostics["fit"] == "poor"
    assert guess.diagnostics["flag"].startswith("poor fit")


def test_a_pool_that_lacks_some_members_is_flagged(pooled):
    view, truth = look(pooled())
    member = truth[MEMBER_COLUMN] == 1
    keep = np.ones(len(member), dtype=bool)
    keep[np.flatnonzero(member)[:3]] = False
    guess = launch(CandidateDecode(), resized(view, keep), 0)
    assert guess.diagnostics["fit"] == "poor"


def test_a_copy_of_a_member_in_the_pool_is_a_tie(pooled):
    view, truth = look(pooled())
    member, secret = truth[MEMBER_COLUMN] == 1, truth["s"]
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


def test_a_prior_must_fit_the_values(pooled):
    view, _ = look(pooled())
    with pytest.raises(FixData, match="3 shares for 2 values"):
        launch(CandidateDecode(), view.knowing(AttributePrior((0.2, 0.3, 0.5))), 0)

"""What is learned from the first rounds alone."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.attacks import attack_named
from overheard.errors import FixRecording
from overheard.evaluation import complete
from overheard.evaluation.audit import audit
from overheard.evaluation.complete import by_rounds, first_rounds, prefixes
from overheard.evaluation.scoring import scorer_of
from overheard.transcript.knowledge import Link
from overheard.transcript.observe import observe, recipe_of
from overheard.transcript.target import LOCAL_MODEL, attribute
from overheard.transcript.threat import SERVER
from overheard.transcript.view import launch


def test_prefixes():
    assert prefixes(1) == ()
    assert prefixes(2) == (1,)
    assert prefixes(11) == (1, 2, 5, 10)
    assert prefixes(501)[-3:] == (100, 200, 500)


def test_the_first_rounds_are_the_first(federate):
    view = observe(federate(), SERVER, LOCAL_MODEL, "0")
    few = first_rounds(view, 3).know(Link)
    whole = view.know(Link)
    assert len(few) == 3
    np.testing.assert_array_equal(few.returned, whole.returned[:3])
    np.testing.assert_array_equal(few.rounds, whole.rounds[:3])


def test_each_line_is_what_the_attack_learns_from_so_many_rounds(federate):
    """Twin: cut the view by hand, launch, score."""
    recording = federate(participation=1.0, rounds=12)
    record = audit(recording, SERVER, ["max_entropy", "exact_linear", "majority"])
    said = []
    lines = by_rounds(recording, SERVER, record, lambda *told: said.append(told))
    assert said[-1][0] == "rounds"
    recipe = recipe_of(recording)
    assert recipe is not None
    models = [line for line in lines if line.question == "local_model"]
    assert [line.rounds for line in models] == [2, 5, 10, 12]  # one round is refused
    losses = [line.value for line in models]
    assert losses[-1] == min(losses)
    secrets = [line for line in lines if line.question == "attribute"]
    assert [line.rounds for line in secrets] == [1, 2, 5, 10, 12]
    assert {line.attack for line in secrets} == {"max_entropy"}
    client = secrets[0].client
    view = observe(recording, SERVER, attribute("s"), client)
    attack = attack_named("max_entropy")
    for line in secrets[:-1]:
        guess = launch(attack, first_rounds(view, line.rounds), 0)
        scorer = scorer_of(recipe, recording.truth(), attribute("s"), view, 0)
        found = scorer(attack, guess, 0.0).finding
        assert (line.value, line.low, line.high) == (found.value, found.low, found.high)
    # of the clients, the one where most was learned
    best = max(
        (f for f in record.findings if f.attack == "max_entropy"), key=lambda f: f.lift or 0.0
    )
    assert client == best.client
    assert secrets[-1].value == best.value


def test_slow_attacks_and_those_that_do_not_listen_are_left_out(federate, monkeypatch):
    recording = federate(participation=1.0, rounds=3)
    record = audit(recording, SERVER, ["model_based_last_returned"])
    assert by_rounds(recording, SERVER, record)
    monkeypatch.setattr(complete, "is_slow", lambda attack: True)
    assert by_rounds(recording, SERVER, record) == ()
    free = audit(recording, SERVER, ["majority"])
    assert by_rounds(recording, SERVER, free) == ()


def test_without_a_recipe_nothing_is_scored(federate, monkeypatch):
    recording = federate(rounds=3)
    record = audit(recording, SERVER, ["majority"])
    monkeypatch.setattr(complete, "recipe_of", lambda _: None)
    with pytest.raises(FixRecording, match="no training recipe"):
        by_rounds(recording, SERVER, record)

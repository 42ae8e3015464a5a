"""Every question keeps what it promises: the truth scores best, and all that is shown has words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import FAMILIES, observed, recipe_in

from overheard.attacks import all_attacks, attack_named
from overheard.errors import FixConfig, FixData
from overheard.evaluation.metrics import comparable_optimum
from overheard.evaluation.scoring import Case, Scored, answers_in
from overheard.questions import question as registry
from overheard.questions.property import answers_of
from overheard.questions.question import Metric, Question, Topic, all_questions, question_named
from overheard.report import words
from overheard.transcript.guess import (
    AttributeValues,
    ClientProperty,
    LabelValues,
    LocalModel,
    Membership,
    certain,
)
from overheard.transcript.knowledge import AttributeDomain, Sums
from overheard.transcript.store import MEMBER_COLUMN, Recording
from overheard.transcript.target import Target, attribute, chosen_targets, targets_in
from overheard.transcript.view import View

NAMES = sorted(all_questions())


def own_model(recording: Recording, view: View, wrong: bool) -> Any:
    recipe = recipe_in(recording)
    optimum, _ = comparable_optimum(recipe, recording.truth()[view.client])
    return LocalModel(optimum + wrong, np.full(len(optimum), np.nan), len(optimum))


def values(recording: Recording, view: View, wrong: bool) -> Any:
    known = view.know(AttributeDomain).values
    column = recording.truth()[view.client][view.target.column]
    right = np.array([known.index(v) for v in column])
    return AttributeValues(certain(right ^ wrong, known), known, claims=False)


def members(recording: Recording, view: View, wrong: bool) -> Any:
    member = recording.truth("Membership", view.target.key)[view.client][MEMBER_COLUMN] > 0.5
    return Membership((member ^ wrong).astype(np.float64))


def labels(recording: Recording, view: View, wrong: bool) -> Any:
    right = recording.truth()[view.client]["y"] + wrong
    return LabelValues(right, np.full(len(right), np.nan))


def clients(recording: Recording, view: View, wrong: bool) -> Any:
    names = view.know(Sums).clients
    chosen = answers_of(recording.truth("Property", view.target.key), names) ^ wrong
    return ClientProperty(chosen.astype(np.float64), chosen, names)


# of each question: a federation that answers it, an attack on it, and how the truth is guessed
ASKED: dict[str, tuple[str, str, Callable[[Recording, View, bool], Any]]] = {
    "local_model": ("models", "exact_linear", own_model),
    "attribute": ("attributes, linear", "max_entropy", values),
    "label": ("label of one record", "single_record", labels),
    "membership": ("members", "candidate_decode", members),
    "property": ("properties", "ols", clients),
}


@pytest.fixture(scope="module", params=NAMES)
def scored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Question, Scored, Scored]:
    """A question, and what the truth and the opposite of it come to."""
    family, attack, guess = ASKED[request.param]
    recording = FAMILIES[family].made(tmp_path_factory.mktemp("asked") / "run")
    view, recipe = observed(FAMILIES[family], recording), recipe_in(recording)
    answers = answers_in(recording, view.target)
    scorer = Case(recipe, recording.truth(), view.target, view, 0, answers).scorer()
    right, wrong = (guess(recording, view, falsified) for falsified in (False, True))
    assert isinstance(right, question_named(request.param).answers)
    by = attack_named(attack)
    return question_named(request.param), scorer(by, right, 0.5), scorer(by, wrong, 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_it_describes_itself(name: str) -> None:
    asked = question_named(name)
    assert re.fullmatch(r"[a-z_]+", asked.name)
    assert asked.asks.endswith("?")
    assert words.question_title(name)
    named = words.of(asked.metric)
    assert named["rule"].endswith(".")
    assert asked.answers
    assert any(attack.question == name for attack in all_attacks().values())
    assert "s" in words.secret(Topic(name, "s", asked.metric.name))
    assert words.secret(Topic(name, None, asked.metric.name)) or not asked.takes("")


def test_the_truth_scores_best(scored: tuple[Question, Scored, Scored]) -> None:
    asked, right, wrong = scored
    metric = asked.metric
    for one in (right, wrong):
        found = one.finding
        assert (found.question, found.metric) == (asked.name, metric.name)
        assert found.measure is metric
        assert found.low <= found.value <= found.high
        assert not metric.hits or set(np.unique(one.units)) <= {0.0, 1.0}
    gain = metric.gain(right.finding.value, wrong.finding.value)
    assert gain > 0
    assert metric.best([right.finding.value, wrong.finding.value]) == right.finding.value
    strengths = [one.finding.strength for one in (wrong, right)]
    assert strengths == sorted(strengths)
    if metric.share:
        assert right.finding.value == 1.0
    else:
        assert right.finding.value == pytest.approx(0.0, abs=1e-6)


def test_it_has_words_for_all_that_is_shown(scored: tuple[Question, Scored, Scored]) -> None:
    asked, right, _ = scored
    found, metric = right.finding, asked.metric
    assert words.value(found)
    assert words.number(metric, None) == "–"
    assert words.number(metric, found.value) != "–"
    assert words.mark(found)
    assert words.brief(found)[0]
    named = words.of(metric)
    assert all(head and words.cell(found, what) for head, what in named["columns"])
    assert "leaks more" in named["chart"]
    assert words.secret(found.topic)


def test_a_question_of_somebody_else_has_words_too() -> None:
    metric = Metric("share_error", "error")
    assert words.secret(Topic("share", "s", metric.name)) == "share of s"
    assert words.question_title("rare_share") == "Rare share"
    assert words.of(metric)["head"] == "Off by"


def test_a_client_that_is_not_in_the_truth_is_not_scored(tmp_path: Path) -> None:
    family = FAMILIES["models"]
    recording = family.made(tmp_path / "run")
    view, recipe = observed(family, recording), recipe_in(recording)
    with pytest.raises(FixData, match="no records of client '0'"):
        Case(recipe, {}, view.target, view, 0).scorer()


# --- targets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_target_names_a_column_where_the_question_is_about_one(name: str) -> None:
    asked = question_named(name)
    column = "poisoning" if asked.together else "s"
    takes = {
        "attribute": (False, True),
        "label": (True, False),
        "local_model": (True, False),
        "membership": (True, True),
        "property": (False, True),
    }
    for key, taken in zip((name, f"{name}.{column}"), takes[name], strict=True):
        if taken:
            assert Target.parse(key).key == key
            assert Target.parse(key) in targets_in([key])
        else:
            with pytest.raises(FixConfig, match="names a sensitive column if"):
                Target.parse(key)


def test_a_target_may_be_several_columns_at_once() -> None:
    joint = attribute("female", "black")
    assert joint.columns == ("female", "black")
    assert joint.key == "attribute+.female+black"
    assert Target.parse(joint.key) == joint
    assert joint.asked.hidden(joint, None) == ("female", "black")
    assert chosen_targets([joint], ["female+black"], "it") == [joint]
    one = attribute("a+b")  # a column with a plus in its name is one column
    assert one.columns == ("a+b",)
    assert Target.parse(one.key) == one
    with pytest.raises(FixConfig, match="two columns or more"):
        Target.parse("attribute+.female")


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(FixConfig, match="unknown question 'age'; known: attribute, label"):
        Target.parse("age.s")
    with pytest.raises(FixConfig, match="unknown metric 'auc'; known: accuracy"):
        registry.metric_named("auc")
    with pytest.raises(FixConfig, match=r"has no target 'x'; it has attribute\.s, local_model"):
        chosen_targets(targets_in(["attribute.s"]), ["x"], "it")


# --- where they are found ---------------------------------------------------------------------


class Point:
    value = "package:QUESTION"

    def __init__(self, loads: Any) -> None:
        self.load = lambda: loads


@pytest.mark.parametrize(
    ("loads", "complaint"),
    [
        (7, "package:QUESTION: is no question but a int"),
        (question_named("label"), "there is a question 'label' already"),
        (
            replace(
                question_named("label"),
                name="labels",
                metric=replace(question_named("label").metric, limit=1.0),
            ),
            "another metric 'mean_absolute_error'",
        ),
    ],
)
def test_what_cannot_be_found_twice_is_refused(
    loads: Any, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: [Point(loads)])
    with pytest.raises(FixConfig, match=complaint):
        registry.all_questions.__wrapped__()

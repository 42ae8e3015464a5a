"""Boosted trees: from the config to a finding; what others' answers, records and files do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from federations import guessed, recorded, view_of

from overheard import attack_named
from overheard.errors import FixConfig, FixRecording, OverheardError
from overheard.programs.families.xgboost import MODEL, Trees, read_exchanges
from overheard.programs.program import Candidates, Exchange, program_of
from overheard.programs.records import Records
from overheard.transcript.kind import program_in
from overheard.transcript.knowledge import Messages

pytest.importorskip("xgboost", reason="needs overheard[xgboost]")

TREES = {"name": "xgboost", "objective": "binary:logistic", "max_depth": 4}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Two clients of 80 people, sixteen rounds."""
    path = tmp_path_factory.mktemp("trees") / "run"
    return recorded(path, TREES, clients=2, people=80, rounds=16, participation=1.0)


def decoded(recording):
    return guessed(attack_named("max_entropy"), recording)[0]


def test_one_client_after_the_other(tmp_path):
    model = {**TREES, "aggregation": "cyclic"}
    made = recorded(tmp_path / "run", model, clients=2, people=40, rounds=16, participation=0.5)
    guess = decoded(made)
    right = guess.choice() == made.truth()["0"]["s"]
    assert right.mean() > 0.8
    assert right[guess.probabilities.max(axis=1) > 0.99].all()
    with pytest.raises(FixConfig, match=r"training\.participation"):
        recorded(tmp_path / "all", model, clients=2, people=40, rounds=2, participation=1.0)


@pytest.mark.parametrize("step", [0.0, 0.02])
def test_fewer_fields_are_sent(tmp_path, federation, step):
    """What is left is used; rounded, it tells less, and the answer is no surer than right."""
    model = {**TREES, "releases": "values", "leaf_step": step}
    made = recorded(tmp_path / "run", model, clients=2, people=80, rounds=16, participation=1.0)
    guess, whole = decoded(made), decoded(federation)
    truth = made.truth()["0"]["s"]
    right, confidence = guess.choice() == truth, guess.probabilities.max(axis=1)
    assert right[confidence > 0.99].all()
    sure = whole.probabilities.max(axis=1).mean()
    assert confidence.mean() < sure - 0.02 if step else confidence.mean() <= sure
    assert abs(confidence.mean() - right.mean()) < 0.15
    assert "flag" not in guess.diagnostics


@pytest.mark.parametrize(
    ("more", "named"),
    [({"leaf_step": 0.1}, "leaf_step"), ({"objective": "count:poisson"}, "not negative")],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, more, named):
    with pytest.raises(OverheardError, match=named):
        recorded(tmp_path / "run", {**TREES, **more}, people=20, rounds=1, participation=1.0)


@pytest.mark.parametrize(
    "returned",
    [
        {},
        {MODEL: np.zeros(3)},
        {MODEL: np.zeros((2, 2), dtype=np.uint8)},
        {MODEL: np.frombuffer(b"{}", dtype=np.uint8)},
        {MODEL: np.frombuffer(b"\x80\x04pickled", dtype=np.uint8)},
        {"a": np.zeros(1, dtype=np.uint8), "b": np.zeros(1, dtype=np.uint8)},
    ],
    ids=["nothing", "floats", "a table", "no model", "a pickle", "two"],
)
def test_messages_of_another_program_are_refused_in_a_line(federation, returned):
    program = program_in(federation)
    sent = {MODEL: np.zeros(0, dtype=np.uint8)}
    records = federation.truth()["0"]
    observed = [Exchange(4, sent, returned)]
    for read in (
        lambda: program.equations(observed, Candidates(records, ({}, {}), len(records))),
        lambda: program.own(observed),
    ):
        with pytest.raises(FixRecording) as refused:
            read()
        assert len(str(refused.value).splitlines()) == 1
        assert "round 4" in str(refused.value)


def test_lists_of_new_models_are_joined_to_what_went_before(federation):
    """As FLARE sends them: what everybody returned in the round before, and nothing else."""
    program = program_in(federation)
    (first, *_), (other, *_) = (federation.releases(client) for client in ("0", "1"))
    both = {f"models.{k}": one[2][MODEL] for k, one in enumerate((first, other))}
    nothing = {"nothing": np.zeros(0, dtype=np.uint8)}
    whole = program.following(program.first(), {"0": first[2], "1": other[2]})
    observed = [Exchange(1, nothing, first[2]), Exchange(2, both, first[2])]
    begun, joined = program.assembled(observed)
    assert begun.sent == nothing
    np.testing.assert_array_equal(joined.sent[MODEL], whole[MODEL])
    broken = b'{"learner": {}}', first[2][MODEL].tobytes().replace(b"iteration_indptr", b"gone")
    for raw in broken:
        sent = {**both, "models.0": np.frombuffer(raw, dtype=np.uint8)}
        with pytest.raises(FixRecording, match="round 2"):
            program.assembled([Exchange(2, sent, first[2])])


def test_descriptions_that_contradict_themselves_are_refused(federation):
    content = program_in(federation).model_dump(mode="json")
    for change in ({"objective": "multi:softprob"}, {"eta": 0}, {"objective": "rank:ndcg"}):
        settings = {**content["settings"], **change}
        if change == {"objective": "multi:softprob"}:
            content["target"]["classes"] = []
        with pytest.raises(FixRecording):
            program_of({**content, "settings": settings}, "side")


def test_rounds_without_an_answer_are_left_out(federation):
    observed = view_of(federation).know(Messages).exchanges
    nothing = dataclasses.replace(observed[1], returned={MODEL: np.zeros(0, dtype=np.uint8)})
    assert len(read_exchanges([observed[0], nothing, observed[2]])) == 2
    assert isinstance(federation.truth()["0"], Records)


@pytest.mark.parametrize("raw", [b"garbage", b'{"learner": {}}', b"{L" + bytes(30)])
def test_a_model_that_is_none_is_refused_and_nothing_is_written(workplace, monkeypatch, raw):
    """The audit ends in one line before anything is written, not with an attack that failed."""
    garbage = {MODEL: np.frombuffer(raw, dtype=np.uint8)}
    monkeypatch.setattr(Trees, "respond", lambda *given: garbage)
    monkeypatch.setattr(Trees, "following", lambda self, *given: self.first())
    recorded(workplace.path / "trees", TREES, clients=2, people=20, rounds=2, participation=1.0)
    error = workplace.refused("audit", "trees", "--out", "out")
    assert "the model returned in round 0" in " ".join(error.split())
    assert not (workplace.path / "out").exists()


def test_trees_of_other_classes_than_the_models_are_refused(federation):
    (_, one, *_) = view_of(federation).know(Messages).exchanges
    classes = Path(__file__).parents[2] / "fuzz" / "corpus" / "trees" / "classes.json"
    other = {MODEL: np.frombuffer(classes.read_bytes(), dtype=np.uint8)}
    with pytest.raises(FixRecording, match="other classes"):
        read_exchanges([dataclasses.replace(one, returned=other)])

"""Programs that train no network: found, described, simulated, recorded, audited, refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from federations import generated_people, recorded, view_of, with_strangers
from scripts import load

from overheard.attacks import all_attacks, attack_named
from overheard.errors import ChooseAnotherAttack, FixConfig, FixRecording, OverheardError
from overheard.evaluation.audit import audit
from overheard.evaluation.replay import replays
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.programs.program import families, family_named, program_of, settings_of
from overheard.transcript.kind import program_in
from overheard.transcript.knowledge import AuxiliaryData, Sums
from overheard.transcript.messages import parse_round
from overheard.transcript.store import Recorder, Recording
from overheard.transcript.target import LOCAL_MODEL, attribute
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER
from overheard.transcript.verify import verify
from overheard.transcript.view import launch, observe

attempting = load(Path(__file__).parents[1] / "transcript" / "attempting.py")


def federated(path, rounds=6):
    """Two clients of 30 people who take Newton steps."""
    model = {"name": "newton", "likelihood": "logistic"}
    return recorded(path, model, clients=2, people=30, rounds=rounds, participation=1.0)


def test_a_family_is_a_file_and_its_settings_name_it():
    assert "newton" in families()
    for name in families():
        assert settings_of(name).model_fields["name"].default == name
        assert not family_named(name).__abstractmethods__
    with pytest.raises(FixConfig, match=r"known: .*newton"):
        family_named("os.path")


def test_simulated_recorded_verified_audited(tmp_path):
    """From the config to a finding, with the check that clients answered as their program says."""
    recording = federated(tmp_path / "run")
    assert recording.payload == "release"
    assert verify(recording.path).sound
    record = audit(recording, EAVESDROPPER, ["max_entropy", "exact_linear"])
    (found, *_) = [f for f in record.findings if f.attack == "max_entropy"]
    assert found.value == 1.0
    assert found.majority < 0.9
    assert found.details["rounds_observed"] == 6
    assert {r.outcome for r in record.replays} == {"fits"}
    assert {r.off for r in record.replays} == {0.0}
    assert not record.failed
    reasons = {s.attack: s.reason for s in record.skipped}
    assert "attacks networks" in reasons["exact_linear"]
    assert "choose an attack on any program" in reasons["exact_linear"]


def test_answers_that_the_records_do_not_lead_to_are_noticed(tmp_path):
    recording = federated(tmp_path / "run")
    program, truth = program_in(recording), recording.truth()
    others = {"0": truth["1"], "1": truth["0"]}
    found = replays(recording, program, others, recording.clients)
    assert [r.outcome for r in found] == ["does not fit"] * 2
    assert min(r.off for r in found) > 1e-3
    assert replays(recording, program, {}, ["0"])[0].outcome == "cannot be checked"


def test_networks_and_programs_are_not_mistaken_for_each_other(tmp_path):
    program = federated(tmp_path / "run", rounds=2)
    views = [
        observe(program, EAVESDROPPER, target, program.clients[0])
        for target in (attribute("s"), LOCAL_MODEL)
    ]
    with pytest.raises(ChooseAnotherAttack, match="'newton': choose an attack on any program"):
        launch(attack_named("partial_decode"), views[0], 0)
    answered = set()
    for name, attack in all_attacks().items():
        for view in views:
            if attack.question == view.target.question:
                with suppress(OverheardError):
                    launch(attack(), view, 0)
                    answered.add(name)
    assert {"max_entropy", "structured", "majority"} <= answered
    assert not {"last_returned", "learned_map", "model_based_global"} & answered
    assert Sums not in observe(program, SECURE_SERVER, attribute("s"), program.clients[0]).kinds


def test_messages_may_change_their_shape_from_round_to_round(tmp_path):
    """Bytes, other names and other lengths each way, as they were."""
    sent = [{"model": np.frombuffer(b"", np.uint8)}, {"model": np.frombuffer(b"{}", np.uint8)}]
    back = [
        {"a": {"tree": np.frombuffer(b"abc", np.uint8)}, "b": {}},
        {"b": {"sums": np.arange(3.0), "note": np.arange(2)}},
    ]
    with Recorder(tmp_path / "run", "release", {"clients": ["a", "b"]}) as recorder:
        for number, (to, answers) in enumerate(zip(sent, back, strict=True)):
            recorder.round(number, to, answers)
    recording = Recording.open(tmp_path / "run")
    assert verify(recording.path).sound
    ((_, to, answer),) = recording.releases("a")
    assert to["model"].tobytes() == b""
    assert answer["tree"].tobytes() == b"abc"
    (_, _, nothing), (entry, to, answer) = recording.releases("b")
    assert nothing == {}
    assert to["model"].tobytes() == b"{}"
    np.testing.assert_array_equal(answer["sums"], np.arange(3.0))
    assert entry.number == 1


def test_a_layout_of_its_own_is_for_releases_only(tmp_path):
    arrays = {"w": np.zeros(2)}
    with Recorder(tmp_path / "run", "release", {}) as recorder:
        recorder.round(0, arrays, {"a": {"other": np.zeros(1)}})
    index = tmp_path / "run" / "messages" / "index.jsonl"
    lines = attempting.lines_of(index)
    for wrong in ([["other", "F64", [300]]], [["other", "F64"]], "x", [["other", "F64", [1]]] * 2):
        broken = json.loads(json.dumps(lines[1]))
        broken["messages"][1] = [*broken["messages"][1][:2], wrong]
        with pytest.raises(FixRecording, match="round 0 is not valid"):
            parse_round(tmp_path / "run" / "messages", broken)
    lines[0]["payload"] = "model"
    attempting.forge(index, lines)
    with pytest.raises(FixRecording, match="only releases of programs may"):
        Recording.open(tmp_path / "run")


SETTINGS = {"name": "newton"}


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"settings": {"name": "os"}},
        {"settings": {"name": ["newton"]}},
        {"settings": SETTINGS},
        {"settings": {**SETTINGS, "ridge": -1}},
        {"settings": SETTINGS, "encoding": {"blocks": []}, "target": {"column": "y"}},
        {"settings": SETTINGS, "encoding": {"blocks": "x"}, "target": {"column": "y"}},
        {"settings": {**SETTINGS, "releases": "pickle"}, "encoding": {"blocks": []}, "target": {}},
        {"settings": {**SETTINGS, "factory": "os:system"}},
    ],
)
def test_hostile_descriptions_are_refused_in_a_line(content):
    with pytest.raises(FixRecording) as refused:
        program_of(content, "side")
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"training": {"rounds": 2, "learning_rate": 0.1}}, "training.learning_rate"),
        ({"training": {"rounds": 2, "batch_size": 8}}, "training.batch_size"),
        ({"server": {"rule": "adam"}}, r"\[server\]"),
        ({"defence": [{"name": "clip", "norm": 1.0}]}, "defence 'clip'"),
        ({"model": {"name": "newton", "hidden": [3]}}, "hidden"),
        ({"model": {"name": "newton", "likelihood": "linear"}}, "classes"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(tmp_path, more, named):
    content = {
        "data": {"source": "file"},
        "model": {"name": "newton"},
        "training": {"rounds": 2},
        **more,
    }
    with pytest.raises(OverheardError, match=named):
        plan(parse_config(content), generated_people(2, 30, 3, 0, classify=True))


def test_a_network_still_needs_a_rate():
    content = {"data": {"source": "file"}, "model": {"name": "linear"}, "training": {"rounds": 1}}
    with pytest.raises(FixConfig, match="learning_rate"):
        parse_config(content)


def test_what_is_imputed_is_the_prior_where_records_from_elsewhere_are_known(tmp_path):
    """Nothing is observed of s, so that the answer is the imputation."""
    model = {"name": "statistics", "tables": [{"kind": "sum", "of": "x0"}]}
    recording = recorded(
        tmp_path / "run", model, change=with_strangers, rounds=1, participation=1.0
    )
    view = view_of(recording)
    guess = launch(attack_named("max_entropy"), view, 0)
    assert guess.diagnostics["method"] == "prior"
    right = (guess.choice() == recording.truth()["0"]["s"]).mean()
    alone = launch(attack_named("max_entropy"), view.narrowed(view.kinds - {AuxiliaryData}), 0)
    assert len(np.unique(alone.probabilities, axis=0)) == 1
    assert right > (alone.choice() == recording.truth()["0"]["s"]).mean() + 0.1
    public = launch(attack_named("public_model"), view, 0)
    assert np.corrcoef(public.probabilities[:, 1], guess.probabilities[:, 1])[0, 1] > 0.5

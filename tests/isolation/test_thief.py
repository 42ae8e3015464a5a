"""A thief finds the truth in the auditor's own process, and not from behind the walls."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scripts import load

from overheard.attacks import attack_named
from overheard.errors import AttackFailed, ChooseAnotherAttack, FixConfig, GrantKnowledge
from overheard.isolation import launch as isolation
from overheard.isolation.envelope import GUESSES, pack, pack_failure, unpack_guess
from overheard.isolation.launch import Isolated, isolating, launch_isolated, means
from overheard.questions.question import all_questions
from overheard.transcript.guess import AttributeValues, LocalModel, Membership, OwnModel
from overheard.transcript.knowledge import AttributeDomain, Labels
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import Target
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER
from overheard.transcript.view import View, launch

HELD = all(means().values())
walled = pytest.mark.skipif(not HELD, reason=f"this system cannot isolate: {means()}")


@pytest.fixture(scope="module")
def thief() -> Iterator[Any]:
    yield load(Path(__file__).with_name("thief.py"), "a_stranger").Thief
    del sys.modules["a_stranger"]


@pytest.fixture
def door() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def recording(federate: Callable[..., Recording]) -> Recording:
    return federate(rounds=6, people=24, participation=1.0)


def seen(recording: Recording, target: str = "attribute.s") -> View:
    return observe(recording, EAVESDROPPER, Target.parse(target), "1")


@walled
def test_it_steals_here_and_not_there(
    recording: Recording, thief: Any, door: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = (recording.path / "truth").glob("*-records.safetensors")
    monkeypatch.setenv("A_SECRET", "1")
    monkeypatch.setenv("A_PLACE", str(recording.path))
    monkeypatch.chdir(recording.path)
    view, attack = seen(recording), thief(str(file), door)
    truth = recording.truth()  # as in the audit, whose frames an attack can walk
    secret = truth["1"]["s"]

    open_handed = launch(attack, view, 0)
    assert (open_handed.choice() == secret).all()
    missed = {way for way, found in open_handed.diagnostics.items() if not found}
    assert missed <= {"child", "memory", "proc", "signal"}  # as the system lets its owner

    file.chmod(0o600)
    (recording.path / "mine").unlink()
    walled_in = launch_isolated(attack, view, 0, hidden=[recording.path])
    assert set(walled_in.diagnostics) == set(open_handed.diagnostics)
    assert {way for way, found in walled_in.diagnostics.items() if found} == set()
    assert 0.3 < (walled_in.choice() == secret).mean() < 0.9  # it guesses
    assert file.stat().st_mode & 0o777 == 0o600
    assert not (recording.path / "mine").exists()


@walled
@pytest.mark.parametrize(
    ("name", "target"), [("max_entropy", "attribute.s"), ("exact_linear", "local_model")]
)
def test_an_honest_attack_answers_the_same(recording: Recording, name: str, target: str) -> None:
    view, attack = seen(recording, target), attack_named(name)
    here, there = launch(attack, view, 3), launch_isolated(attack, view, 3)
    assert type(there) is type(here)
    assert there.diagnostics == pytest.approx(here.diagnostics, nan_ok=True)
    for field in ("probabilities", "parameters", "sd"):
        if hasattr(here, field):
            np.testing.assert_array_equal(getattr(there, field), getattr(here, field))


@walled
def test_sums_are_handed_over_without_a_disk(recording: Recording) -> None:
    view = observe(recording, SECURE_SERVER, Target.parse("attribute.s"), "1")
    attack = attack_named("sum_decode")
    here, there = launch(attack, view, 0), launch_isolated(attack, view, 0)
    np.testing.assert_array_equal(there.probabilities, here.probabilities)


def test_whatever_is_launched_within_is_isolated(
    recording: Recording, thief: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_PLACE", str(recording.path))  # where it looks, and below
    held: list[str] = []

    def called(self: Isolated, view: View, rng: np.random.Generator) -> None:
        held.append(f"{self.name} {view.kinds == self.needs} {self.hidden}")

    monkeypatch.setattr(Isolated, "__call__", called)
    monkeypatch.chdir(recording.path)  # the thief leaves a file where it runs unhindered
    view, ours, theirs = seen(recording), attack_named("majority"), thief()
    for every, expected in ((None, ["thief"]), (True, ["majority", "thief"]), (False, [])):
        held.clear()
        with isolating(every, [recording.path]):
            for attack in (ours, theirs):
                launch(attack, view, 0)
        assert held == [f"{name} True {(recording.path,)}" for name in expected]
    launch(theirs, view, 0)
    assert not held[1:]


@walled
def test_the_command_isolates(workplace: Any) -> None:
    words = ("audit", "run", "--attack", "majority", "--attack", "max_entropy", "--no-rounds")
    chosen = ("--client", "site 1", "--target", "s")
    plain = workplace.overheard(*words, *chosen, "--out", "plain")
    walled_in = workplace.overheard(*words, *chosen, "--out", "walled", "--isolate")
    assert plain.returncode == walled_in.returncode == 0, walled_in.stderr
    one, two = (
        json.loads((workplace.path / name / "audit.json").read_text())
        for name in ("plain", "walled")
    )
    assert [f["value"] for f in one["findings"]] == [f["value"] for f in two["findings"]]
    (note,) = set(two["notes"]) - set(one["notes"])
    assert note.startswith("Every attack ran in a process of its own")
    assert all(how in note for how in means().values())


# ---- code that cannot be held is not run


def test_where_the_system_lacks_the_means_it_is_said(
    recording: Recording, thief: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = {"file system": "", "network and other processes": "seccomp"}
    monkeypatch.setattr(isolation, "means", lambda: lacking)
    with pytest.raises(FixConfig, match="cannot keep 'thief' from the file system"):
        launch_isolated(thief(), seen(recording), 0)


def test_what_must_be_hidden_may_not_lie_among_its_code(recording: Recording, thief: Any) -> None:
    with pytest.raises(FixConfig, match="must read for its code"):
        launch_isolated(thief(), seen(recording), 0, hidden=[isolation.PACKAGE / "run"])


@dataclass(frozen=True)
class Local:
    """Not importable by name."""

    name: ClassVar[str] = "local"
    paper: ClassVar[str] = ""
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Labels, AttributeDomain})

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        raise AssertionError


def test_an_attack_that_no_child_can_import_is_refused(recording: Recording) -> None:
    Local.__module__ = "__main__"
    with pytest.raises(FixConfig, match="define it at the top of a module"):
        launch_isolated(Local(), seen(recording), 0)


def test_missing_knowledge_is_said_before_a_child_starts(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_run", lambda *words: pytest.fail("it was started"))
    with pytest.raises(GrantKnowledge):
        launch_isolated(attack_named("sum_decode"), seen(recording), 0)


# ---- what comes back is a stranger's


ROGUE = """
import os, sys, time
from dataclasses import dataclass
from typing import Any, ClassVar
import numpy as np
from overheard.transcript.guess import AttributeValues, Membership
from overheard.transcript.knowledge import AttributeDomain, Labels


@dataclass(frozen=True)
class Rogue:
    name: ClassVar[str] = "rogue"
    paper: ClassVar[str] = ""
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Labels, AttributeDomain})
    does: str

    def __call__(self, view, rng):
        print("printed, not answered")
        domain, people = view.know(AttributeDomain), len(view.know(Labels).values)
        fair = np.full((people, len(domain.values)), 1 / len(domain.values))
        match self.does:
            case "right":
                return AttributeValues(fair, domain.values)
            case "another type":
                return Membership(np.full(people, 0.5))
            case "code":
                return AttributeValues(fair, domain.values, {"flag": Rogue("x")})
            case "memory":
                return np.ones(1 << 40)
            case "sleep":
                time.sleep(60)
            case "large":
                return AttributeValues(np.full((1 << 22, 2), 0.5), domain.values)
            case "crash":
                os.abort()
            case "divide":
                1 / 0
            case "not applicable":
                from overheard.errors import ChooseAnotherAttack
                raise ChooseAnotherAttack("works on other models only")
"""


@walled
@pytest.mark.parametrize(
    ("does", "error", "complaint"),
    [
        ("another type", AttackFailed, "answers 'attribute' with Membership"),
        ("code", AttackFailed, "cannot be handed to or from"),
        ("memory", AttackFailed, "MemoryError"),
        ("sleep", AttackFailed, "took more than 1 seconds; raise OVERHEARD_MAX_ATTACK_SECONDS"),
        ("large", AttackFailed, "File too large|ended without a guess"),
        ("crash", AttackFailed, "ended without a guess"),
        ("divide", AttackFailed, "failed: ZeroDivisionError"),
        ("not applicable", ChooseAnotherAttack, "works on other models only"),
    ],
)
def test_what_a_rogue_does_is_an_error_of_its_own(
    recording: Recording,
    tmp_path: Path,
    does: str,
    error: type[Exception],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "a_rogue.py"
    file.write_text(ROGUE)
    rogue = load(file, "a_rogue").Rogue
    if does == "sleep":
        monkeypatch.setenv("OVERHEARD_MAX_ATTACK_SECONDS", "1")
    if does == "large":
        monkeypatch.setenv("OVERHEARD_MAX_ANSWER_BYTES", "1MB")
    with pytest.raises(error, match=complaint):
        launch_isolated(rogue(does), seen(recording), 0)
    del sys.modules["a_rogue"]


def test_a_guess_answers_what_was_asked(recording: Recording) -> None:
    view = seen(recording)
    fair, values = np.full((24, 2), 0.5), (0.0, 1.0)
    isolation.checked(AttributeValues(fair, values), view, "one")
    for guess, complaint in (
        (Membership(np.full(24, 0.5)), "answers 'attribute' with Membership"),
        (AttributeValues(fair, (7.0, 8.0)), "not .0.0, 1.0."),
        (AttributeValues(fair[1:], values), "answers for 23 records, not for 24"),
        (AttributeValues(fair, values, {"flag": "x" * 9999}), "short texts"),
        (AttributeValues(fair, values, {"flag": (1,)}), "short texts"),  # type: ignore[dict-item]
    ):
        with pytest.raises(AttackFailed, match=complaint):
            isolation.checked(guess, view, "one")


GUESS = AttributeValues(np.full((3, 2), 0.5), (0.0, 1.0), {"rank": 3, "noise": float("nan")})


def test_a_guess_comes_back_as_it_went() -> None:
    back = unpack_guess(pack(GUESS), "one")
    assert back.values == GUESS.values
    assert str(back.diagnostics) == str(dict(GUESS.diagnostics))
    np.testing.assert_array_equal(back.probabilities, GUESS.probabilities)
    model = LocalModel(np.ones(3), np.full(3, np.nan), 2)
    np.testing.assert_array_equal(unpack_guess(pack(model), "one").sd, model.sd)
    own = OwnModel({"model": np.arange(3, dtype=np.uint8)})
    np.testing.assert_array_equal(unpack_guess(pack(own), "one").message["model"], np.arange(3))
    nested = Membership(np.full(3, 0.5), GUESS)
    assert unpack_guess(pack(nested), "one").attribute.values == (0.0, 1.0)
    assert {type(GUESS), LocalModel, Membership} < set(GUESSES)


def told(said: str) -> bytes:
    return len(said).to_bytes(8, "little") + said.encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff" * 9,
        told("[]"),
        told("{"),
        told('{"kind":"View","of":{}}'),
        told('{"kind":"LocalModel","of":{"parameters":1}}'),
        told('{"class":"os:system","of":{"command":"true"}}'),
        told('{"recipe":{}}'),
        told('{"array":"0"}'),
        told('{"tuple":' * 100 + "1" + "}" * 100),
        told('{"map":[[{"tuple":[1]},2,3]]}'),
        told('{"error":"SystemExit"}'),
        told("7"),
        pack(GUESS)[:-4],
        pack(GUESS) + b"more",
        pack_failure(SystemError("no")),
    ],
)
def test_bytes_that_are_no_guess_are_refused(raw: bytes) -> None:
    with pytest.raises(AttackFailed):
        unpack_guess(raw, "one")


def test_every_answer_can_be_handed_over() -> None:
    answers = {kind for asked in all_questions().values() for kind in asked.answers}
    assert answers == set(GUESSES)

"""A view holds what the threat model grants and nothing through which more could be reached."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from overheard.errors import (
    AttackFailed,
    DeclareKnowledge,
    FixConfig,
    FixRecording,
    GrantKnowledge,
    ListenLonger,
)
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Encoding, Records, Scaled
from overheard.transcript.guess import AttributeValues, Membership
from overheard.transcript.kind import kinds
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    Broadcast,
    ClientProgram,
    Labels,
    Messages,
    PublicRecords,
    Sums,
)
from overheard.transcript.messages import Round
from overheard.transcript.store import Recorder, Recording
from overheard.transcript.target import LOCAL_MODEL, attribute, client_property
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER, SERVER, Threat
from overheard.transcript.view import View, launch, observe

Federate = Callable[..., Recording]
RECIPE = Recipe(
    model=Dense(inputs=2),
    loss="squared_error",
    encoding=Encoding(blocks=(Scaled(column="x"), Scaled(column="s"))),
    target=Target(column="y"),
    learning_rate=0.1,
)


# --- nothing secret is within reach -----------------------------------------------------------


def reachable(start: object) -> Iterator[object]:
    """Everything that can be reached from an object without importing anything.

    Follows attributes, containers, array bases and whatever else the garbage collector knows;
    stops at classes, functions and modules, which every attack can name anyway.
    """
    seen: dict[int, object] = {}
    todo = [start]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(
            thing, type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType
        ):
            continue
        seen[id(thing)] = thing
        yield thing
        todo += gc.get_referents(thing)
        todo += getattr(thing, "__dict__", {}).values()
        if isinstance(thing, np.ndarray):
            todo.append(thing.base)
            if thing.dtype == object:
                todo += thing.tolist()


def leaks(view: object, recording: Recording, secret: np.ndarray) -> set[str]:
    """What of the recording or of the secret can be reached from a view."""
    found: set[str] = set()
    words = {"str": str(recording.path), "name": recording.path.name}
    for thing in reachable(view):
        if isinstance(thing, Recording | Recorder | Round):
            found.add("recording")
        if isinstance(thing, Path | types.TracebackType | types.FrameType):
            found.add("path")
        if isinstance(thing, str | bytes):
            text = thing if isinstance(thing, str) else thing.decode("latin1")
            if any(w in text for w in words.values()) or "truth" in text:
                found.add("text of the path")
            if len(secret.tobytes()) > 8 and secret.tobytes().decode("latin1") in text:
                found.add("bytes of the secret")
        if isinstance(thing, list | tuple) and len(thing) == len(secret):
            array = np.asarray(thing, dtype=object)
            if array.shape == secret.shape and (array == secret.astype(object)).all():
                found.add("secret")
        if isinstance(thing, np.ndarray) and thing.dtype.kind in "biufU":
            for axis in range(thing.ndim):
                rows = np.moveaxis(thing, axis, -1).reshape(-1, thing.shape[axis])
                if rows.shape[1] == len(secret) and any(affine_copy(r, secret) for r in rows):
                    found.add("secret")
    return found


def affine_copy(row: np.ndarray, secret: np.ndarray) -> bool:
    """Is it the secret, or the secret scaled, shifted or turned into other words?"""
    values = np.unique(secret)
    return all(len(np.unique(row[secret == v])) == 1 for v in values) and len(
        np.unique(row)
    ) == len(values)


@pytest.mark.parametrize("threat", [EAVESDROPPER, SERVER, SECURE_SERVER], ids=lambda t: t.name)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_nothing_secret_can_be_reached_from_a_view(
    federate: Federate, threat: Threat, precision: str
) -> None:
    recording = federate(rounds=4, participation=1.0, precision=precision)
    truth = recording.truth()
    for client in recording.clients:
        secret = truth[client]["s"]
        for target in (attribute("s"), LOCAL_MODEL):
            view = observe(recording, threat, target, client)
            assert leaks(view, recording, secret) == set()
            assert leaks(view.narrowed(view.kinds), recording, secret) == set()


def test_nothing_but_sums_can_be_reached_from_a_view_of_everybody(federate: Federate) -> None:
    """Not the recording, not the truth, not one client's own update."""
    recording = federate(rounds=4, participation=0.7)
    view = observe(recording, SECURE_SERVER, client_property("membership"), "")
    sums = view.know(Sums)
    observed = list(sums)  # what an attack may keep of the rounds is walked as well
    singles = []
    for client in recording.clients:
        for _, sent, returned in recording.releases(client):
            for name, model in returned.items():
                singles += [model.astype(float), sent[name].astype(float) - model]
    for client, records in recording.truth().items():
        assert leaks((view, observed), recording, records["s"]) == set(), client
    there = [a for a in reachable((view, observed)) if isinstance(a, np.ndarray) and a.size > 1]
    arrays = [a for a in there if a.dtype.names is None]
    raw = [b for b in reachable((view, observed)) if isinstance(b, bytes)]
    raw.append(sums._rows.tobytes())
    assert len(sums._rows) == len(observed) == 4
    for single in singles:
        for array in arrays:
            assert not np.array_equal(np.ravel(array), single.ravel())
        assert not any(single.astype(t).tobytes() in b for b in raw for t in ("f4", "f8"))


def test_the_search_for_leaks_finds_what_is_there(federate: Federate) -> None:
    """The test above could not fail if this one did."""
    recording = federate(rounds=2, participation=1.0)
    secret = recording.truth()["0"]["s"]
    view = observe(recording, EAVESDROPPER, attribute("s"), "0")
    records = view.know(PublicRecords).records
    hidden: dict[str, Any] = {
        "recording": recording,
        "path": recording.path,
        "text of the path": {"deep": [(str(recording.path / "messages"),)]},
        "bytes of the secret": b"xx" + secret.tobytes(),
        "secret": Records({**records.columns, "t": 3 - 2 * secret}),
    }
    for name, thing in hidden.items():
        knowledge = {**view._knowledge, str: {"a": [thing]}}
        assert name in leaks(replace(view, _knowledge=knowledge), recording, secret)
    table = np.zeros((len(secret), 3))
    table[:, 1] = secret
    base = np.concatenate([secret, secret])
    for thing in (table, table.T, base[: len(secret)], secret.tolist(), secret.astype(str)):
        found = leaks(replace(view, _knowledge={str: thing}), recording, secret)
        assert "secret" in found
    assert leaks(replace(view, _knowledge={str: lambda: 1}), recording, secret) == set()


def test_public_records_lack_the_secret_and_the_label(federate: Federate) -> None:
    recording = federate(rounds=2, participation=1.0)
    view = observe(recording, EAVESDROPPER, attribute("s"), "1")
    assert list(view.know(PublicRecords).records.columns) == ["x0", "x1", "x2"]
    assert view.know(AttributeDomain) == AttributeDomain("s", (0.0, 1.0))
    truth = recording.truth()["1"]
    assert np.array_equal(view.know(PublicRecords).records["x2"], truth["x2"])
    assert np.array_equal(view.know(Labels).values, truth["y"])
    everyone = np.concatenate([t["s"] for t in recording.truth().values()])
    assert view.know(AttributePrior).shares[1] == pytest.approx(everyone.mean())
    assert observe(recording, EAVESDROPPER, LOCAL_MODEL, "1").kinds == {
        Messages,
        Broadcast,
        ClientProgram,
    }


@pytest.mark.parametrize("target", ["attribute.s", ""])
def test_a_recorder_that_forgot_to_leave_the_secret_out_is_refused(
    tmp_path: Path, target: str
) -> None:
    with Recorder(tmp_path / "run") as recorder:
        table = Records({"x": np.zeros(2), "s": np.array([0.0, 1.0])})
        recorder.side("PublicRecords", {"a": table}, target)
        one_round(recorder)
    recording = Recording.open(tmp_path / "run")
    with pytest.raises(FixRecording, match=r"'attribute\.s' contain the sensitive column 's'"):
        observe(recording, EAVESDROPPER, attribute("s"), "a")


def test_an_attack_cannot_change_what_others_see(federate: Federate) -> None:
    view = observe(federate(rounds=2, participation=1.0), EAVESDROPPER, attribute("s"), "0")
    link = view.know(Messages)
    arrays = [link.rounds, link.sent, link.returned, link.weights, view.know(Labels).values]
    arrays += view.know(PublicRecords).records.columns.values()
    assert len(arrays) == 8
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


# --- knowledge must be declared and granted ---------------------------------------------------


@dataclass(frozen=True)
class Curious:
    """Needs the link, and reaches for something else as well."""

    reach_for: type[Any]
    name: ClassVar[str] = "curious"
    paper: ClassVar[str] = "none"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Messages, AttributeDomain})

    def __call__(self, view: View, rng: np.random.Generator) -> Any:
        held = " ".join(sorted(kind.__name__ for kind in view.kinds))
        reached = str(view.know(self.reach_for))
        diagnostics = {"held": held, "reached": reached, "draw": rng.random()}
        return AttributeValues(np.full((1, 2), 0.5), (0.0, 1.0), diagnostics)


def test_undeclared_knowledge_cannot_be_reached(federate: Federate) -> None:
    view = observe(federate(rounds=2, participation=1.0), EAVESDROPPER, attribute("s"), "0")
    undeclared = view.kinds - Curious.needs
    assert {ClientProgram, PublicRecords, Labels, AttributePrior} <= undeclared
    for kind in undeclared | {Recording}:
        with pytest.raises(DeclareKnowledge) as caught:
            launch(Curious(kind), view, 0)
        text = str(caught.value)
        assert f"{kind.__name__} is not in this view" in text
        assert "it holds: AttributeDomain, Messages" in text
        assert f"must list {kind.__name__} in its `needs`" in text


def test_an_attack_gets_exactly_what_it_declares(federate: Federate) -> None:
    view = observe(federate(rounds=2, participation=1.0), EAVESDROPPER, attribute("s"), "0")
    first, again, other = (
        launch(Curious(AttributeDomain), view, seed).diagnostics for seed in (5, 5, 6)
    )
    assert first["held"] == "AttributeDomain Messages"
    assert first["reached"] == str(view.know(AttributeDomain))
    assert first["draw"] == again["draw"] != other["draw"]


@pytest.mark.parametrize(
    ("guess", "said"),
    [
        (Membership(np.full(24, 0.5)), "'attribute' with Membership, not with AttributeValues"),
        (None, "with NoneType"),
        (AttributeValues(np.full((23, 2), 0.5), (0.0, 1.0)), "for 23 records, not for 24"),
    ],
)
def test_a_guess_answers_what_was_asked(federate: Federate, guess: Any, said: str) -> None:
    @dataclass(frozen=True)
    class Wrong(Curious):
        needs: ClassVar[frozenset[type[Any]]] = frozenset({PublicRecords})

        def __call__(self, view: View, rng: np.random.Generator) -> Any:
            return guess

    recording = federate(rounds=2, people=24, participation=1.0)
    view = observe(recording, EAVESDROPPER, attribute("s"), "0")
    with pytest.raises(AttackFailed, match=said):
        launch(Wrong(Messages), view, 0)


@dataclass(frozen=True)
class NeverCalled(Curious):
    def __call__(self, view: View, rng: np.random.Generator) -> Any:
        raise AssertionError("work was done before the needs were checked")


def test_missing_knowledge_fails_first_and_says_who_grants_it(federate: Federate) -> None:
    recording = federate(rounds=2, participation=1.0)
    view = observe(recording, SECURE_SERVER, attribute("s"), "0")
    with pytest.raises(GrantKnowledge) as caught:
        launch(NeverCalled(Messages), view, 0)
    text = str(caught.value)
    assert "attack 'curious' needs Messages;" in text
    assert "'secure-server' gives AttributeDomain, AttributePrior, Broadcast," in text
    assert "granted by: eavesdropper, isolating-server, server" in text
    poor = EAVESDROPPER.without(*kinds().values())
    with pytest.raises(GrantKnowledge, match=r"needs AttributeDomain, Messages; .* gives nothing"):
        launch(NeverCalled(Messages), observe(recording, poor, attribute("s"), "0"), 0)
    assert observe(recording, poor.granting(Messages), attribute("s"), "0").kinds == {Messages}


# --- what is wrong with the messages is named -------------------------------------------------


def one_round(
    recorder: Recorder,
    number: int = 0,
    sent: Any = (1.0, 2.0, 3.0),
    returned: Any = (4.0, 5.0, 6.0),
    client: str = "a",
) -> None:
    def message(values: Any) -> dict[str, np.ndarray]:
        return {
            "layers.0.weight": np.array([values[:2]], np.float32),
            "layers.0.bias": np.array(values[2:], np.float32),
        }

    recorder.round(number, message(sent), {client: message(returned)})


def recorded(path: Path, *rounds: dict[str, Any], recipe: Any = RECIPE) -> Recording:
    with Recorder(path, about={"clients": ["a", "b", "idle"]}) as recorder:
        recorder.side("ClientProgram", recipe.model_dump(mode="json"))
        for number, values in enumerate(rounds):
            one_round(recorder, number, **values)
    return Recording.open(path)


def test_the_link_is_flat_in_the_order_of_the_model(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "run", {}, {"client": "b"}, {"returned": (7.0, 8.0, 9.0)})
    link = observe(recording, EAVESDROPPER, LOCAL_MODEL, "a").know(Messages)
    assert link.rounds.tolist() == [0, 2]
    assert link.sent.tolist() == [[1, 2, 3], [1, 2, 3]]
    assert link.returned.tolist() == [[4, 5, 6], [7, 8, 9]]
    assert link.sent.dtype == np.float32
    assert link.updates().tolist() == [[-3, -3, -3], [-6, -6, -6]]
    assert np.isnan(link.weights).all()


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize(("way", "words"), [("sent", "sent to"), ("returned", "returned by")])
def test_nan_and_infinity_are_named(tmp_path: Path, bad: float, way: str, words: str) -> None:
    recording = recorded(tmp_path / "run", {}, {}, {way: (1.0, 2.0, bad)}, {"client": "b"})
    named = rf"round 2: 'layers\.0\.bias' {words} client 'a' holds NaN or infinity.*lower"
    with pytest.raises(FixRecording, match=named):
        observe(recording, EAVESDROPPER, LOCAL_MODEL, "a")
    observe(recording, EAVESDROPPER, LOCAL_MODEL, "b")  # another client's link is not read


@pytest.mark.parametrize(
    "model",
    [
        Dense(inputs=2, bias=False),
        Dense(inputs=2, hidden=(1,)),
        Dense(inputs=2, sent_names={"layers.0.weight": "fc.weight"}),
    ],
)
def test_messages_of_another_model_are_refused(tmp_path: Path, model: Dense) -> None:
    recording = recorded(tmp_path / "run", {}, recipe=RECIPE.model_copy(update={"model": model}))
    with pytest.raises(FixRecording, match=r"carry .*layers\.0\.weight.* but the declared model"):
        observe(recording, EAVESDROPPER, LOCAL_MODEL, "a")


def test_a_client_that_never_takes_part_is_named(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "run", {}, {"client": "b"})
    assert recording.clients == ("a", "b", "idle")
    with pytest.raises(ListenLonger, match=r"client 'idle' never took part.*record more rounds"):
        observe(recording, EAVESDROPPER, LOCAL_MODEL, "idle")
    assert observe(recording, SECURE_SERVER, LOCAL_MODEL, "idle").kinds == {ClientProgram}
    with pytest.raises(FixConfig, match="no client 'nobody'; the clients are a, b, idle"):
        observe(recording, EAVESDROPPER, LOCAL_MODEL, "nobody")
    link = observe(recording, EAVESDROPPER, LOCAL_MODEL, "a").know(Messages)
    with pytest.raises(ListenLonger, match=r"1 round\(s\) were observed but a map needs"):
        link.require(2, "a map")

"""The guard in a ClientApp, called as Flower calls it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from overheard.errors import FixConfig
from overheard.federation.config import parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards
from overheard.guard.exposure import Secret
from overheard.guard.limits import Exposure, Limits
from overheard.programs.networks import initial
from overheard.programs.recipe import named
from overheard.programs.records import Records
from overheard.programs.training import local_training

pytest.importorskip("flwr", reason="Flower is not installed")
LOOSE = Limits(bits=2.0, entropy=1.5, certain=1.0)


@pytest.fixture(scope="module")
def ready() -> Plan:
    options = {"victim": 50, "participants": 1, "attributes": ["c043"]}
    return plan(
        parse_config(
            {
                "data": {"source": "digits", "options": options},
                "model": {"name": "mlp", "hidden": [8]},
                "training": {"rounds": 1, "learning_rate": 0.1},
            }
        )
    )


def answered(
    ready: Plan, mod: Callable[..., Any], kind: str = "train", state: Any = None
) -> tuple[Any, Any]:
    """What leaves a client with this mod, and the model that it has trained."""
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    layout = ready.recipe.model.layout()
    start = initial(ready.recipe.dense, 0).astype(np.float32)
    data = client_shards(ready.recipe, ready.clients)
    trained = local_training(ready.recipe, start, data, np.random.default_rng(0))[0]

    def model(flat: Any) -> RecordDict:
        pieces = {n: Array(np.ascontiguousarray(a)) for n, a in named(layout, flat).items()}
        return RecordDict({"arrays": ArrayRecord(pieces)})

    def train(message: Message, context: Context) -> Message:
        return Message(model(trained), reply_to=message)

    message = Message(model(start), dst_node_id=1, message_type=kind)
    message.metadata.__dict__["_message_id"] = "1"
    context = Context(
        run_id=1,
        node_id=1,
        node_config={},
        state=RecordDict() if state is None else state,
        run_config={},
    )
    return mod(message, context, train), trained


def sent_by(reply: Any, ready: Plan) -> Any:
    arrays = {n: a.numpy() for n, a in reply.content["arrays"].items()}
    return np.concatenate([arrays[n].reshape(-1) for n, _ in ready.recipe.model.layout()])


def guarded(ready: Plan, **options: Any) -> Callable[..., Any]:
    from overheard.flower import Guarding, guard_mod

    secret = Secret(ready.clients["victim"], "c043", ready.attributes["c043"].values)
    told = {name: options.pop(name) for name in ("limits", "tell") if name in options}
    return guard_mod(ready.recipe, lambda context: [secret], how=Guarding(**options), **told)


def test_an_update_that_tells_is_refused_with_the_reason(
    ready: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "overheard.guard"):
        reply, _ = answered(ready, guarded(ready))
    assert reply.has_error()
    assert reply.error.reason == ("refused by the guard: more of 'c043' would leak than may")
    assert "50 of 50 records certain" in caplog.text


def test_an_update_below_the_limit_passes_untouched(ready: Plan) -> None:
    reply, trained = answered(ready, guarded(ready, limits=LOOSE))
    assert np.array_equal(sent_by(reply, ready), trained)


def test_enough_noise_lets_it_pass_and_too_little_does_not(ready: Plan) -> None:
    reply, trained = answered(ready, guarded(ready, noise_sd=1.0))
    moved = sent_by(reply, ready) - trained
    assert moved.std() == pytest.approx(1.0, rel=0.2)
    reply, _ = answered(ready, guarded(ready, noise_sd=1e-9))
    assert reply.has_error()


def test_a_sample_is_enough(ready: Plan, caplog: pytest.LogCaptureFixture) -> None:
    reply, _ = answered(ready, guarded(ready, most=10))
    assert reply.has_error()
    assert "of 10 records" in caplog.text


def test_noise_is_never_the_same_twice(ready: Plan) -> None:
    mod = guarded(ready, noise_sd=1.0)
    one, two = (sent_by(answered(ready, mod)[0], ready) for _ in range(2))
    assert np.abs(one - two).std() > 0.5


def test_a_recipe_that_is_not_the_clients_own_is_doubted(
    ready: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    from overheard.flower import Guarding, guard_mod

    other = ready.recipe.model_copy(update={"learning_rate": 0.13})
    secret = Secret(ready.clients["victim"], "c043", ready.attributes["c043"].values)
    mod = guard_mod(other, lambda context: [secret], LOOSE, Guarding(most=10, unsure="pass"))
    reply, trained = answered(ready, mod)
    assert np.array_equal(sent_by(reply, ready), trained)
    assert "not how this client trained" in caplog.text
    strict = guard_mod(other, lambda context: [secret], LOOSE, Guarding(most=10))
    reply, _ = answered(ready, strict)
    assert reply.error.reason.endswith("what it would leak is not known")  # and no figure


def test_doubt_about_one_secret_is_doubt(
    ready: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from overheard.guard import flower_mod

    sound = Exposure("a", 10, 0.5, 0.2, 0.8, 0.5, 0, 0.0, 0.0)
    found = [sound, replace(sound, attribute="b", bits=-1.0, doubt="poor fit")]
    monkeypatch.setattr(flower_mod, "exposures", lambda *given: found)
    heard: list[Exposure] = []
    mod = guarded(ready, tell=lambda context, one: heard.append(one))
    assert answered(ready, mod)[0].has_error()
    assert heard == found
    assert "b: poor fit" in caplog.text


def test_what_no_decoder_reads_does_not_leave(
    ready: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    from overheard.flower import Guarding, guard_mod

    other = ready.recipe.model_copy(update={"batch_size": 10, "steps": 2})
    secret = Secret(ready.clients["victim"], "c043", ready.attributes["c043"].values)
    reply, _ = answered(ready, guard_mod(other, lambda context: [secret]))
    assert "what it would leak is not known" in reply.error.reason
    lax = guard_mod(other, lambda context: [secret], how=Guarding(unsure="pass"))
    reply, trained = answered(ready, lax)
    assert np.array_equal(sent_by(reply, ready), trained)
    assert "it is sent as it is" in caplog.text


def test_after_a_refusal_nothing_leaves_unmeasured(ready: Plan) -> None:
    """Every round is measured however long it takes, and every one of them tells everything."""
    from flwr.app import RecordDict

    state, heard = RecordDict(), []
    mod = guarded(ready, tell=lambda context, one: heard.append(one.certain))
    replies = [answered(ready, mod, state=state)[0] for _ in range(3)]
    assert [reply.has_error() for reply in replies] == [True] * 3
    assert heard == [50] * 3


def test_who_lets_the_unmeasured_pass_does_so_until_the_first_refusal(
    ready: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.app import RecordDict

    from overheard.guard import flower_mod

    sound = Exposure("c043", 10, 0.5, 0.2, 0.8, 0.5, 0, 0.0, 0.0)
    doubted, loud = replace(sound, doubt="poor fit"), replace(sound, bits=1.0)
    answers = iter([doubted, loud, doubted, sound, doubted])
    monkeypatch.setattr(flower_mod, "exposures", lambda *given: [next(answers)])
    mod, state = guarded(ready, unsure="pass"), RecordDict()
    refused = [answered(ready, mod, state=state)[0].has_error() for _ in range(5)]
    assert refused == [False, True, True, False, True]


def test_rounds_are_judged_together_with_those_that_have_left(
    ready: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.app import RecordDict

    from overheard.guard import flower_mod

    sound = Exposure("c043", 10, 0.5, 0.2, 0.8, 0.5, 0, 0.0, 0.0)
    answers = [
        sound,
        sound,
        replace(sound, bits=1.0),
        replace(sound, doubt="poor fit"),
        *[sound] * 4,
    ]
    rounds: list[int] = []

    def exposures(recipe: Any, owned: Any, sent: Any, returned: Any, *given: Any) -> list[Exposure]:
        assert sent.shape == returned.shape
        rounds.append(len(sent))
        return [answers[len(rounds) - 1]]

    monkeypatch.setattr(flower_mod, "exposures", exposures)
    mod, state = guarded(ready, remember=4), RecordDict()
    refused = [answered(ready, mod, state=state)[0].has_error() for _ in answers]
    assert refused == [False, False, True, True, False, False, False, False]
    assert rounds == [1, 2, 3, 3, 3, 4, 5, 5]  # the two that were refused have not left
    rounds.clear()
    answered(ready, guarded(ready, remember=0), state=state)
    assert rounds == [1]


def test_a_rare_secret_that_is_known_is_stopped(ready: Plan) -> None:
    """One positive among 50: few bits a record, and everything there is to learn."""
    from overheard.flower import guard_mod

    records = ready.clients["victim"]
    which = np.zeros(50)
    which[7] = 1.0
    rare = replace(ready, clients={"victim": Records({**records.columns, "c043": which})})
    secret = Secret(rare.clients["victim"], "c043", (0.0, 1.0))
    heard: list[Exposure] = []
    mod = guard_mod(ready.recipe, lambda _: [secret], tell=lambda _, one: heard.append(one))
    reply, _ = answered(rare, mod)
    assert reply.has_error()
    assert heard[0].bits is not None
    assert heard[0].bits < 0.15
    assert heard[0].share is not None
    assert heard[0].share > 0.9


def test_who_is_there_is_a_secret(ready: Plan) -> None:
    from overheard.flower import guard_mod

    own = ready.clients["victim"]
    rows = np.stack(list(own.columns.values()), axis=1)
    own = own.take(np.sort(np.unique(rows, axis=0, return_index=True)[1]))  # nobody twice
    inside, outside = own.take(np.arange(25)), own.take(np.arange(25, len(own)))
    fewer = replace(ready, clients={"victim": inside})
    secret = Secret(inside, strangers=outside)
    reply, _ = answered(fewer, guard_mod(ready.recipe, lambda _: [secret]))
    assert "more of 'membership' would leak than may" in reply.error.reason


def test_other_messages_are_none_of_its_business(ready: Plan) -> None:
    reply, trained = answered(ready, guarded(ready), "evaluate")
    assert np.array_equal(sent_by(reply, ready), trained)


def test_wrong_settings_are_refused(ready: Plan) -> None:
    with pytest.raises(FixConfig, match="must not be negative"):
        guarded(ready, noise_sd=-1.0)
    with pytest.raises(FixConfig, match="neither 'refuse' nor 'pass'"):
        guarded(ready, unsure="maybe")
    other = ready.recipe.model_copy(
        update={"model": ready.recipe.dense.model_copy(update={"hidden": (9,)})}
    )
    from overheard.flower import guard_mod

    with pytest.raises(FixConfig, match="the guard's recipe describes"):
        answered(ready, guard_mod(other, lambda context: []))

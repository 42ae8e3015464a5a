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

flwr: Any = pytest.importorskip("flwr.app", reason="Flower is not installed")
flower: Any = pytest.importorskip("overheard.flower", reason="Flower is not installed")
LOOSE = Limits(bits=2.0, entropy=1.5, certain=1.0)
QUIET = Exposure("c043", 10, 0.5, 0.2, 0.8, 0.5, 0, 0.0, 0.0)
DOUBTED, LOUD = replace(QUIET, doubt="poor fit"), replace(QUIET, bits=1.0)
Mod = Callable[..., Any]


@pytest.fixture(scope="module")
def ready() -> Plan:
    content = {
        "data": {
            "source": "digits",
            "options": {"victim": 50, "participants": 1, "attributes": ["c043"]},
        },
        "model": {"name": "mlp", "hidden": [8]},
        "training": {"rounds": 1, "learning_rate": 0.1},
    }
    return plan(parse_config(content))


def answered(ready: Plan, mod: Mod, kind: str = "train", state: Any = None) -> tuple[Any, Any]:
    """What leaves a client with this mod, and the model that it has trained."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    layout = ready.recipe.model.layout()
    start = initial(ready.recipe.dense, 0).astype(np.float32)
    data = client_shards(ready.recipe, ready.clients)
    trained = local_training(ready.recipe, start, data, np.random.default_rng(0))[0]

    def model(flat: Any) -> Any:
        pieces = {n: flwr.Array(np.ascontiguousarray(a)) for n, a in named(layout, flat).items()}
        return flwr.RecordDict({"arrays": flwr.ArrayRecord(pieces)})

    def train(message: Any, context: Any) -> Any:
        return flwr.Message(model(trained), reply_to=message)

    message = flwr.Message(model(start), dst_node_id=1, message_type=kind)
    message.metadata.__dict__["_message_id"] = "1"
    state = flwr.RecordDict() if state is None else state
    context = flwr.Context(run_id=1, node_id=1, node_config={}, state=state, run_config={})
    return mod(message, context, train), trained


def sent_by(reply: Any, ready: Plan) -> Any:
    arrays = {n: a.numpy() for n, a in reply.content["arrays"].items()}
    return np.concatenate([arrays[n].reshape(-1) for n, _ in ready.recipe.model.layout()])


def passes(ready: Plan, mod: Mod, kind: str = "train") -> bool:
    """Whether the update leaves, and as it was trained."""
    reply, trained = answered(ready, mod, kind)
    return not reply.has_error() and np.array_equal(sent_by(reply, ready), trained)


def refusals(ready: Plan, mod: Mod, rounds: int, state: Any = None) -> list[bool]:
    """Which of the rounds of one client are refused."""
    state = flwr.RecordDict() if state is None else state
    return [answered(ready, mod, state=state)[0].has_error() for _ in range(rounds)]


def guarded(ready: Plan, secret: Secret | None = None, **options: Any) -> Mod:
    """A guard of the client's secret; ``change``: of its recipe, which is then not the client's."""
    own = secret or Secret(ready.clients["victim"], "c043", ready.attributes["c043"].values)
    recipe = ready.recipe.model_copy(update=options.pop("change", {}))
    told = {name: options.pop(name) for name in ("limits", "tell") if name in options}
    how = flower.Guarding(**options)
    mod: Mod = flower.guard_mod(recipe, lambda context: [own], how=how, **told)
    return mod


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Let the guard measure this in turn; it is noted how many rounds it looked at each time."""

    def script(*answers: list[Exposure]) -> list[int]:
        rounds: list[int] = []

        def exposures(recipe: Any, owned: Any, sent: Any, returned: Any, *given: Any) -> Any:
            assert sent.shape == returned.shape
            rounds.append(len(sent))
            return answers[len(rounds) - 1]

        monkeypatch.setattr("overheard.guard.flower_mod.exposures", exposures)
        return rounds

    return script


@pytest.mark.parametrize(("most", "looked_at"), [(64, 50), (10, 10)])
def test_an_update_that_tells_is_refused_with_the_reason(
    ready: Plan, caplog: pytest.LogCaptureFixture, most: int, looked_at: int
) -> None:
    """A sample of the records is enough to see it."""
    with caplog.at_level(logging.WARNING, "overheard.guard"):
        reply, _ = answered(ready, guarded(ready, most=most))
    assert reply.error.reason == "refused by the guard: more of 'c043' would leak than may"
    assert f"{looked_at} of {looked_at} records certain" in caplog.text


def test_what_is_below_the_limit_or_no_update_passes_untouched(ready: Plan) -> None:
    assert passes(ready, guarded(ready, limits=LOOSE))
    assert passes(ready, guarded(ready), "evaluate")


def test_enough_noise_lets_it_pass_and_is_never_the_same_twice(ready: Plan) -> None:
    mod = guarded(ready, noise_sd=1.0)
    (one, trained), (two, _) = (answered(ready, mod) for _ in range(2))
    assert (sent_by(one, ready) - trained).std() == pytest.approx(1.0, rel=0.2)
    assert np.abs(sent_by(one, ready) - sent_by(two, ready)).std() > 0.5
    assert refusals(ready, guarded(ready, noise_sd=1e-9), 1) == [True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": 0.13}, "not how this client trained"),
        ({"batch_size": 10, "steps": 2}, "it is sent as it is"),  # no decoder reads it
    ],
)
def test_what_is_not_known_does_not_leave_unless_it_may(
    ready: Plan, caplog: pytest.LogCaptureFixture, change: dict[str, Any], words: str
) -> None:
    options = {"change": change, "limits": LOOSE, "most": 10}
    reply, _ = answered(ready, guarded(ready, **options))
    assert reply.error.reason.endswith("what it would leak is not known")  # and no figure
    assert passes(ready, guarded(ready, unsure="pass", **options))
    assert words in caplog.text


def test_doubt_about_one_secret_is_doubt(
    ready: Plan, measuring: Callable[..., list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    found = [QUIET, replace(DOUBTED, attribute="b", bits=-1.0)]
    measuring(found)
    heard: list[Exposure] = []
    mod = guarded(ready, tell=lambda context, one: heard.append(one))
    assert refusals(ready, mod, 1) == [True]
    assert heard == found
    assert "b: poor fit" in caplog.text


def test_after_a_refusal_nothing_leaves_unmeasured(ready: Plan) -> None:
    """Every round is measured however long it takes, and every one of them tells everything."""
    heard: list[int] = []
    mod = guarded(ready, tell=lambda context, one: heard.append(one.certain))
    assert refusals(ready, mod, 3) == [True] * 3
    assert heard == [50] * 3


def test_who_lets_the_unmeasured_pass_does_so_until_the_first_refusal(
    ready: Plan, measuring: Callable[..., list[int]]
) -> None:
    measuring([DOUBTED], [LOUD], [DOUBTED], [QUIET], [DOUBTED])
    found = refusals(ready, guarded(ready, unsure="pass"), 5)
    assert found == [False, True, True, False, True]


def test_rounds_are_judged_together_with_those_that_have_left(
    ready: Plan, measuring: Callable[..., list[int]]
) -> None:
    rounds = measuring([QUIET], [QUIET], [LOUD], [DOUBTED], *[[QUIET]] * 5)
    state = flwr.RecordDict()
    found = refusals(ready, guarded(ready, remember=4), 8, state)
    assert found == [False, False, True, True, False, False, False, False]
    assert rounds == [1, 2, 3, 3, 3, 4, 5, 5]  # the two that were refused have not left
    refusals(ready, guarded(ready, remember=0), 1, state)
    assert rounds[-1] == 1


def test_a_rare_secret_that_is_known_is_stopped(ready: Plan) -> None:
    """One positive among 50: few bits a record, and everything there is to learn."""
    which = np.zeros(50)
    which[7] = 1.0
    own = Records({**ready.clients["victim"].columns, "c043": which})
    heard: list[Exposure] = []
    secret = Secret(own, "c043", (0.0, 1.0))
    mod = guarded(ready, secret, tell=lambda _, one: heard.append(one))
    assert refusals(replace(ready, clients={"victim": own}), mod, 1) == [True]
    assert heard[0].bits is not None
    assert heard[0].bits < 0.15
    assert heard[0].share is not None
    assert heard[0].share > 0.9


def test_who_is_there_is_a_secret(ready: Plan) -> None:
    own = ready.clients["victim"]
    rows = np.stack(list(own.columns.values()), axis=1)
    own = own.take(np.sort(np.unique(rows, axis=0, return_index=True)[1]))  # nobody twice
    inside, outside = own.take(np.arange(25)), own.take(np.arange(25, len(own)))
    fewer = replace(ready, clients={"victim": inside})
    reply, _ = answered(fewer, guarded(ready, Secret(inside, strangers=outside)))
    assert "more of 'membership' would leak than may" in reply.error.reason


def test_wrong_settings_are_refused(ready: Plan) -> None:
    with pytest.raises(FixConfig, match="must not be negative"):
        guarded(ready, noise_sd=-1.0)
    with pytest.raises(FixConfig, match="neither 'refuse' nor 'pass'"):
        guarded(ready, unsure="maybe")
    wider = {"model": ready.recipe.dense.model_copy(update={"hidden": (9,)})}
    with pytest.raises(FixConfig, match="the guard's recipe describes"):
        answered(ready, guarded(ready, change=wider))

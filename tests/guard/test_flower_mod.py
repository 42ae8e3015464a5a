"""The guard in a ClientApp, called as Flower calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from overheard.errors import FixConfig
from overheard.federation.config import parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards, named
from overheard.guard.exposure import Secret
from overheard.learning.dense import initial
from overheard.learning.training import local_training

pytest.importorskip("flwr", reason="Flower is not installed")


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


def answered(ready: Plan, mod: Callable[..., Any], kind: str = "train") -> tuple[Any, Any]:
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
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    return mod(message, context, train), trained


def sent_by(reply: Any, ready: Plan) -> Any:
    arrays = {n: a.numpy() for n, a in reply.content["arrays"].items()}
    return np.concatenate([arrays[n].reshape(-1) for n, _ in ready.recipe.model.layout()])


def guarded(ready: Plan, **options: Any) -> Callable[..., Any]:
    from overheard.flower import guard_mod

    secret = Secret(ready.clients["victim"], "c043", ready.attributes["c043"])
    return guard_mod(ready.recipe, lambda context: [secret], **options)


def test_an_update_that_tells_is_refused_with_the_reason(ready: Plan) -> None:
    reply, _ = answered(ready, guarded(ready))
    assert reply.has_error()
    assert "refused by the guard" in reply.error.reason
    assert "c043" in reply.error.reason
    assert "100.0% of 50 records" in reply.error.reason


def test_an_update_below_the_limit_passes_untouched(ready: Plan) -> None:
    reply, trained = answered(ready, guarded(ready, limit=2.0))
    assert np.array_equal(sent_by(reply, ready), trained)


def test_enough_noise_lets_it_pass_and_too_little_does_not(ready: Plan) -> None:
    reply, trained = answered(ready, guarded(ready, noise_sd=1.0))
    moved = sent_by(reply, ready) - trained
    assert moved.std() == pytest.approx(1.0, rel=0.2)
    reply, _ = answered(ready, guarded(ready, noise_sd=1e-9))
    assert reply.has_error()


def test_a_sample_is_enough(ready: Plan) -> None:
    reply, _ = answered(ready, guarded(ready, most=10))
    assert "of 10 records" in reply.error.reason


def test_other_messages_are_none_of_its_business(ready: Plan) -> None:
    reply, trained = answered(ready, guarded(ready), "evaluate")
    assert np.array_equal(sent_by(reply, ready), trained)


def test_wrong_settings_are_refused(ready: Plan) -> None:
    with pytest.raises(FixConfig, match="must not be negative"):
        guarded(ready, limit=-1.0)
    other = ready.recipe.model_copy(
        update={"model": ready.recipe.dense.model_copy(update={"hidden": (9,)})}
    )
    from overheard.flower import guard_mod

    with pytest.raises(FixConfig, match="the guard's recipe describes"):
        answered(ready, guard_mod(other, lambda context: []))

"""Flower without processes: a grid that hands each message to the client app itself."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ADDRESS": "local",  # a Ray of its own: not one that another program has started
}
NODES = (18446744073709551615, 9223372036854775808, 9223372036854775809, 3)
"""Ids that neither a float nor a signed integer of 64 bits holds."""


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)


def context() -> Any:
    """A server's, of Flower."""
    from flwr.app import Context, RecordDict

    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})


def in_process_grid(client_app: Any, nodes: tuple[int, ...] = NODES) -> Any:
    """A grid of these nodes, the first of which is the client of partition 0, and so on."""
    from flwr.app import Context, Message, RecordDict
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1

    class InProcessGrid(Grid):
        def __init__(self) -> None:
            self.replies: dict[str, Message] = {}
            self.contexts = {
                node: Context(
                    run_id=1,
                    node_id=node,
                    node_config={"partition-id": p, "num-partitions": len(nodes)},
                    state=RecordDict(),
                    run_config={},
                )
                for p, node in enumerate(nodes)
            }

        def set_run(self, run: Any) -> None:
            raise AssertionError("a strategy does not ask this of the grid")

        @property
        def run(self) -> Any:
            return SimpleNamespace(run_id=1)

        def create_message(self, *args: Any, **options: Any) -> Message:
            raise AssertionError("a strategy does not ask this of the grid")

        def get_node_ids(self) -> Iterable[int]:
            return list(nodes)

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            ids = []
            for message in messages:
                message.metadata.__dict__["_message_id"] = str(uuid4())
                node = message.metadata.dst_node_id
                there = deepcopy(message)  # as if it had crossed a network
                self.replies[message.metadata.message_id] = client_app(there, self.contexts[node])
                ids.append(message.metadata.message_id)
            return ids

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return [self.replies.pop(i) for i in message_ids if i in self.replies]

        def send_and_receive(
            self, messages: Iterable[Message], *, timeout: float | None = None
        ) -> Iterable[Message]:
            return self.pull_messages(self.push_messages(messages))

    return InProcessGrid()

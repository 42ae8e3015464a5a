"""``python one_simulation.py OUT COMMANDS``: Flower apps, all in one simulation.

Ray, its worker and what they import take longer to start than small apps to train. So one
ServerApp runs those of all apps, one after the other on the same nodes; its messages name the app
in their type ("train.app3"), by which the node finds the ClientApp. The apps themselves are as they
are, and what each records is its own. ``COMMANDS``: the lines of run.sh of recipes that start
Python, as JSON. ``OUT/exact``: where the app of the recorders' own tests records, and
``OUT/guarded``: where that of the guard's does.

What is recorded is the same in every run, however busy the machine is: servers and sites get seeds
(a site one of its app, number and round), and replies reach the server in the order of the sites.
As they arrive would not do: a mean depends on its order to the last digit.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import sys
import time
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
RECIPES, TESTS = ROOT / "examples" / "recipes", ROOT / "tests"
SITES = 4
sys.path[:0] = map(str, [RECIPES, *(TESTS / name for name in ("helpers", "recorders", "guard"))])
import flower  # noqa: E402
import flower_app  # noqa: E402
import guarded_app  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from flwr.app import Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402

from overheard.flower import record_app  # noqa: E402


class Named:
    """A grid whose messages name their app, and whose nodes and replies are in the order of their
    sites."""

    def __init__(self, grid: Any, name: str, nodes: list[int]) -> None:
        self._grid, self._name, self._nodes = grid, name, nodes

    def get_node_ids(self) -> list[int]:
        return self._nodes

    def push_messages(self, messages: Any) -> Any:
        return self._grid.push_messages(self._marked(messages))

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        replies = self._grid.send_and_receive(self._marked(messages), timeout=timeout)
        return sorted(replies, key=lambda reply: self._nodes.index(reply.metadata.src_node_id))

    def _marked(self, messages: Any) -> list[Any]:
        marked = list(messages)
        for message in marked:
            message.metadata.message_type += f".{self._name}"
        return marked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


def by_site(grid: Any) -> list[int]:
    """Nodes are numbered at random; who is who, as they say themselves."""
    while len(nodes := list(grid.get_node_ids())) < SITES:
        time.sleep(0.1)
    asked = [Message(RecordDict(), dst_node_id=n, message_type="query.site") for n in nodes]
    sites = {r.metadata.src_node_id: r.content["is"]["site"] for r in grid.send_and_receive(asked)}
    return sorted(nodes, key=sites.__getitem__)


def round_of(message: Any) -> str:
    """Its number, which newer apps put into a config record and older ones into the group."""
    configs = message.content.config_records.values()
    return message.metadata.group_id + "".join(str(c.get("server-round", "")) for c in configs)


def apps_of(commands: list[tuple[str, list[str]]]) -> list[tuple[Any, Any]]:
    """Those that the commands run, after what the others do."""
    found = []
    for recipe, (script, *words) in commands:
        if script == "../flower.py":
            name, out, *settings = words
            found.append(flower.app(name, RECIPES / recipe, Path(out), *settings))
        else:
            with mock.patch.object(sys, "argv", [script, *words]):
                runpy.run_path(str(RECIPES / recipe / script), run_name="__main__")
    return found


def main(out: Path, commands: list[tuple[str, list[str]]]) -> None:
    exact, guarded, settled = out / "exact", out / "guarded", guarded_app.ready()
    os.environ["OVERHEARD_TEST_DIGESTS"] = str(exact / "digests")
    (exact / "digests").mkdir(parents=True)
    guarded.mkdir()
    own = record_app(flower_app.server(lambda s: s, exact / "final.npz"), exact / "run")
    last = guarded_app.server_app(guarded, settled), guarded_app.client_app(guarded, settled)
    apps = [(own, flower_app.client_app), *apps_of(commands), last]
    server = ServerApp()

    @server.main()
    def run_all(grid: Any, context: Context) -> None:
        nodes = by_site(grid)
        for number, (app, _) in enumerate(apps):
            random.seed(number)
            np.random.seed(number)  # noqa: NPY002, what Flower draws noise from
            own = Context(context.run_id, context.node_id, {}, RecordDict(), {})
            called = nodes if app is not last[0] else nodes[: len(guarded_app.SITES)]
            app(Named(grid, f"app{number}", called), own)

    clients = [client for _, client in apps]

    def client(message: Any, context: Context) -> Any:
        kind, _, name = message.metadata.message_type.rpartition(".")
        if kind == "query":
            site = int(context.node_config["partition-id"])
            return Message(RecordDict({"is": MetricRecord({"site": site})}), reply_to=message)
        message.metadata.message_type = kind
        # the apps shuffle at random; here the same in every run, by seeds that nobody would try
        about = f"{name} {context.node_config['partition-id']} {round_of(message)}"
        torch.manual_seed(seed := zlib.crc32(about.encode()))
        np.random.seed(seed)  # noqa: NPY002, as above
        return clients[int(name.removeprefix("app"))](message, context)

    flower.simulate(server, client, SITES)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))

"""``python one_simulation.py OUT APP...``: Flower apps of examples/recipes, all in one simulation.

Ray, its worker and what they import take longer to start than small apps to train, and Flower's
server waits seconds for every round. So one ServerApp runs those of all apps, each in a thread and
on the same nodes; its messages name the app in their type ("train.cnn"), by which the node finds
the ClientApp. The apps themselves are as they are, and what each records is its own.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).resolve().parents[2] / "examples" / "recipes"
sys.path.insert(0, str(RECIPES))
import flower  # noqa: E402
from flwr.app import Context, RecordDict  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402


class Named:
    """A grid whose messages name their app; everything else is the real grid's."""

    def __init__(self, grid: Any, name: str) -> None:
        self._grid, self._name = grid, name

    def push_messages(self, messages: Any) -> Any:
        return self._grid.push_messages(self._marked(messages))

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        return self._grid.send_and_receive(self._marked(messages), timeout=timeout)

    def _marked(self, messages: Any) -> list[Any]:
        marked = list(messages)
        for message in marked:
            message.metadata.message_type += f".{self._name}"
        return marked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


def main(out: Path, names: list[str]) -> None:
    apps = {name: flower.app(name, RECIPES / name) for name in names}
    server = ServerApp()

    @server.main()
    def run_all(grid: Any, context: Context) -> None:
        def run(name: str) -> None:
            config = {"recording": str(out / name / "run")}
            own = Context(context.run_id, context.node_id, {}, RecordDict(), config)
            apps[name][0](Named(grid, name), own)

        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(run, names))

    def client(message: Any, context: Context) -> Any:
        kind, _, name = message.metadata.message_type.rpartition(".")
        message.metadata.message_type = kind
        return apps[name][1](message, context)

    flower.simulate(server, client)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])

"""A Flower federation whose clients guard themselves, for `tests/examples/one_simulation.py`.

Three sites of the RAND data train an MLP. The first has no noise to add, the second much of it,
the third too little. Left in OUT: ``run`` (the recording), what each guard saw
(``guard-N.json``), the errors that the server was sent and the model that it ended in
(``server.json``).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from overheard.federation.federation import Federation, parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards
from overheard.flower import Guarding, guard_mod, record
from overheard.guard.exposure import Exposure, Limits
from overheard.programs.networks import initial
from overheard.programs.recipe import named
from overheard.programs.training import local_training
from overheard.transcript.store import Recording

SITES = ("site 1", "site 2", "site 3")
GUARDS: tuple[dict[str, Any], ...] = ({}, {"noise_sd": 1.0}, {"noise_sd": 1e-4})
APP: dict[str, Any] = {
    "data": {"source": "randhie"},
    "model": {"name": "mlp", "hidden": [64]},
    "training": {"learning_rate": 0.1},
    "audit": {"attributes": ["female"]},
}


def ready() -> Plan:
    return plan(parse_config({**APP, "training": {"rounds": 1, **APP["training"]}}))


def as_record(settled: Plan, flat: np.ndarray) -> ArrayRecord:
    arrays = named(settled.recipe.model.layout(), flat.astype(np.float32))
    return ArrayRecord({n: Array(np.ascontiguousarray(a)) for n, a in arrays.items()})


def client_app(out: Path, settled: Plan) -> ClientApp:
    def guarded(message: Message, context: Context, call_next: Any) -> Message:
        number = int(context.node_config["partition-id"])

        def tell(_: Context, found: Exposure) -> None:
            (out / f"guard-{number}.json").write_text(json.dumps(asdict(found)))

        how = Guarding(seed=number, **GUARDS[number])
        guard = guard_mod(Federation.model_validate(APP), SITES[number], Limits(), how, tell)
        return guard(message, context, call_next)

    app = ClientApp(mods=[guarded])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        recipe, records = settled.recipe, settled.clients[SITES[number]]
        arrays = message.content.array_records["arrays"]
        start = np.concatenate([arrays[n].numpy().ravel() for n, _ in recipe.model.layout()])
        data = client_shards(recipe, {SITES[number]: records})
        after = local_training(recipe, start, data, np.random.default_rng(0))[0]
        metrics = MetricRecord({"num-examples": len(records), "partition": number})
        content = RecordDict({"arrays": as_record(settled, after), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def server_app(out: Path, settled: Plan) -> ServerApp:
    app = ServerApp()
    errors: list[str] = []

    class Noting(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            errors.extend(r.error.reason for r in replies if r.has_error())
            return super().aggregate_train(server_round, replies)

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = record(Noting(1.0, 0.0, 3, 0, 3), out / "run", name_by="partition")
        start = as_record(settled, initial(settled.recipe.model, 0))
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=1)
        final = np.concatenate([a.numpy().ravel() for a in result.arrays.values()])
        meant = {"errors": errors, "finite": bool(np.isfinite(final).all())}
        (out / "server.json").write_text(json.dumps(meant))

    return app


def check(out: Path) -> None:
    """An update that tells is stopped, and the others go on. How the guard's figures compare with
    the audit's: `test_exposure`."""
    stopped, noisy, little = (json.loads((out / f"guard-{n}.json").read_text()) for n in range(3))
    assert stopped["value"] == 1.0
    assert stopped["bits"] > 0.9
    assert noisy["bits"] <= 0.1 < little["bits"]
    assert not noisy["exposed"]
    assert little["exposed"]
    server = json.loads((out / "server.json").read_text())
    assert server["errors"] == ["refused by the guard: more of 'female' would leak than may"] * 2
    assert server["finite"]
    assert set(Recording.open(out / "run").clients) == {"1"}

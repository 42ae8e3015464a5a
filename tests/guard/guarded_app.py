"""A Flower federation whose clients guard themselves: ``python guarded_app.py OUT``.

Three sites of the RAND data train an MLP. The first has no noise to add, the second much of it,
the third a little and a higher limit. Left in OUT: ``run`` (the recording), what each guard saw
(``guard-N.json``), the errors that the server was sent and the model that it ended in
(``server.json``).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from overheard.federation.config import parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards
from overheard.flower import Guarding, guard_mod, record
from overheard.guard.exposure import Secret
from overheard.guard.limits import USUAL, Exposure, Limits
from overheard.programs.networks import initial
from overheard.programs.recipe import named
from overheard.programs.training import local_training

SITES = ("site 1", "site 2", "site 3")
SECRET = "female"
GUARDS: tuple[dict[str, Any], ...] = (
    {},
    {"noise_sd": 0.004},
    {"limits": Limits(bits=0.5, entropy=0.5, certain=0.5), "noise_sd": 1e-4, "most": 2000},
)


def ready() -> Plan:
    return plan(
        parse_config(
            {
                "data": {"source": "randhie"},
                "model": {"name": "mlp", "hidden": [64]},
                "training": {"rounds": 1, "learning_rate": 0.1},
            }
        )
    )


def as_record(settled: Plan, flat: np.ndarray) -> ArrayRecord:
    arrays = named(settled.recipe.model.layout(), flat.astype(np.float32))
    return ArrayRecord({n: Array(np.ascontiguousarray(a)) for n, a in arrays.items()})


def client_app(out: Path, settled: Plan) -> ClientApp:
    def guarded(message: Message, context: Context, call_next: Any) -> Message:
        number = int(context.node_config["partition-id"])
        secret = Secret(settled.clients[SITES[number]], SECRET, settled.attributes[SECRET].values)

        def tell(_: Context, found: Exposure) -> None:
            (out / f"guard-{number}.json").write_text(json.dumps(asdict(found)))

        options = dict(GUARDS[number])
        limits = options.pop("limits", USUAL)
        how = Guarding(seed=number, **options)
        guard = guard_mod(settled.recipe, lambda _: [secret], limits, how, tell)
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
        start = as_record(settled, initial(settled.recipe.dense, 0))
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=1)
        final = np.concatenate([a.numpy().ravel() for a in result.arrays.values()])
        said = {"errors": errors, "finite": bool(np.isfinite(final).all())}
        (out / "server.json").write_text(json.dumps(said))

    return app


if __name__ == "__main__":
    from flwr.simulation import run_simulation

    where = Path(sys.argv[1])
    options = {"init_args": {"include_dashboard": False, "num_cpus": 2}}
    apps = server_app(where, ready()), client_app(where, ready())
    run_simulation(*apps, len(SITES), backend_config=options)

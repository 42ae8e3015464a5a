"""A Flower app of the quickstart-xgboost kind: clients boost the global model, as bytes of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

PARAMETERS = {
    "objective": "binary:logistic",
    "eta": 0.1,
    "max_depth": 6,
    "num_parallel_tree": 1,
    "subsample": 1,
    "tree_method": "hist",
    "nthread": 1,
}
PEOPLE = 70
COLUMNS = ("age", "hours", "capital", "sex", "rich")


def people(partition: int) -> np.ndarray:
    """The rows of a client: three numbers, the sex, and the label that depends on all."""
    rng = np.random.default_rng([5, partition])
    numbers = np.round(rng.normal(size=(PEOPLE, 3)) * [10, 8, 100] + [40, 40, 500])
    sex = (rng.random(PEOPLE) < 0.6).astype(float)
    score = (numbers - [40, 40, 500]) @ [0.1, 0.05, 0.005] + 1.2 * sex
    label = (score + rng.normal(0, 0.5, PEOPLE) > 0.6).astype(float)
    return np.column_stack([numbers, sex, label])


def client_app(cyclic: bool = False) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        table = people(int(context.node_config["partition-id"]))
        data = xgboost.DMatrix(table[:, :-1], label=table[:, -1])
        number = message.content["config"]["server-round"]
        if number == 1:
            booster = xgboost.train(PARAMETERS, data, num_boost_round=1)
        else:
            model = message.content["arrays"]["0"].numpy().tobytes()
            booster = xgboost.Booster(params=PARAMETERS)
            booster.load_model(bytearray(model))
            booster.update(data, booster.num_boosted_rounds())
            if not cyclic:
                last = booster.num_boosted_rounds()
                booster = booster[last - 1 : last]
        raw = np.frombuffer(booster.save_raw("json"), dtype=np.uint8)
        metrics = MetricRecord({"num-examples": PEOPLE})
        content = RecordDict({"arrays": ArrayRecord([raw]), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": PEOPLE, "loss": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def server(strategy: Callable[[], Any], rounds: int) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        nothing = ArrayRecord([np.frombuffer(b"", dtype=np.uint8)])
        strategy().start(grid=grid, initial_arrays=nothing, num_rounds=rounds)

    return app

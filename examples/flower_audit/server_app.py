"""The server: plain FedAvg. One line of it is overheard's."""

from __future__ import annotations

import os

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from task import make_model

import overheard.flower

app = ServerApp()
SITES = 6


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(1.0, 0.0, min_train_nodes=SITES, min_available_nodes=SITES)
    strategy = overheard.flower.record(strategy, os.environ["RECORDING"], name_by="site")
    strategy.start(grid, ArrayRecord(make_model().state_dict()), num_rounds=2)

"""The server: plain FedAvg. One line of it is overheard's."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import overheard.flower
from tabular.task import Net

app = ServerApp()
SITES = 4


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(1)
    strategy = FedAvg(1.0, 0.0, min_train_nodes=SITES, min_available_nodes=SITES)
    run = str(context.run_config.get("recording", "run"))
    strategy = overheard.flower.record(strategy, run, name_by="site")
    strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=3)

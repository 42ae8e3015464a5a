"""The server: FedAvg of masked models. One line of it is overheard's."""

import torch
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

import overheard.flower
from secure_sum.task import Net, get_weights

masked, app = ServerApp(), ServerApp()
SITES = 4


@masked.main()
def add_up(grid: Grid, context: Context) -> None:
    torch.manual_seed(1)
    first = ndarrays_to_parameters(get_weights(Net()))
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=SITES,
        min_available_clients=SITES,
        initial_parameters=first,
    )
    legacy = LegacyContext(context, ServerConfig(num_rounds=3), strategy)
    fit = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2, max_weight=64)
    DefaultWorkflow(fit_workflow=fit)(grid, legacy)


@app.main()
def main(grid: Grid, context: Context) -> None:
    run = str(context.run_config.get("recording", "run"))
    overheard.flower.record_app(masked, run, name_by="site")(grid, context)

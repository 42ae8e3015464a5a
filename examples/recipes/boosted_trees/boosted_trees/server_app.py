"""The server: trees of all sites in a bag, or one site after the other. One line is overheard's."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedXgbBagging, FedXgbCyclic

import overheard.flower

app = ServerApp()
SITES = 4


@app.main()
def main(grid: Grid, context: Context) -> None:
    method = str(context.run_config.get("train-method", "bagging"))
    kind, rounds = (FedXgbCyclic, 24) if method == "cyclic" else (FedXgbBagging, 8)
    strategy = kind(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=SITES)
    run = str(context.run_config.get("recording", "run"))
    strategy = overheard.flower.record(strategy, run, name_by="site")
    nothing = ArrayRecord([np.frombuffer(b"", dtype=np.uint8)])
    config = ConfigRecord({"train-method": method})
    strategy.start(grid, nothing, num_rounds=rounds, train_config=config)

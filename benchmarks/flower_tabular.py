"""How long is it from Flower's tabular app to the report, and does what the wire shows fit?

    python -m benchmarks.flower_tabular [--clients 5] [--people 0] [--keep FOLDER]

The app is Flower's example fl-tabular as users know it: Adult, every client codes its texts,
holds a fifth of its records out and scales the others by itself; Adam at 0.001, batches of 32, one
epoch. One line of it is overheard's. Then two commands: `init` with the table and the name of the
secret column, and `audit` of one client. Writes benchmarks/flower_tabular.json: seconds of either,
by the clock and of the processor (which the load of the machine changes less), the recipe found,
and whether it fits. `init` should take at most 120. Flower's simulation listens on the network:
``unshare -rn sh -c 'ip link set lo up && python -m benchmarks.flower_tabular'``. ``--keep`` goes on
with the recording that is there.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.frame import Results, Row, options

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

TABLE, RUN = "TABULAR_TABLE", "TABULAR_RUN"


# ---- task.py


def load_data(partition: int) -> Any:
    with Path(os.environ[TABLE]).open(newline="", encoding="utf-8") as file:
        people = [p for p in csv.DictReader(file) if p["client"] == f"client {partition}"]
    names = [name for name in people[0] if name != "client"]
    columns = []
    for name in names:
        values = [[person[name]] for person in people]
        number = values[0][0].lstrip("-").replace(".", "").isdigit()
        columns.append(
            np.array(values, dtype=float) if number else OrdinalEncoder().fit_transform(values)
        )
    table = np.hstack(columns)
    target = names.index("income")
    x, y = np.delete(table, target, axis=1), table[:, target]
    x_train, _, y_train, _ = train_test_split(x, y, test_size=0.2, random_state=42)
    x_train = torch.tensor(StandardScaler().fit_transform(x_train), dtype=torch.float32)
    y_train = torch.tensor(y_train, dtype=torch.float32).view(-1, 1)
    return DataLoader(TensorDataset(x_train, y_train), batch_size=32, shuffle=True)


class IncomeClassifier(torch.nn.Module):
    def __init__(self, inputs: int = 14, wide: int = 128) -> None:
        super().__init__()
        self.layer1 = torch.nn.Linear(inputs, wide)
        self.layer2 = torch.nn.Linear(wide, wide // 2)
        self.output = torch.nn.Linear(wide // 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.layer1(x))
        x = torch.relu(self.layer2(x))
        return torch.sigmoid(self.output(x))


def train(model: torch.nn.Module, loader: DataLoader[Any]) -> None:
    criterion = torch.nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


# ---- client_app.py and server_app.py


def apps(shape: dict[str, int], clients: int, rounds: int) -> tuple[ServerApp, ClientApp]:
    """The two apps; ``shape``: of the network."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    import overheard.flower

    client_app, server_app = ClientApp(), ServerApp()

    @client_app.train()
    def fit(message: Message, context: Context) -> Message:
        model = IncomeClassifier(**shape)
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        loader = load_data(int(context.node_config["partition-id"]))
        train(model, loader)
        metrics = MetricRecord({"num-examples": len(loader.dataset)})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy: Any = FedAvg(1.0, 0.0, min_train_nodes=clients, min_available_nodes=clients)
        strategy = overheard.flower.record(strategy, os.environ[RUN])  # the one line
        model = IncomeClassifier(**shape)
        strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=rounds)

    return server_app, client_app


def write_adult(path: Path, clients: int, people: int) -> None:
    """Adult's training file, dealt to so many clients one after the other, as Flower does; of each
    the first people (0: all)."""
    from papers.data.adult import COLUMNS, SOURCE

    lines = SOURCE.locate()[0].read_text().splitlines()
    rows = [line.split(", ") for line in lines if line.strip()]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*COLUMNS, "client"])
        for number, part in enumerate(np.array_split(np.arange(len(rows)), clients)):
            for row in part[: people or None]:
                table.writerow([*rows[row], f"client {number}"])


def timed(folder: Path, *words: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds that the command takes, and what it says."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "overheard", *words, "--json"]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    spent = {"by the clock": time.perf_counter() - began, "of the processor": worked}
    said: dict[str, Any] = json.loads(done.stdout)
    return {name: round(seconds, 1) for name, seconds in spent.items()}, said


def recorded(folder: Path, clients: int, people: int) -> None:
    """The app's own federation, by Flower's simulation."""
    from flwr.simulation import run_simulation

    folder.mkdir(exist_ok=True, parents=True)
    write_adult(folder / "adult.csv", clients, people)
    server, client = apps({}, clients, rounds=3)
    backend: Any = {"init_args": {"include_dashboard": False}}
    run_simulation(server, client, clients, backend_config=backend)


def initialised(folder: Path) -> Row:
    """What `init` finds, and how long it takes."""
    words = ["--data", "adult.csv", "--target", "income", "--secret", "sex"]
    (folder / "run" / "audit.toml").unlink(missing_ok=True)
    seconds, found = timed(folder, "init", "run", *words)
    load = round(os.getloadavg()[0], 1)
    said = {name: found[name] for name in ("found", "open", "fits")}
    return {"load of the machine": load, "seconds of init": seconds, **said}


def audited(folder: Path, budget: float) -> Row:
    """What the audit of one client finds, and how long it takes."""
    asked = ["--client", "client 0", "--attack", "max_entropy", "--attack", "majority"]
    less = ["--no-rounds", "--budget", str(budget)]
    shutil.rmtree(folder / "audit", ignore_errors=True)
    told = ["--with", "run/audit.toml", "--out", "audit"]
    seconds, _ = timed(folder, "audit", "run", *told, *asked, *less)
    learned = json.loads((folder / "audit" / "audit.json").read_text())
    return {
        "seconds of audit": seconds,
        "replays": {r["client"]: r["outcome"] for r in learned["replays"]},
        "learned": {f["attack"]: [f["value"], f["low"], f["high"]] for f in learned["findings"]},
        "skipped": [part["reason"] for part in learned["skipped"]],
    }


def main() -> None:
    given = options(__doc__, __file__, clients=5, people=0, budget=120.0, keep=Path())
    name = f"{given.clients} clients, {given.people or 'all'} people of each"
    kept = Results(given.out, given.command)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) if given.keep == Path() else given.keep
        os.environ |= {TABLE: str(folder / "adult.csv"), RUN: str(folder / "run")}
        if not (folder / "run").exists():
            recorded(folder, given.clients, given.people)
        kept.rows.pop(name, None)
        row = kept.row(name, lambda: initialised(folder))
        row |= audited(folder, given.budget)  # what is measured first is not lost with the rest
        kept.write()
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()

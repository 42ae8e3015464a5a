"""xu2021 Observations 2 and 7: how long one must listen, and what the local model is worth.

Observation 2. Client c has H = X'X tridiagonal (1, with -1/2 beside it) and X'y = (1/2, 0, ..., 0);
everybody else has H = I and its optimum at 0, and training starts at 0. A gradient step then moves
one more coordinate, so that data whose H lacks its last row and column give the same messages until
coordinate d - 1 has moved: after d messages of one local step. The footnote's black box takes one
gradient a round. With E local steps a round moves E coordinates and about d / E messages suffice to
tell the data apart: the bound is on gradient steps.

Observation 7. A client's messages depend on its labels through X'y alone. The labels y and
2 X theta* - y, its residuals mirrored, give the same messages; whatever is guessed, the squared
errors on the two sum to at least twice the local model's. So no method does better on both. On one
of them a method may, if it knows something about labels that the mirrored ones break: that they are
0 or 1, for example.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.label import LinearDecode
from overheard.attacks.papers.xu2021 import affine_map
from overheard.data.dataset import Dataset
from overheard.decoding.local_optimum import decode_least_squares
from overheard.errors import ListenLonger
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.randomness import stream
from overheard.transcript.knowledge import Link
from overheard.transcript.target import LABEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe
from papers.common import pictures
from papers.common.harness import federation, mean_row, recorded, truth_and_recipe
from papers.common.rows import Experiment, Progress, Reproduction, Row

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Hard:
    """The client of Observation 2's proof: H and X'y of its loss.

    ``twin``: the data that cannot be told from it at first, H without its last row and column.
    """

    H: Array
    pull: Array

    @staticmethod
    def of(size: int) -> Hard:
        beside = np.eye(size, k=1) + np.eye(size, k=-1)
        return Hard(np.eye(size) - beside / 2, np.eye(size)[0] / 2)

    @property
    def twin(self) -> Hard:
        cut = self.H.copy()
        cut[-1], cut[:, -1] = 0.0, 0.0
        return Hard(cut, self.pull)

    @property
    def optimum(self) -> Array:
        return np.asarray(np.linalg.solve(self.H, self.pull))


def heard(client: Hard, rounds: int, steps: int, rate: float = 0.5) -> tuple[Array, Array]:
    """(T, d) models sent and returned: FedAvg of the client and one other, whose H is I.

    rate: 2 lr / m of the paper's equation (3).
    """
    model = np.zeros(len(client.pull))
    sent, returned = [], []
    for _ in range(rounds):
        mine, other = model, model
        for _ in range(steps):
            mine = mine - rate * (client.H @ mine - client.pull)
            other = other - rate * other
        sent.append(model)
        returned.append(mine)
        model = (mine + other) / 2
    return np.array(sent), np.array(returned)


def error_after(sent: Array, returned: Array, messages: int, optimum: Array) -> float:
    """Relative distance to the local optimum of what so many messages give (Observation 1)."""
    try:
        fit = decode_least_squares(sent[:messages], returned[:messages])
    except ListenLonger:
        return 1.0  # nothing is known: as far as from 0
    return float(np.linalg.norm(fit.estimate - optimum) / np.linalg.norm(optimum))


APART = "messages until the twin differs"
MOVED = "messages until every coordinate moved"
KNOWN = "messages until the optimum is known to 1%"
ERROR = "distance to the optimum"


def obs2(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """How many messages the hard client must send before its local optimum can be known."""
    rows: list[Row] = []
    sizes = (5,) if quick else (5, 10, 20)
    for at, size in enumerate(sizes):
        for steps in (1, 5):
            progress(f"d = {size}, {steps} steps", at, len(sizes))
            client = Hard.of(size)
            most = 4 * size
            sent, returned = heard(client, most, steps)
            _, twins = heard(client.twin, most, steps)
            apart = int(np.argmax((returned != twins).any(axis=1))) + 1
            moved = int(np.argmax((returned != 0).all(axis=1))) + 1
            errors = {n: error_after(sent, returned, n, client.optimum) for n in range(2, most + 1)}
            known = next((n for n, error in errors.items() if error < 0.01), most + 1)
            setting = f"d = {size}, {steps} local step{'s' if steps > 1 else ''}"
            rows += [
                Row(setting, "hard", "any", APART, apart, claimed=size),
                Row(setting, "hard", "any", MOVED, moved, claimed=size),
                Row(setting, "hard", "exact_linear", KNOWN, known, claimed=size + 1),
            ]
            near = {2, size // 2, size - 1, size, size + 1, size + 2, 2 * size}
            shown = sorted(near & set(errors))
            rows += [Row(setting, f"{n} messages", "exact_linear", ERROR, errors[n]) for n in shown]
    notes = (
        "Claimed: at least d for the first two (Observation 2), d + 1 suffice (Observation 1).",
        "The paper's box takes one gradient a round; with E local steps it is d / E, as measured.",
        "Arithmetic in float64: at d = 20 and one step the last coordinates are below its rounding "
        "for a while. 4 d + 1 would mean: not within the 4 d messages simulated.",
    )
    return Reproduction(rows, "made", notes, seeds)


RATIO = "squared error / the local model's"


def mirrored(records: Records, inputs: Array) -> Records:
    """The records with their labels' residuals turned round: the same X'y, the same messages."""
    design = np.column_stack([inputs, np.ones(len(records))])
    fitted = design @ np.linalg.lstsq(design, records["y"], rcond=None)[0]
    return Records({**records.columns, "y": 2 * fitted - records["y"]})


def two_clients(seed: int, binary: bool) -> dict[str, Records]:
    """Client 0, whose labels are asked for, and another; 60 records each, three columns."""
    rng = stream(seed, "observation 7")
    effects, found = rng.normal(size=3), {}
    for name in ("0", "1"):
        public = rng.normal(size=(60, 3))
        score = public @ effects + (0.1 if binary else 1.0) * rng.normal(size=60)
        labels = (score > 0).astype(np.float64) if binary else score
        found[name] = Records({**{f"x{j}": public[:, j] for j in range(3)}, "y": labels})
    return found


def joined(clients: dict[str, Records]) -> Dataset:
    """The clients as one table."""
    names = next(iter(clients.values())).columns
    table = {n: np.concatenate([r[n] for r in clients.values()]) for n in names}
    table["at"] = np.repeat([float(c) for c in clients], [len(r) for r in clients.values()])
    return Dataset("observation 7", Records(table), "at", "y", "regression", (), "made", "none")


def label_guesses(dataset: Dataset, seed: int) -> Iterator[tuple[str, Array]]:
    """Every method's labels of client 0, in the labels' units."""
    training = {"rounds": 30, "learning_rate": 0.1, "wire": "float64"}
    asked = {"audit": {"attributes": [], "label": True}}
    config = federation(seed, "file", "linear", training) | asked
    with recorded(config, dataset) as recording:
        truth, recipe = truth_and_recipe(recording)
        view = observe(recording, EAVESDROPPER, LABEL, "0")
        link = view.know(Link)
        local = says(recipe, affine_map(link, recipe).estimate, truth["0"])
        yield "local model", local
        yield "last returned", says(recipe, link.returned[-1].astype(np.float64), truth["0"])
        yield "linear_decode", launch(LinearDecode(), view, seed).values
        yield "local model, the nearer of 0 and 1", (local > 0.5).astype(np.float64)


def says(recipe: Recipe, theta: Array, records: Records) -> Array:
    """A model's predictions, in the labels' units."""
    outputs = network(recipe).predict(theta, encode(recipe.encoding, records))[:, 0]
    return np.asarray(recipe.target.decode_values(outputs.astype(np.float64)))


def obs7(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Squared errors of guessed labels, over the local model's own: on data and on its mirror."""
    draws = 3 if quick else 20
    ratios: dict[tuple[str, str, str], list[float]] = {}
    for at, (setting, binary) in enumerate((("any number", False), ("0 or 1", True))):
        for draw in range(draws):
            progress(f"labels are {setting}", at * draws + draw, 2 * draws)
            clients = two_clients(draw, binary)
            inputs = np.column_stack([clients["0"][f"x{j}"] for j in range(3)])
            turned = {**clients, "0": mirrored(clients["0"], inputs)}
            residuals = (clients["0"]["y"] - turned["0"]["y"]) / 2
            least = float((residuals**2).sum())
            for world, members in (("data", clients), ("mirror", turned)):
                for method, labels in label_guesses(joined(members), draw):
                    error = float(((labels - members["0"]["y"]) ** 2).sum())
                    ratios.setdefault((setting, method, world), []).append(error / least)
    rows: list[Row] = []
    for setting, method in dict.fromkeys((s, m) for s, m, _ in ratios):
        data, mirror = (np.array(ratios[setting, method, w]) for w in ("data", "mirror"))
        for client, values in (
            ("data", data), ("mirror", mirror), ("mean of both", (data + mirror) / 2)
        ):  # fmt: skip
            rows.append(mean_row(f"labels are {setting}", client, method, RATIO, list(values), 1.0))
    notes = (
        "Claimed: at least 1. Over data and mirror no method is below; on the data alone one that "
        "knows more about labels may be.",
    )
    return Reproduction(rows, "made", notes, seeds)


HEARD = pictures.curves("messages heard", ERROR)
EXPERIMENTS = (
    Experiment("xu2021-obs2", "messages that one must hear", obs2, HEARD),
    Experiment("xu2021-obs7", "labels: none beats the local model", obs7, pictures.marks(RATIO)),
)

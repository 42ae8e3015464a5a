"""xu2021 Observations 1, 2, 5, 6 and 7: how long to listen, and what the local model is worth.

Observation 2. Client c has H = X'X tridiagonal (1, with -1/2 beside it) and X'y = (1/2, 0, ..., 0);
everybody else has H = I and its optimum at 0, and training starts at 0. A gradient step then moves
one more coordinate, so that data whose H lacks its last row and column give the same messages until
coordinate d - 1 has moved: after d messages of one local step. The footnote's black box takes one
gradient a round. With E local steps a round moves E coordinates and about d / E messages suffice to
tell the data apart: the bound is on gradient steps.

Observations 5 and 6. With mini-batches the map is observed with noise; ordinary least squares, as
in the proof (equation 14), and ours. The error falls with the messages observed, as long as the
models sent still move; no estimator's is below Observation 6's bound, 4 d eta^2 sigma^2 / (555 n)
(1 - 4^-steps), whose sigma^2 is taken here as the gradient noise's mean over the models sent.

Observation 7. A client's messages depend on its labels through X'y alone. The labels y and
2 X theta* - y, its residuals mirrored, give the same messages; whatever is guessed, the squared
errors on the two sum to at least twice the local model's. So no method does better on both. On one
of them a method may, if it knows something about labels that the mirrored ones break: that they are
0 or 1, for example.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from experiments.papers.scoring import truth_and_recipe
from experiments.recordings import federation, recorded
from experiments.runner import Cell, Experiment, Values, cell
from overheard.attacks.label import LinearDecode
from overheard.attacks.local_model import Structured
from overheard.attacks.papers.xu2021 import affine_map
from overheard.data.dataset import Dataset
from overheard.decoding.local_optimum import decode_least_squares
from overheard.errors import ListenLonger
from overheard.evaluation import metrics
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.randomness import stream
from overheard.transcript.knowledge import Messages
from overheard.transcript.target import LABEL, LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

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


def transcript(client: Hard, rounds: int, steps: int, rate: float = 0.5) -> tuple[Array, Array]:
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


def obs2(one: Cell) -> Values:
    """How many messages the hard client must send before its local optimum can be known.

    Arithmetic is in float64: at d = 20 and one step the last coordinates are below its rounding for
    a while. 4 d + 1 means: not within the 4 d messages simulated.
    """
    size, most = one["d"], 4 * one["d"]
    client = Hard.of(size)
    sent, returned = transcript(client, most, one["steps"])
    _, twins = transcript(client.twin, most, one["steps"])
    errors = {n: error_after(sent, returned, n, client.optimum) for n in range(2, most + 1)}
    return {
        APART: int(np.argmax((returned != twins).any(axis=1))) + 1,
        MOVED: int(np.argmax((returned != 0).all(axis=1))) + 1,
        KNOWN: next((n for n, error in errors.items() if error < 0.01), most + 1),
        "distance to the optimum": {str(n): error for n, error in errors.items()},
    }


APART = "messages until the twin differs"
MOVED = "messages until every coordinate moved"
KNOWN = "messages until the optimum is known to 1%"


def obs2_claims(one: Cell) -> Values:
    """At least d for the first two (Observation 2), d + 1 suffice (Observation 1); one step."""
    d = one["d"]
    return {APART: d, MOVED: d, KNOWN: d + 1} if one["steps"] == 1 else {}


ERROR, LEAST = "squared error of the local model", "least possible (Observation 6)"


def obs5(one: Cell) -> Values:
    """Mini-batches: how far the decoded model is from the local optimum; Observation 6's bound."""
    rounds, batch, rate = one["messages"], one["batch"], 0.05
    wish = {"rounds": rounds, "learning_rate": rate, "batch_size": batch, "precision": "float64"}
    clients = two_clients(one.seed, binary=False)
    with recorded(federation(one.seed, "file", "linear", wish), joined(clients)) as recording:
        truth, recipe = truth_and_recipe(recording)
        view = observe(recording, EAVESDROPPER, LOCAL_MODEL, "0")
        link, records = view.know(Messages), truth["0"]
        sent, updates = link.sent.astype(np.float64), link.updates()
        if one.method == "least squares":
            design = np.column_stack([sent, -np.ones(len(sent))])
            found = np.linalg.lstsq(design, updates, rcond=None)[0]
            theta = np.linalg.pinv(found[:-1].T) @ found[-1]
        else:
            theta = launch(Structured(), view, one.seed).parameters
        error = float(((theta - metrics.local_optimum(recipe, records)) ** 2).sum())
    x = np.column_stack([encode(recipe.encoding, records), np.ones(len(records))])
    residuals = sent @ x.T - recipe.target.encode(records)
    each = 2 * residuals[:, :, None] * x  # gradients (T, m, d) of single records
    apart = ((each - each.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean()
    m, (n, d) = len(records), sent.shape
    noise = apart * (m / batch - 1) / (m - 1)
    steps = -(-m // batch)
    return {ERROR: error, LEAST: 4 * d * rate**2 * noise / (555 * n) * (1 - 0.25**steps)}


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
    return Dataset("observation 7", Records(table), "at", "y", "regression", (), "made")


LABEL_METHODS = ("local model", "last returned", "linear_decode", "local model, nearer of 0 and 1")


def label_guess(dataset: Dataset, seed: int, method: str) -> Array:
    """A method's labels of client 0, in the labels' units."""
    training = {"rounds": 30, "learning_rate": 0.1, "precision": "float64"}
    asked = {"audit": {"attributes": [], "label": True}}
    config = federation(seed, "file", "linear", training) | asked
    with recorded(config, dataset) as recording:
        truth, recipe = truth_and_recipe(recording)
        view = observe(recording, EAVESDROPPER, LABEL, "0")
        if method == "linear_decode":
            return np.asarray(launch(LinearDecode(), view, seed).values)
        link = view.know(Messages)
        if method == "last returned":
            return predictions(recipe, link.returned[-1].astype(np.float64), truth["0"])
        local = predictions(recipe, affine_map(link, recipe).estimate, truth["0"])
        return local if method == "local model" else (local > 0.5).astype(np.float64)


def predictions(recipe: Recipe, theta: Array, records: Records) -> Array:
    """A model's predictions, in the labels' units."""
    outputs = network(recipe).predict(theta, encode(recipe.encoding, records))[:, 0]
    return np.asarray(recipe.target.decode_values(outputs.astype(np.float64)))


def obs7(one: Cell) -> Values:
    """Squared errors of guessed labels, over the local model's own: on data and on its mirror."""
    clients = two_clients(one.seed, one["labels"] == "0 or 1")
    inputs = np.column_stack([clients["0"][f"x{j}"] for j in range(3)])
    turned = {**clients, "0": mirrored(clients["0"], inputs)}
    least = float((((clients["0"]["y"] - turned["0"]["y"]) / 2) ** 2).sum())
    ratios = {}
    for name, members in (("data", clients), ("mirror", turned)):
        labels = label_guess(joined(members), one.seed, one.method)
        ratios[name] = float(((labels - members["0"]["y"]) ** 2).sum()) / least
    return {RATIO: ratios, f"{RATIO}, mean of data and mirror": fmean(ratios.values())}


EXPERIMENTS = (
    Experiment(
        "xu2021-obs2",
        "messages that one must observe",
        obs2,
        lambda: [cell(quick=d == 5, d=d, steps=steps) for d in (5, 10, 20) for steps in (1, 5)],
        claims=obs2_claims,
    ),
    Experiment(
        "xu2021-obs5",
        "mini-batches: error and its lower bound",
        obs5,
        lambda: [
            cell(method, seed, quick=seed < 3 and rounds == 30, batch=batch, messages=rounds)
            for batch in (6, 20)
            for rounds in (30, 100, 300)
            for method in ("least squares", "structured")
            for seed in range(20)
        ],
    ),
    Experiment(
        "xu2021-obs7",
        "labels: none beats the local model",
        obs7,
        lambda: [
            cell(method, seed, quick=seed < 3, labels=labels)
            for labels in ("any number", "0 or 1")
            for method in LABEL_METHODS
            for seed in range(20)
        ],
        claims=lambda one: {f"{RATIO}, mean of data and mirror": 1.0},
    ),
)

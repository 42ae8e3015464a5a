"""Federations and audits that must come out the same whatever is moved inside the package.

    python tests/pinned/cases.py [NAME ...]     writes pinned.json anew (all, or these)

Every family of attacks, and every kind of recipe and defence, small. A change of a number here is
a change of behaviour: name it in CHANGELOG under "Numbers changed", then write the file anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent / "helpers"))

from federations import FAMILIES, heard, quick, recorded, score  # noqa: E402

from overheard.errors import OverheardError  # noqa: E402
from overheard.transcript.store import Recording  # noqa: E402
from overheard.transcript.threat import SERVER, Threat  # noqa: E402
from overheard.transcript.view import launch  # noqa: E402

PINNED = FOLDER / "pinned.json"


class Case(NamedTuple):
    """A recording and what is asked of its first client."""

    made: Callable[[Path], Recording]
    threat: Threat
    target: str
    attacks: tuple[str, ...]


ATTRIBUTE = ("max_entropy", "partial_decode", "model_based_global", "majority")
LOGISTIC = ("max_entropy", "joint_decode", "statistics")
MEMBERS = ("candidate_decode", "gradient_variance_gmm", "coin")
MODELS = ("exact_linear", "structured", "last_returned")
FULL = {"rounds": 3, "participation": 1.0, "people": 40, "clients": 3}


def _network(attacks: tuple[str, ...], target: str = "s", **settings: Any) -> Case:
    model = {"name": "mlp", "hidden": [12], **settings.pop("model", {})}
    return _case(model, attacks, target, **settings)


def _case(model: dict[str, Any], attacks: tuple[str, ...], target: str, **settings: Any) -> Case:
    given = {**FULL, **settings}
    return Case(lambda path: recorded(path, model, **given), SERVER, target, attacks)


def _linear(attacks: tuple[str, ...], target: str = "s", **settings: Any) -> Case:
    return _case({"name": "linear"}, attacks, target, **settings)


def _logistic(attacks: tuple[str, ...], target: str = "s", **settings: Any) -> Case:
    return _case({"name": "logistic"}, attacks, target, **{"learning_rate": 0.5, **settings})


POOL = {"membership": 30}
BATCHES, EPOCHS = {"batch_size": 8}, {"epochs": 3}
SGD, PROX = {"algorithm": "fedsgd"}, {"algorithm": "fedprox", "proximal": 0.5}
CASES: dict[str, Case] = {
    "linear": _linear(ATTRIBUTE, rounds=8),
    "linear, wide numbers": _linear(ATTRIBUTE, wire="float64"),
    "linear, gradients": _linear(ATTRIBUTE, **SGD),
    "linear, epochs": _linear(ATTRIBUTE, **EPOCHS),
    "linear, batches": _linear(ATTRIBUTE, **BATCHES),
    "linear, proximal": _linear(("max_entropy", "majority"), **PROX),
    "linear, isolated": _linear(("max_entropy",), isolate="0"),
    "linear, some records": _linear(("partial_decode",), audit={"coverage": 0.5}),
    "logistic": _logistic(LOGISTIC, rounds=8),
    "logistic, gradients": _logistic(LOGISTIC, **SGD),
    "logistic, epochs": _logistic(("max_entropy",), **EPOCHS),
    "logistic, batches": _logistic(("max_entropy",), **BATCHES),
    "network": _network(ATTRIBUTE),
    "network, tanh": _network(("max_entropy",), model={"activation": "tanh"}),
    "network, gradients": _network(("max_entropy", "partial_decode"), **SGD),
    "network, wide numbers": _network(("max_entropy",), wire="float64"),
    "network, epochs": _network(("max_entropy",), **EPOCHS),
    "network, batches": _network(("max_entropy",), **BATCHES),
    "network, batches and epochs": _network(("max_entropy",), **BATCHES, **EPOCHS),
    "network, proximal epochs": _network(("max_entropy",), **PROX, **EPOCHS),
    "network, two layers": _network(("max_entropy",), model={"hidden": [10, 6]}),
    "network, some records": _network(("partial_decode",), audit={"coverage": 0.5}),
    "network, numbers in bins": _linear(("max_entropy",), "x1", audit={"attributes": ["x1"]}),
    "members": _network(MEMBERS, "membership.s", audit=POOL),
    "members, gradients": _network(MEMBERS, "membership.s", audit=POOL, **SGD),
    "members, batches": _network(MEMBERS, "membership.s", audit=POOL, **BATCHES),
    "members, epochs": _network(MEMBERS, "membership.s", audit=POOL, **EPOCHS),
    "models": _linear(MODELS, "local_model", rounds=20, participation=0.5),
    "models, gradients": _linear(MODELS, "local_model", rounds=20, participation=0.5, **SGD),
    "models, batches": _linear(("structured",), "local_model", rounds=40, **BATCHES),
    "models, logistic": _logistic(("structured", "last_returned"), "local_model", rounds=20),
    **{
        f"family: {name}": Case(family.made, family.threat, family.target, family.attacks)
        for name, family in FAMILIES.items()
        if not name.endswith(", trees")  # XGBoost writes its version into its models
    },
}


def measured(case: Case, path: Path) -> dict[str, Any]:
    """Of the first client (or of everybody): each attack's score, probabilities and diagnosis."""
    recording = case.made(path)
    family = type(next(iter(FAMILIES.values())))(case.made, case.threat, case.target, case.attacks)
    found: dict[str, Any] = {"messages": _digest(recording)}
    for name in case.attacks:
        view, attack = heard(family, recording), quick(name)
        try:
            guess = launch(attack, view, 0)
        except OverheardError as error:
            found[name] = {"refused": type(error).__name__}
            continue
        finding = score(recording, view, attack, guess)
        found[name] = {
            "value": finding.value,
            "flag": str(dict(guess.diagnostics).get("flag", "")),
            "guess": _moments(guess),
        }
    return found


def _digest(recording: Recording) -> list[float]:
    """Of what was sent and returned: sums that no rounding of a refactoring moves."""
    files = sorted((recording.path / "wire").glob("*.safetensors"))
    made = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()
    return [float(len(files)), float(int(made[:12], 16))]


def _moments(guess: Any) -> list[float]:
    """Three numbers that a changed guess changes."""
    for name in ("probabilities", "parameters", "means", "values", "message"):
        numbers = getattr(guess, name, None)
        if isinstance(numbers, dict):
            numbers = np.concatenate([np.ravel(part) for part in numbers.values()])
        if isinstance(numbers, np.ndarray):
            flat = np.asarray(numbers, dtype=np.float64).ravel()
            ramp = np.linspace(-1, 1, flat.size)
            return [float(flat.mean()), float(np.abs(flat).max()), float(flat @ ramp)]
    raise TypeError(f"no numbers in a {type(guess).__name__}")


def main(names: list[str]) -> None:
    """Write what today's code finds."""
    kept = json.loads(PINNED.read_text()) if PINNED.exists() else {}
    for name in names or list(CASES):
        with tempfile.TemporaryDirectory() as folder:
            kept[name] = measured(CASES[name], Path(folder) / "run")
        print(name, flush=True)
    PINNED.write_text(json.dumps({n: kept[n] for n in CASES if n in kept}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

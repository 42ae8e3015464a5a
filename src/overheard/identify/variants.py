"""In which ways may records have entered the model? Each described as an audit would be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from overheard.attacks.wire import only, rounding, spread
from overheard.errors import FixConfig, OverheardError
from overheard.federation.recorders.described import Description
from overheard.federation.recorders.description import describe, wire_layout
from overheard.federation.recorders.factory import dense_of, layout_words
from overheard.identify.evidence import Messages, Seen
from overheard.identify.search import Structure
from overheard.programs.recipe import Dense, Recipe
from overheard.programs.records import encode
from overheard.transcript.kind import recipe_of
from overheard.transcript.knowledge import Link
from overheard.transcript.observe import observe
from overheard.transcript.payload import releases_arrays, returns_gradients
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import Threat

ACTIVATIONS = ("relu", "tanh", "sigmoid")
ROUNDS = 6
"""Messages of a client that are looked at, evenly spread."""
_LINK = Threat("identify", frozenset({Link}), "")


@dataclass(frozen=True)
class Known:
    """The recording, as it is read with one description of how records entered the model."""

    words: str
    description: Description
    recording: Recording
    recipe: Recipe


def variants(recording: Recording, given: Mapping[str, Any]) -> Iterator[tuple[str, Description]]:
    """How the columns may be scaled, whether the label is a class, and how it is scaled."""
    layout, model = wire_layout(recording), dict(given.get("model", {}))
    gradients = returns_gradients(recording.payload)
    rule: dict[str, Any] = {"learning_rate": 1.0 if gradients else 0.1}
    rule |= {"algorithm": "fedsgd"} if gradients else {}
    dense = dense_of([shape for _, shape in layout])
    if dense is None and not model:
        raise FixConfig(
            f"the messages hold {layout_words(layout)}, which is more than dense layers one after "
            'the other: give the torch module that was trained, --model "package.module:function"'
        )
    outputs = dense.outputs if dense is not None else 1
    tasks = ("classification",) if outputs > 1 else ("classification", "regression")
    scales = {"records": "columns scaled together", "clients": "columns scaled per client",
              "none": "columns as they are"}  # fmt: skip
    for task in (given["data"].get("task"),) if given["data"].get("task") else tasks:
        for scale, words in scales.items():
            labels: list[Any] = [("", None)]
            if task == "regression" and scale != "none":
                labels.append((", label as it is", {"shift": 0.0, "scale": 1.0}))
            for said, target in labels:
                content: dict[str, Any] = {
                    **given,
                    "data": {**given["data"], "task": task, "scale": scale},
                    "model": model or _named(dense, task),
                    "training": rule,
                }
                content |= {} if target is None else {"target": target}
                about = f"{words}{said}" + (f", {task}" if len(tasks) > 1 else "")
                yield about, Description.model_validate(content)


def _named(dense: Dense | None, task: str) -> dict[str, Any]:
    assert dense is not None  # checked by the caller
    if dense.hidden:
        return {"name": "mlp", "hidden": list(dense.hidden)}
    return {"name": "logistic" if task == "classification" else "linear"}


def described(
    recording: Recording, given: Mapping[str, Any], work: Path, trust_code: bool
) -> Iterator[Known]:
    """The recording as each variant describes it; those that do not fit the table are left out."""
    if releases_arrays(recording.payload):
        raise FixConfig(f"{recording.path}: holds releases of a program that trains no network")
    refused: OverheardError | None = None
    found = 0
    for number, (words, description) in enumerate(variants(recording, given)):
        folder = work / str(number)
        try:
            describe(recording, description, folder, trust_code)
        except OverheardError as error:
            refused = refused or error
            continue
        known = recording.described_in(folder)
        recipe = recipe_of(known)
        assert recipe is not None  # just described
        found += 1
        yield Known(words, description, known, recipe)
    if not found:
        raise refused or FixConfig(f"{recording.path}: no description fits the table")


def structures(known: Known, names: Sequence[str]) -> Iterator[Structure]:
    """What is known, with every activation and loss that goes with it."""
    truth, recipe = known.recording.truth(), known.recipe
    seen = Seen(
        tuple(encode(recipe.encoding, truth[c]) for c in names),
        tuple(recipe.target.encode(truth[c]) for c in names),
    )
    model = recipe.model
    losses = ("cross_entropy",) if recipe.target.classes else ("squared_error", "huber")
    for loss in losses:
        if not isinstance(model, Dense) or not model.hidden:
            made = recipe.model_copy(update={"loss": loss})
            yield Structure(f"{known.words}, {loss}", made, seen)
            continue
        for activation in ACTIVATIONS:
            layers = model.model_copy(update={"activation": activation})
            both = recipe.model_copy(update={"loss": loss, "model": layers})
            yield Structure(f"{known.words}, {loss}, {activation}", both, seen)


def messages(recording: Recording, names: Sequence[str], rounds: int = ROUNDS) -> Messages:
    """Some messages of these clients, from their first to their last."""
    parts = []
    for number, name in enumerate(names):
        link = observe(recording, _LINK, LOCAL_MODEL, name).know(Link)
        link = only(link, spread(len(link), rounds))
        added = link.updates() if link.gradients else -link.updates()
        parts.append((link.sent, added, rounding(link), np.full(len(link), number)))
    sent, added, rounded, client = (np.concatenate(p) for p in zip(*parts, strict=True))
    return Messages(sent, added, rounded, client)

"""What does a recording of a stranger's app show, given the clients' records?

Every way in which the records may have entered the model (`variants`) is described as an audit
would be told of it; then recipes are tried (`search`), and the best is checked as every audit
checks its recipe: client by client, against replays of itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from overheard.attacks.wire import only, rounding, spread
from overheard.errors import FixConfig, OverheardError
from overheard.evaluation.record import Replay
from overheard.evaluation.replay import replays
from overheard.federation.config import DataConfig
from overheard.federation.recorders.described import Description
from overheard.federation.recorders.description import describe, wire_layout
from overheard.federation.recorders.factory import dense_of, layout_words
from overheard.identify.evidence import Messages, Seen
from overheard.identify.search import Fitted, Structure, search
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
CLIENTS, ROUNDS = 3, 6
"""Clients whose messages are looked at, and of each how many, evenly spread."""
_LINK = Threat("identify", frozenset({Link}), "")


@dataclass(frozen=True)
class Known:
    """The recording, as it is read with one description of how records entered the model."""

    words: str
    description: Description
    recording: Recording
    recipe: Recipe


@dataclass(frozen=True)
class Found:
    """Recipes, best first; what an audit is to be told of the best; whether it fits each client."""

    ranking: tuple[Fitted, ...]
    description: Description
    fits: tuple[Replay, ...]

    @property
    def explained(self) -> bool:
        """Whether the best recipe is what clients did, as far as replays tell."""
        return any(r.outcome == "fits" for r in self.fits) and not self.unfit

    @property
    def unfit(self) -> tuple[str, ...]:
        return tuple(r.client for r in self.fits if r.outcome == "does not fit")

    def with_data(self, data: DataConfig) -> Found:
        """The same, where an audit reads the records elsewhere."""
        return replace(self, description=self.description.model_copy(update={"data": data}))

    @property
    def open(self) -> tuple[Fitted, ...]:
        """Others that explain the messages as well, or nearly."""
        best, *others = self.ranking
        return tuple(f for f in others if f.as_good_as(best))


def identify(
    recording: Recording,
    given: Mapping[str, Any],
    work: Path,
    trust_code: bool = False,
) -> Found:
    """The recipe that the recording shows. ``given``: what is known of the description, its
    [data] at least; ``work``: a folder for the time being."""
    told = [*_described(recording, given, work, trust_code)]
    names = _some(told[0].recording)
    of = [(structure, known) for known in told for structure in _structures(known, names)]
    ranking = tuple(search([structure for structure, _ in of], messages(told[0].recording, names)))
    best = ranking[0]
    known = next(known for structure, known in of if structure is best.structure)
    truth = known.recording.truth()
    fits = replays(known.recording, best.recipe, truth, list(truth))
    return Found(ranking, _winner(known.description, best.recipe), fits)


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


def _described(
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


def _structures(known: Known, names: list[str]) -> Iterator[Structure]:
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


def _some(recording: Recording) -> list[str]:
    """A few clients who hold records and took part, of all sizes."""
    truth = recording.truth()
    heard = {who for e in recording.rounds for way, who in e.spans if way == "returned"}
    there = sorted((c for c in truth if c in heard), key=lambda c: len(truth[c]))
    if not there:
        raise FixConfig(f"{recording.path}: nobody of whom there are records took part")
    return [there[k] for k in spread(len(there), CLIENTS)]


def messages(recording: Recording, names: list[str]) -> Messages:
    """Some messages of these clients."""
    parts = []
    for number, name in enumerate(names):
        link = observe(recording, _LINK, LOCAL_MODEL, name).know(Link)
        link = only(link, spread(len(link), ROUNDS))
        added = link.updates() if link.gradients else -link.updates()
        parts.append((link.sent, added, rounding(link), np.full(len(link), number)))
    sent, added, rounded, client = (np.concatenate(p) for p in zip(*parts, strict=True))
    return Messages(sent, added, rounded, client)


def _winner(description: Description, recipe: Recipe) -> Description:
    """The description that says what the recipe does."""
    training: dict[str, Any] = {
        "algorithm": recipe.algorithm,
        "learning_rate": float(f"{recipe.learning_rate:.6g}"),
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size or 0,
        "optimiser": recipe.optimiser.model_dump(),
        "loss": recipe.loss,
    }
    content = description.model_dump(exclude_defaults=True) | {"training": training}
    if isinstance(recipe.model, Dense) and recipe.model.hidden and content["model"].get("name"):
        content["model"]["activation"] = recipe.model.activation
    return Description.model_validate(content)

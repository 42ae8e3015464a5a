"""What does a recording of a stranger's app show, given the clients' records?

Every way in which the records may have entered the model (`variants`) is described as an audit
would be told of it; then recipes are tried (`search`), and the best is checked as every audit
checks its recipe: client by client, against replays of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from overheard.attacks.wire import only, rounding, spread
from overheard.data.dataset import HeldOut
from overheard.errors import FixConfig, OverheardError
from overheard.evaluation.record import Replay
from overheard.evaluation.replay import replays
from overheard.federation.config import DataConfig, parse_config
from overheard.federation.plan import load_data
from overheard.federation.recorders.description import Description, describe
from overheard.identify.clients import anybody, who_is_who
from overheard.identify.evidence import Messages, Seen
from overheard.identify.search import SOME, Fitted, effort, search, weighed
from overheard.identify.variants import Asked, held_out
from overheard.programs.recipe import Recipe
from overheard.transcript.knowledge import Link
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import Threat

CLIENTS, ROUNDS = 3, 6
"""Clients whose messages are looked at, of all sizes, and messages of each, evenly spread."""
_LINK = Threat("identify", frozenset({Link}), "")


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
    table = {k: v for k, v in given["data"].items() if k != "task"}
    any_model = {"model": {"name": "linear"}, "training": {"rounds": 1, "learning_rate": 1.0}}
    dataset = load_data(parse_config({"data": table, **any_model}))
    asked = Asked(recording, dataset, given, trust_code)
    reported = {c: w for e in recording.rounds for c, w in e.weights.items()}
    heard = {c: None for e in recording.rounds for way, c in e.spans if way == "returned"}
    said = {**given.get("clients", {}), **(named := anybody(asked, list(heard)))}
    sizes = {c: len(records) for c, records in dataset.by_client().items()}
    there = {c: sizes[said.get(c, c)] for c in heard if said.get(c, c) in sizes}
    splits = held_out(sorted(there.values()), sorted(reported.get(c, np.nan) for c in there))
    asked = asked.held_out(splits[0]) if splits else asked
    if named:
        asked = asked.saying(clients=_matched(asked.saying(clients=named), work / "anybody"))
    known = _described(asked, work / "known")
    names = _some(known)
    told = messages(known, names)
    ranking = search(asked.structures(names), told)
    if split := _best_split(ranking[0], asked, splits, names, told):
        asked = asked.held_out(splits[split])
        ranking = search(asked.structures(names), told)
    best = ranking[0]
    truth = asked.ready(best.structure.description).clients
    fits = replays(known, best.recipe, truth, list(truth))
    return Found(tuple(ranking), _winner(best.structure.description, best.recipe), fits)


def _described(asked: Asked, work: Path) -> Recording:
    """The recording by the table's names, however its clients trained."""
    for _, description in asked.variants():
        try:
            describe(asked.recording, description, work, asked.trust_code)
        except OverheardError as error:
            refused = error
            continue
        return asked.recording.described_in(work)
    raise refused


def _matched(asked: Asked, work: Path) -> dict[str, str]:
    """A recorded client's name to its name in the table."""
    given = asked.given["clients"]
    known, dataset = _described(asked, work), asked.dataset
    structures = asked.structures([*given.values()], ["records"])
    if (held := structures[0].description.data.held_out) is not None:
        dataset = dataset.trained(held)
    table = dataset.by_client()
    seen = [replace(s, seen=Seen.of(s.recipe, table)) for s in structures]
    found = who_is_who(seen, messages(known, [*given.values()], rounds=1))
    return {who: list(table)[number] for who, number in zip(given, found, strict=True)}


def _best_split(
    best: Fitted, asked: Asked, splits: Sequence[HeldOut], names: Sequence[str], heard: Messages
) -> int:
    """Which way of holding records out explains the messages best under this recipe; 0 if none is
    asked about."""
    found, some = [], effort(heard, [len(y) for y in best.structure.seen.labels]).heard
    for held in splits:
        data = best.structure.description.data.model_copy(update={"held_out": held})
        told = best.structure.description.model_copy(update={"data": data})
        ready = asked.ready(told)
        structure = replace(
            best.structure, seen=Seen.of(ready.recipe, {c: ready.clients[c] for c in names})
        )
        found.append(weighed(replace(best, structure=structure), some, 2 * SOME).evidence)
    return int(np.argmax(found)) if found else 0


def messages(recording: Recording, names: Sequence[str], rounds: int = ROUNDS) -> Messages:
    """Some messages of these clients, from their first to their last."""
    parts = []
    for number, name in enumerate(names):
        link = observe(recording, _LINK, LOCAL_MODEL, name).know(Link)
        link = only(link, spread(len(link), rounds))
        added = link.updates() if link.gradients else -link.updates()
        parts.append((link.sent, added, rounding(link), np.full(len(link), number)))
    return Messages(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _some(recording: Recording) -> list[str]:
    """A few clients who hold records and took part, of all sizes."""
    truth = recording.truth()
    heard = {who for e in recording.rounds for way, who in e.spans if way == "returned"}
    there = sorted((c for c in truth if c in heard), key=lambda c: len(truth[c]))
    if not there:
        raise FixConfig(f"{recording.path}: nobody of whom there are records took part")
    return [there[k] for k in spread(len(there), CLIENTS)]


def _winner(description: Description, recipe: Recipe) -> Description:
    """The description that says what the recipe does."""
    training: dict[str, Any] = {
        "algorithm": recipe.algorithm,
        "learning_rate": recipe.learning_rate,
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size or 0,
        "optimiser": recipe.optimiser.model_dump(),
        "loss": recipe.loss,
    }
    content = description.model_dump(exclude_defaults=True) | {"training": training}
    content["model"] |= recipe.model.choices
    return Description.model_validate(content)

"""What does a recording of a stranger's app show, given the clients' records?

Every way in which the records may have entered the model (`variants`) is described as an audit
would be told of it; then recipes are tried (`search`), and the best is checked as every audit
checks its recipe: client by client, against replays of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from overheard.attacks.wire import spread
from overheard.errors import FixConfig
from overheard.evaluation.record import Replay
from overheard.evaluation.replay import replays
from overheard.federation.config import DataConfig
from overheard.federation.recorders.described import Description
from overheard.identify.clients import who_is_who
from overheard.identify.search import Fitted, search
from overheard.identify.variants import described, messages, structures
from overheard.programs.recipe import Dense, Recipe
from overheard.transcript.store import Recording

CLIENTS = 3
"""Clients whose messages are looked at, of all sizes."""


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
    if named := who_is_who(recording, given, work / "clients", trust_code):
        given = {**given, "clients": named}
    told = [*described(recording, given, work / "variants", trust_code)]
    names = _some(told[0].recording)
    of = [(structure, known) for known in told for structure in structures(known, names)]
    ranking = tuple(search([structure for structure, _ in of], messages(told[0].recording, names)))
    best = ranking[0]
    known = next(known for structure, known in of if structure is best.structure)
    truth = known.recording.truth()
    fits = replays(known.recording, best.recipe, truth, list(truth))
    return Found(ranking, _winner(known.description, best.recipe), fits)


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
    if isinstance(recipe.model, Dense) and recipe.model.hidden and content["model"].get("name"):
        content["model"]["activation"] = recipe.model.activation
    return Description.model_validate(content)

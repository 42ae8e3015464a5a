"""How did the clients of a recording train, given the table of their records?

Every way in which records may have entered the model is described as an audit would be told of it
(`Asked.structures`); recipes are tried on a few clients (`search`); and the best is checked as
every audit checks its recipe, on all clients, against replays of itself. What it cannot settle it
lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.optimize import linear_sum_assignment

from overheard.attacks.client import rounding, spread
from overheard.data.dataset import Dataset, HeldOut
from overheard.errors import FixConfig, OverheardError
from overheard.evaluation.record import Replay
from overheard.evaluation.replay import certain, replays
from overheard.federation.federation import Federation
from overheard.federation.plan import load_data
from overheard.identify import search as searching
from overheard.identify.search import USUAL, Fitted, Messages, Options, Structure, search
from overheard.programs.program import Exchange, Program
from overheard.programs.records import encode
from overheard.recorders import describe as descriptions
from overheard.recorders.template import possible
from overheard.transcript import knowledge as known
from overheard.transcript.messages import releases_arrays
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import Threat
from overheard.transcript.view import observe

DRAWN = (("scikit-learn", 42), ("scikit-learn", 0), ("scikit-learn", 1), ("datasets", 42),
         ("datasets", 0), ("order", 42), ("pandas", 200), ("pandas", 42))  # fmt: skip
"""How a client may have drawn the records that it held out."""
_LINK = Threat("identify", frozenset({known.Messages}), "")


@dataclass(frozen=True)
class Asked:
    """A recording with the table of its clients' records, and what is known of its description."""

    recording: Recording
    dataset: Dataset
    given: Mapping[str, Any]
    trust_code: bool = False

    def saying(self, split: HeldOut | None, clients: Mapping[str, str]) -> Asked:
        """With what clients held out, and who is who."""
        data = {**self.given["data"], "held_out": split and split.model_dump()}
        return replace(self, given={**self.given, "clients": clients, "data": data})

    def settled(self, description: Federation) -> Any:
        """The federation as it is described, with all clients of the table."""
        dataset = replace(self.dataset, task=description.data.task or self.dataset.task)
        return descriptions.settled(self.recording, description, dataset, self.trust_code)[1]

    def structures(self, names: Sequence[str], like: str = "") -> list[Structure]:
        """Every variant that fits table and messages, as these clients would have trained; with
        every activation and loss that goes with it. ``like``: only that of these words."""
        made: dict[str, Structure] = {}
        refused: list[OverheardError] = []
        for about, description in possible(self.recording, self.given):
            if not like.startswith(about if like else ""):
                continue
            try:
                ready = self.settled(description)
            except OverheardError as error:
                refused.append(error)
                continue
            recipe, records = ready.recipe, {c: r for c, r in ready.clients.items() if c in names}
            if len(records) < len(names):  # nobody knows yet who was recorded
                continue
            inputs = tuple(encode(recipe.of(c).encoding, records[c]) for c in names)
            labels = tuple(recipe.target.encode(records[c]) for c in names)
            losses = ("cross_entropy",) if recipe.target.classes else ("squared_error", "huber")
            for loss, model in product(losses, recipe.model.others()):
                words = ", ".join([about, loss, *model.choices.values()])
                chosen = recipe.model_copy(update={"loss": loss, "model": model})
                one = Structure(words, chosen, inputs, labels, records, description)
                if like in ("", words):  # two are one where there is nothing in which they differ
                    made.setdefault(chosen.model_dump_json(), one)
        if not made:
            raise refused[0]
        return list(made.values())


def held_out(
    rows: Sequence[int], reported: Sequence[float], options: Options = USUAL
) -> list[HeldOut | None]:
    """How clients of so many records may have come to train on what they report: the number of
    records or else, as ``len(loader)`` is, of batches."""
    for sizes in ([1], [size for size in options.batches if size]):
        shares = [
            share
            for share, size in product((0.0, *options.held_out), sizes)
            if [np.ceil((n - np.ceil(share * n)) / size) for n in rows] == list(reported)
        ]
        if shares:
            break
    if np.isnan(reported).all():  # nobody said how many
        shares = [0.0, *options.held_out]
    drawn: Any = product(dict.fromkeys(share for share in shares if share), DRAWN)
    found = [HeldOut(share=share, by=by, seed=seed) for share, (by, seed) in drawn]
    return [*([] if found and 0.0 not in shares else [None]), *found]


@dataclass(frozen=True)
class Found:
    """Recipes, best first; what an audit is to be told of the best; whether it fits each client."""

    ranking: tuple[Any, ...]
    description: Federation
    fits: tuple[Replay, ...]

    @property
    def unfit(self) -> tuple[str, ...]:
        return tuple(r.client for r in self.fits if r.outcome == "does not fit")

    @property
    def explained(self) -> bool:
        """Whether the best recipe is what clients did, as far as replays tell."""
        return any(r.outcome == "fits" for r in self.fits) and not self.unfit

    @property
    def open(self) -> tuple[Fitted, ...]:
        """Others that explain the messages as well, or nearly; or, where the best does not fit,
        come closer without chance."""
        best, *others = self.ranking
        closer = [f for f in others if certain(f.recipe) and f.residual < best.residual]
        return tuple(f for f in others if f.as_good_as(best) or (self.unfit and f in closer))


def identify(
    recording: Recording,
    given: Mapping[str, Any],
    work: Path,
    trust_code: bool = False,
    options: Options = USUAL,
) -> Found:
    """The recipe that the recording shows. ``given``: what is known of the description, its
    [data] at least; ``work``: a folder for the time being."""
    table = {k: v for k, v in given["data"].items() if k != "task"}
    any_model = {"model": {"name": "linear"}, "training": {"learning_rate": 1.0}}
    dataset = load_data(Federation.model_validate({"data": table, **any_model}))
    sizes = {c: len(records) for c, records in dataset.by_client().items()}
    reported = {c: e.weights.get(c, np.nan) for e in recording.rounds
                for way, c in e.spans if way == "returned"}  # fmt: skip
    if not reported:
        raise FixConfig(
            f"{recording.path}: holds sums of clients and no client's own message, so how each "
            "trained is not found by replay: fill in what `overheard init` writes without --data, "
            "and audit with --threat secure-server"
        )
    asked, named = Asked(recording, dataset, given, trust_code), dict(given.get("clients", {}))
    unknown = not named and not set(reported) & set(sizes)
    if unknown and len(reported) <= len(sizes) <= options.pairs / len(reported):
        named = dict(zip(reported, sizes, strict=False))  # anybody, for the time being
    there = [c for c in reported if named.get(c, c) in sizes]
    if not there:
        raise FixConfig(
            f"none of the {len(reported)} recorded clients is in the column {dataset.client!r}, "
            f"which has {len(sizes)}: record with its names, or say who is who in [clients]"
        )
    rows = sorted(sizes[named.get(c, c)] for c in there)
    splits = held_out(rows, sorted(reported[c] for c in there), options)
    if releases_arrays(recording.payload):
        return _program(asked, splits, named, unknown, work)
    if unknown:
        everybody = asked.saying(splits[0], named).structures([*sizes])
        anybody = _described(asked, everybody[0].description, work / "anybody")
        told = messages(anybody, [*named.values()], 1)
        numbers = searching.who_is_who(everybody, told)
        named = {c: list(sizes)[number] for c, number in zip(named, numbers, strict=True)}
    by_size = sorted((named.get(c, c) for c in there), key=sizes.__getitem__)
    names = [by_size[k] for k in spread(len(by_size), options.clients)]
    likeliest = asked.saying(splits[0], named)
    structures = likeliest.structures(names)
    known = _described(asked, structures[0].description, work / "known")
    told = messages(known, names, options.rounds)
    best = (ranking := search(structures, told, options))[0]
    if len(splits) > 1:
        likely = []
        for split in splits:
            (other,) = asked.saying(split, named).structures(names, best.structure.words)
            likely.append(searching.weighed(replace(best, structure=other), told, 64).evidence)
        likeliest = asked.saying(splits[int(np.argmax(likely))], named)
        best = (ranking := search(likeliest.structures(names), told, options))[0]
    (whole,) = likeliest.structures(by_size, best.structure.words)
    fits = replays(known, best.recipe, whole.records, list(whole.records))
    return Found(tuple(ranking), _winner(best), fits)


class Answered(NamedTuple):
    """A program, how far its answers are from the messages (0 but for rounding), and whose records
    are nearest to each client's."""

    words: str
    description: Federation
    residual: float
    who: Mapping[str, str]
    evidence: float = 0.0


def _program(asked: Asked, splits: Sequence[HeldOut | None], named: Mapping[str, str],
             unknown: bool, work: Path) -> Found:  # fmt: skip
    """The program that answers as the clients did. Nothing is random in it: the first that gives
    the first message of the first client is it, and who is who follows from all of them."""
    recording, rng = asked.recording, np.random.default_rng(0)
    released = {
        client: [Exchange(one.number, *ways) for one, *ways in recording.releases(client)]
        for client in recording.clients
    }

    def answered(
        about: str, description: Federation, clients: Sequence[str], most: int
    ) -> Answered:
        ready = asked.settled(description)
        program, records = cast(Program, ready.told), ready.clients
        off = np.ones((len(clients), len(records)))
        for (row, client), (column, name) in product(enumerate(clients), enumerate(records)):
            if unknown or name == named.get(client, client):
                said = program.assembled(released[client])[:most]
                answers = [program.respond(one.sent, records[name], rng) for one in said]
                gaps = (program.distance(x.returned, y) for x, y in zip(said, answers, strict=True))
                off[row, column] = min(1.0, max(gaps))
        rows, columns = linear_sum_assignment(off)
        who = {clients[r]: list(records)[c] for r, c in zip(rows, columns, strict=True)}
        return Answered(about, description, float(off[rows, columns].max()), who)

    tried: list[Answered] = []
    refused: list[Exception] = []
    for given in (asked.saying(split, named).given for split in splits):
        for about, description in possible(recording, given):
            try:
                tried.append(answered(about, description, recording.clients[:1], 1))
            except (OverheardError, ArithmeticError) as error:
                refused.append(error)
            if tried and not tried[-1].residual:
                break
        if tried and not tried[-1].residual:
            break
    if not tried:
        unknown_kind = FixConfig(f"{recording.path}: no program that is known sends such messages")
        raise next(iter(refused), unknown_kind)
    best = min(tried, key=lambda one: one.residual)
    best = answered(best.words, best.description, recording.clients, 8)
    found = best.description
    if unknown:
        found = found.model_copy(update={"clients": dict(best.who)})
    known, ready = _described(asked, found, work / "known"), asked.settled(found)
    fits = replays(known, ready.told, ready.clients, list(best.who.values()))
    return Found((best,), found, fits)


def _described(asked: Asked, description: Federation, work: Path) -> Recording:
    """The recording by the table's names, however its clients trained."""
    descriptions.describe(asked.recording, description, work, asked.trust_code)
    return asked.recording.described_in(work)


def messages(recording: Recording, names: Sequence[str], rounds: int) -> Messages:
    """Some messages of these clients, from their first to their last."""
    parts = []
    for number, name in enumerate(names):
        link = observe(recording, _LINK, LOCAL_MODEL, name).know(known.Messages)
        link = link.only(spread(len(link), rounds))
        added = link.updates() if link.gradients else -link.updates()
        parts.append((link.sent, added, rounding(link), np.full(len(link), number)))
    return Messages(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _winner(best: Fitted) -> Any:
    """The description that says what the recipe does."""
    recipe, told = best.recipe, best.structure.description
    fields = ("algorithm", "learning_rate", "epochs", "batch_size", "optimiser", "loss")
    training = told.training.model_copy(update={name: getattr(recipe, name) for name in fields})
    model = told.model.model_copy(update=recipe.model.choices)
    return told.model_copy(update={"training": training, "model": model})

"""How did the clients of a recording train, given the table of their records?

Every way in which records may have entered the model is described as an audit would be told of it
(`Asked.structures`); recipes are tried on a few clients (`search`); and the best is checked as
every audit checks its recipe, on all clients, against replays of itself. What it cannot settle it
lists. One limit of time holds for everything but that check (`search.Tries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.optimize import linear_sum_assignment

from overheard.attacks.client import rounding, spread
from overheard.data.dataset import Dataset, HeldOut
from overheard.errors import FixConfig, OverheardError
from overheard.evaluation.record import Replay
from overheard.evaluation.replay import certain, replays
from overheard.federation.federation import Federation
from overheard.federation.plan import Plan, load_data
from overheard.identify import search as searching
from overheard.identify.search import USUAL, Messages, Options, Structure, Tries, search
from overheard.programs.program import Exchange, Program
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
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
_Way = tuple[str, Federation]


@dataclass(frozen=True)
class Asked:
    """A recording with the table of its clients' records, the descriptions that it may have, each
    in words, and what all of them share: who is who, as far as names do not tell, and what clients
    held out."""

    recording: Recording
    dataset: Dataset
    ways: Sequence[_Way]
    named: Mapping[str, str]
    held_out: HeldOut | None
    work: Path
    trust_code: bool = False

    def settled(self, description: Federation) -> tuple[Federation, Plan]:
        """The whole description, and the federation so, with all clients of the table."""
        data = description.data.model_copy(update={"held_out": self.held_out})
        shared = {"data": data, "clients": dict(self.named)}
        whole = description.model_copy(update=shared)
        dataset = replace(self.dataset, task=data.task or self.dataset.task)
        return whole, descriptions.settled(self.recording, whole, dataset, self.trust_code)[1]

    def structures(self, names: Sequence[str], like: str = "") -> list[Structure]:
        """Every variant that fits table and messages, as these clients would have trained; with
        every activation and loss that goes with it. ``like``: only that of these words."""
        made: dict[str, Structure] = {}
        refused: list[OverheardError] = []
        for about, description in self.ways:
            if not like.startswith(about if like else ""):
                continue
            try:
                whole, ready = self.settled(description)
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
                one = Structure(words, chosen, inputs, labels, records, whole)
                if like in ("", words):  # two are one where there is nothing in which they differ
                    made.setdefault(chosen.model_dump_json(), one)
        if not made:
            raise refused[0]
        return list(made.values())

    def described(self, description: Federation) -> Recording:
        """The recording by the table's names, however its clients trained."""
        rmtree(self.work, ignore_errors=True)
        descriptions.describe(self.recording, description, self.work, self.trust_code)
        return self.recording.described_in(self.work)


def held_out(
    rows: Sequence[int], reported: Sequence[float], options: Options = USUAL
) -> list[HeldOut | None]:
    """How clients of so many records may have come to train on what they report: the number of
    records or else, as ``len(loader)`` is, of batches; nan: nobody said how many."""
    for sizes in ([1], [size for size in options.batches if size]):
        shares = [
            share
            for share, size in product((0.0, *options.held_out), sizes)
            if [np.ceil((n - np.ceil(share * n)) / size) for n in rows] == list(reported)
            or np.isnan(reported).all()
        ]
        if shares:
            break
    drawn: Any = product(dict.fromkeys(share for share in shares if share), DRAWN)
    found = [HeldOut(share=share, by=by, seed=seed) for share, (by, seed) in drawn]
    return [*([] if found and 0.0 not in shares else [None]), *found]


class Answered(NamedTuple):
    """A program, and how far its answers are from the messages: 0 but for rounding."""

    words: str
    description: Federation
    residual: float
    evidence: float = 0.0


@dataclass(frozen=True)
class Found:
    """Recipes, best first; whether the best fits each client; and what there was no time for."""

    ranking: tuple[Any, ...]
    fits: tuple[Replay, ...]
    skipped: tuple[str, ...]

    @property
    def description(self) -> Federation:
        """What an audit is to be told of the best."""
        return cast(Federation, self.ranking[0].description)

    @property
    def unfit(self) -> tuple[str, ...]:
        return tuple(r.client for r in self.fits if r.outcome == "does not fit")

    @property
    def explained(self) -> bool:
        """Whether the best recipe is what clients did, as far as replays tell."""
        return any(r.outcome == "fits" for r in self.fits) and not self.unfit

    @property
    def open(self) -> tuple[Any, ...]:
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
    tries = Tries(options)
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
    named = dict(given.get("clients", {}))
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
    ways, work = [*possible(recording, given)], work / "described"
    asked = Asked(recording, dataset, ways, named, splits[0], work, trust_code)
    find = _programs if releases_arrays(recording.payload) else _recipes
    ranking, told, records = find(asked, splits, unknown, tries)
    recorded = asked.described(ranking[0].description)
    fits = replays(recorded, told, records, list(records))
    return Found(tuple(ranking), fits, tuple(tries.skipped))


_Ranked = tuple[Sequence[Any], Recipe | Program, Mapping[str, Records]]


def _recipes(
    asked: Asked, splits: Sequence[HeldOut | None], unknown: bool, tries: Tries
) -> _Ranked:
    """Recipes ranked, the best, and the records on which all clients are to be replayed so."""
    table = asked.dataset.by_client()
    if unknown:
        everybody = asked.structures([*table])
        anybody = asked.described(everybody[0].description)
        pairs = searching.who_is_who(
            everybody, messages(anybody, [*asked.named.values()], 1), tries
        )
        who = (list(table)[number] for number in pairs)
        asked = replace(asked, named=dict(zip(asked.named, who, strict=True)))
    there = {asked.named.get(c, c) for c in asked.recording.clients} & set(table)
    by_size = sorted(there, key=lambda c: (len(table[c]), c))
    names = [by_size[k] for k in spread(len(by_size), tries.options.clients)]

    @cache
    def structures(split: HeldOut | None, words: str) -> list[Structure]:
        return replace(asked, held_out=split).structures(names, words)

    some = structures(splits[0], "")[0].description
    observed = messages(asked.described(some), names, tries.options.rounds)
    best, *others = search(structures, observed, tries, splits)
    split = best.description.data.held_out
    (whole,) = replace(asked, held_out=split).structures(by_size, best.structure.words)
    return [best, *others], best.recipe, whole.records


def _programs(
    asked: Asked, splits: Sequence[HeldOut | None], unknown: bool, tries: Tries
) -> _Ranked:
    """The program that answers as the clients did. Nothing is random in it: the first that gives
    the first message of the first client is it, and who is who follows from all of them."""
    recording, rng = asked.recording, np.random.default_rng(0)
    released = {
        client: [Exchange(one.number, *ways) for one, *ways in recording.releases(client)]
        for client in recording.clients
    }

    def gaps(ready: Plan, client: str, most: int) -> list[float]:
        """How far the first answers of a client are from those on each client's records."""
        program, off = cast(Program, ready.told), []
        some = program.assembled(released[client])[:most]
        for name, records in ready.clients.items():
            may = unknown or name == asked.named.get(client, client)
            answers = [program.respond(x.sent, records, rng) for x in some if may]
            apart = (program.distance(x.returned, y) for x, y in zip(some, answers, strict=False))
            off.append(min(1.0, max(apart, default=1.0)))
        return off

    tried: list[tuple[float, str, Federation, Plan]] = []
    refused: list[Exception] = []
    for split, way in tries.of("programs and what they held out", product(splits, asked.ways), 1):
        try:
            whole, ready = replace(asked, held_out=split).settled(way[1])
            tried.append((min(gaps(ready, recording.clients[0], 1)), way[0], whole, ready))
        except (OverheardError, ArithmeticError) as error:
            refused.append(error)
        if tried and not tried[-1][0]:
            break
    if not tried:
        unknown_kind = FixConfig(f"{recording.path}: no program that is known sends such messages")
        raise next(iter(refused), unknown_kind)
    _, about, whole, ready = min(tried, key=lambda one: one[0])
    off = np.array([gaps(ready, client, 8) for client in recording.clients])
    rows, columns = linear_sum_assignment(off)
    names = [[*ready.clients][column] for column in columns]
    who = dict(zip((recording.clients[row] for row in rows), names, strict=True))
    whole = whole.model_copy(update={"clients": who if unknown else whole.clients})
    best = Answered(about, whole, float(off[rows, columns].max()))
    return [best], ready.told, {name: ready.clients[name] for name in names}


def messages(recording: Recording, names: Sequence[str], rounds: int) -> Messages:
    """Some messages of these clients, from their first to their last."""
    parts = []
    for number, name in enumerate(names):
        link = observe(recording, _LINK, LOCAL_MODEL, name).know(known.Messages)
        link = link.only(spread(len(link), rounds))
        added = link.updates() if link.gradients else -link.updates()
        parts.append((link.sent, added, rounding(link), np.full(len(link), number)))
    return Messages(*(np.concatenate(part) for part in zip(*parts, strict=True)))

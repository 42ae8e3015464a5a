"""Before anything is sent: what would this client's updates reveal, and what would stop it?

The client's rounds are simulated, or the updates that it has made are read; then the audit itself
is let loose on them (`overheard.guard.dry_run`), with every question that the audit of this config
would ask. The answer is about what such a client would reveal to the attacks that were tried. It
guarantees nothing.
"""

from __future__ import annotations

import time
import zipfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from overheard.errors import FixConfig, FixData, OverheardError
from overheard.evaluation.checkpoint import Progress, silent
from overheard.federation.defences.contract import chain
from overheard.federation.defences.drop_column import DropColumn
from overheard.federation.defences.gaussian import Gaussian
from overheard.federation.federation import Federation
from overheard.federation.plan import Plan, plan
from overheard.foreign.files import opened
from overheard.foreign.limits import check
from overheard.foreign.shown import short
from overheard.guard.dry_run import Arrays, Round, recorded, simulated
from overheard.guard.exposure import Answer, Exposure, Limits, answer_of, worst_draw, worst_of
from overheard.programs.recipe import Recipe
from overheard.questions.question import grouped, question_named
from overheard.recorders.folder import read_arrays


@dataclass(frozen=True)
class Search:
    """What is tried against a leak, of each kind from the smallest: Gaussian ``noises`` in units of
    an update's typical coordinate, local ``epochs``, sizes of ``batches``. ``draws``: dry runs of a
    secret of which the first two give a hint that it leaks."""

    noises: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    epochs: tuple[int, ...] = (2, 5, 10)
    batches: tuple[int, ...] = (64, 32, 8)
    draws: int = 4


@dataclass(frozen=True)
class Change:
    """One way to leak less: what it is called, and, once it was measured, what is left.

    ``strength`` orders the changes of a kind from the smallest.
    """

    kind: str
    strength: float
    words: str
    exposures: tuple[Exposure, ...] = ()

    def answer(self, limits: Limits) -> Answer:
        return answer_of(self.exposures, limits)


@dataclass(frozen=True)
class Preflight:
    """What a client's updates would reveal, secret by secret, and the changes that were tried.

    ``rounds`` were listened to, of ``configured`` ones. ``simulated``: the updates were simulated,
    not read. ``notes``: what this does not cover. ``unasked``: why an ``ok`` cannot be said.
    ``seconds``: what it took to simulate the rounds as configured, and to audit them.
    """

    client: str
    rounds: int
    configured: int
    limits: Limits
    exposures: tuple[Exposure, ...]
    changes: tuple[Change, ...] = ()
    simulated: bool = True
    notes: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def answer(self) -> Answer:
        """``ok``: every secret is below the limits, by attacks that worked, and nothing was left
        unasked."""
        result = answer_of(self.exposures, self.limits)
        return "not known" if result == "ok" and self.unasked else result

    @property
    def worst(self) -> Exposure:
        return worst_of(self.exposures, self.limits)

    def smallest(self) -> list[Change]:
        """Of each kind of change the smallest that gets below the limits."""
        enough = [c for c in self.changes if c.answer(self.limits) == "ok"]
        return list({c.kind: c for c in reversed(enough)}.values())[::-1]


def preflight(  # noqa: PLR0913  # a command with its options
    config: Federation,
    client: str = "",
    limits: Limits = Limits(),
    rounds: int | None = None,
    targets: Sequence[str] = (),
    changes: bool = True,
    progress: Progress = silent,
    search: Search = Search(),
) -> Preflight:
    """Audit a client's own updates, and look for what would bring them below the limits.

    Without a name it is the config's only client. ``rounds``: how many are listened to, by default
    as many as the config trains. ``targets``: secrets to ask about, by default all that the audit
    would.

    Of each kind of change (noise, smaller batches, more local epochs, columns left out) the
    smallest that helps is looked for by halving, which takes for granted that more of it never
    leaks more. What is named is measured whole; a change is given up at the first dry run in which
    a secret still leaks too much, or is not known.
    """
    ready, asked = _asked(config, client, limits, rounds, targets)
    progress("as configured", 0, 1)
    begin = time.perf_counter()
    result, typical = _dry_runs(ready, asked, targets, search)
    made = replace(asked, exposures=result, seconds=time.perf_counter() - begin)
    if not changes or answer_of(result, limits) == "ok" or not isinstance(ready.program, Recipe):
        return made

    def measured(settings: dict[str, Any]) -> tuple[Exposure, ...]:
        changed = plan(ready.config.model_copy(update=settings))
        return _dry_runs(changed, asked, targets, search)[0]

    candidates = _candidates(ready, made, typical, search)
    return replace(made, changes=tuple(_tried(candidates, measured, limits, progress)))


def preflight_updates(
    config: Federation,
    updates: Sequence[Path],
    client: str = "",
    limits: Limits = Limits(),
    rounds: int | None = None,
    targets: Sequence[str] = (),
) -> Preflight:
    """Audit real updates, from files (see `read_update`), and whether they are this config's; the
    rest as `preflight` has it."""
    ready, asked = _asked(config, client, limits, rounds, targets)
    begin = time.perf_counter()
    with recorded(ready, asked.client, [read_update(Path(f), ready) for f in updates]) as run:
        result = tuple(run.exposures(limits, targets))
    made = replace(asked, exposures=result, rounds=len(updates), simulated=False)
    if made.rounds < asked.rounds:
        few = f"{made.rounds} of {asked.rounds} rounds were given, and what rounds reveal adds up; "
        alone = f"--rounds {made.rounds} judges these alone"
        made = replace(made, unasked=(*asked.unasked, few + alone))
    return replace(made, seconds=time.perf_counter() - begin)


def _asked(
    config: Federation, client: str, limits: Limits, rounds: int | None, targets: Sequence[str]
) -> tuple[Plan, Preflight]:
    """The client's plan, without what hides its updates in a sum, and the answer before anything
    was measured: what it will not cover."""
    ready, configured = plan(config), config.training.rounds
    wanted = configured if rounds is None else rounds
    check("rounds", wanted, "rounds", FixConfig)
    alone = tuple(d for d in config.defence if "total" not in d.hooks())
    name = next(iter(ready.clients)) if not client and len(ready.clients) == 1 else client
    if name not in ready.clients:
        given = f"no client {client!r}" if client else "there are several clients; name yours"
        raise FixConfig(f"{given}; the clients are {', '.join(ready.clients)}")
    made = Preflight(name, wanted, configured, limits, ())
    if (summing := chain(*config.defence).summing) is not None:
        hides = f"{summing.name} hides your update among the others'; it is judged as if it were "
        made = replace(made, notes=(f"{hides}observed by itself",))
    if ready.properties is not None and not targets:
        whole = "[property] is asked of the whole federation and not here: simulate it and audit it"
        made = replace(made, unasked=(f"{whole} as 'secure-server'",))
    return replace(ready, config=config.model_copy(update={"defence": alone})), made


def _dry_runs(
    ready: Plan, asked: Preflight, targets: Sequence[str], search: Search
) -> tuple[tuple[Exposure, ...], float]:
    """What the audit finds of a dry run; of what is not settled by it, of a second; and of what
    they give a hint of, of all. And the typical size of an update's coordinate."""
    draws: dict[str, list[Exposure]] = {}
    limits, typical = asked.limits, 0.0
    for draw in range(search.draws):
        with simulated(ready, asked.client, asked.rounds, draw) as run:
            for one in run.exposures(limits, targets):
                draws.setdefault(one.name, []).append(one)
            typical = typical or (run.typical() if isinstance(ready.program, Recipe) else 0.0)
        result = tuple(worst_draw(same) for same in draws.values())
        unsettled = [e for e in result if e.attack and not e.doubt and not e.beyond(limits)]
        if not unsettled or (draw == 1 and not any(e.unknown(limits) for e in unsettled)):
            break
    return result, typical


Candidate = tuple[Change, dict[str, Any]]
"""A change, and what it sets in the config."""


def _tried(
    candidates: Sequence[Candidate],
    measured: Callable[[dict[str, Any]], tuple[Exposure, ...]],
    limits: Limits,
    progress: Progress,
) -> list[Change]:
    """The changes that were measured, kind by kind, the smallest of each first."""
    tried: dict[str, Change] = {}
    total = 1 + len(candidates)

    def enough(candidate: Candidate) -> bool:
        change, settings = candidate
        progress(change.words, len(tried) + 1, total)
        try:
            tried[change.words] = replace(change, exposures=measured(settings))
        except OverheardError:  # it does not train so, or no attack reads what comes of it
            return False
        return tried[change.words].answer(limits) == "ok"

    for same in grouped(candidates, lambda one: one[0].kind).values():
        bisect_left(same, True, key=enough)
    progress("done", total, total)
    return [tried[change.words] for change, _ in candidates if change.words in tried]


def _candidates(ready: Plan, made: Preflight, typical: float, how: Search) -> list[Candidate]:
    """What is tried: of each kind the changes, from the smallest."""
    own, recipe, config = len(ready.clients[made.client]), ready.recipe, ready.config
    found: list[Candidate] = []
    for n in how.noises:
        sd = n * typical
        words = f"Gaussian noise of {n:g} times the update's typical coordinate (sd {sd:.3g})"
        noisy = {"defence": (*config.defence, Gaussian(sd=sd))}
        found.append((Change("noise", n, words), noisy))
    if not recipe.sends_gradient and recipe.steps is None:
        smaller = [b for b in how.batches if b < min(recipe.batch_size or own, own)]
        longer = [e for e in how.epochs if e > recipe.epochs]
        ways = [(Change("batch", 1 / b, f"batches of {b}"), {"batch_size": b}) for b in smaller]
        ways += [(Change("epochs", e, f"{e} local epochs"), {"epochs": e}) for e in longer]
        train = config.training.model_copy
        found += [(change, {"training": train(update=changes)}) for change, changes in ways]
    seen = recipe.encoding.columns()
    leaking = [e for e in made.exposures if e.answer(made.limits) != "ok"]
    removable = [e.attribute for e in leaking if question_named(e.question).removable]
    leaks = [column for name in removable for column in ready.attributes[name].columns]
    columns = tuple(column for column in dict.fromkeys(leaks) if column in seen)
    if columns and len(columns) < len(seen):
        dropped = {"defence": (DropColumn(columns=columns), *config.defence)}
        words = f"leaving {', '.join(columns)} out of the model"
        found.append((Change("drop", len(columns), words), dropped))
    return found


def read_update(file: Path, ready: Plan) -> Round:
    """One round from a file that the client wrote, safetensors or npz, bounded: ``sent/NAME`` are
    the arrays of the model that it was sent, ``returned/NAME`` what it is about to return, under
    the names of the config's model."""
    arrays = _npz(file) if file.suffix == ".npz" else read_arrays(file)
    wanted, ways = {n: tuple(shape) for n, shape in ready.recipe.model.layout()}, []
    for way in ("sent", "returned"):
        there = {n.removeprefix(f"{way}/"): a for n, a in arrays.items() if n.startswith(f"{way}/")}
        if {name: array.shape for name, array in there.items()} != wanted:
            raise FixData(
                f"{file}: holds {short({n: a.shape for n, a in arrays.items()})} where the "
                f"config's model has {short(wanted)}; write each array of the model as '{way}/NAME'"
            )
        kinds = {str(array.dtype) for array in there.values()}
        if not kinds <= {"float32", "float64"} or len(kinds) > 1:
            raise FixData(
                f"{file}: '{way}/' is of {', '.join(sorted(kinds))}; give float32 or float64, as "
                "it is sent"
            )
        if not all(np.isfinite(array).all() for array in there.values()):
            raise FixData(f"{file}: '{way}/' holds NaN or infinity; nothing can be said of that")
        ways.append(there)
    return ways[0], ways[1]


def _npz(file: Path) -> Arrays:
    with opened(file, True, FixData) as (_, size):
        check("message_bytes", size, file, FixData)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            check("arrays", len(members), file, FixData)
            check("message_bytes", sum(m.file_size for m in members), file, FixData)
            files = {m.filename.removesuffix(".npy"): BytesIO(archive.read(m)) for m in members}
            return {name: npy.read_array(one, allow_pickle=False) for name, one in files.items()}
    except (zipfile.BadZipFile, RuntimeError, EOFError, OSError, ValueError, MemoryError) as error:
        raise FixData(f"{file}: cannot be read as npz ({short(str(error))})") from error

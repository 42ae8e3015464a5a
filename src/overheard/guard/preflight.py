"""Before anything is sent: what would this client's updates reveal, and what would stop it?

The client is rehearsed, or the updates that it has made are read; then the audit itself is let
loose on them, with every question that the audit of this config would ask. The answer is about what
a simulated client of this recipe would reveal to the attacks that were tried. It guarantees
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.evaluation.attempt import Progress, silent
from overheard.federation.config import Config
from overheard.federation.defences.contract import chain
from overheard.federation.defences.drop_column import DropColumn
from overheard.federation.defences.gaussian import Gaussian
from overheard.federation.plan import Plan, plan
from overheard.foreign.limits import check
from overheard.guard.limits import USUAL, Answer, Exposure, Limits, worse
from overheard.guard.measured import measured
from overheard.guard.rehearsal import heard_alone, rehearsed, replayed
from overheard.guard.updates import read_update
from overheard.questions.question import question_named

NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
EPOCHS = (2, 5, 10)
BATCHES = (64, 32, 8)
DRAWS = 4
"""Rehearsals of a secret of which the first two give a hint that it leaks."""


@dataclass(frozen=True)
class Change:
    """One way to leak less, measured: what it is called, how to set it, and what is left.

    ``strength`` orders the changes of a kind from the smallest. Of a change that is not enough,
    ``found`` may hold one secret only, by one attack: that was enough to see it.
    """

    kind: str
    strength: float
    words: str
    found: tuple[Exposure, ...]

    def answer(self, limits: Limits) -> Answer:
        return answer_of(self.found, limits)


@dataclass(frozen=True)
class Preflight:
    """What a client's updates would reveal, secret by secret, and the changes that were tried.

    ``rounds`` were listened to, of ``configured`` ones. ``simulated``: the updates were rehearsed,
    not read. ``notes``: what this does not cover. ``unasked``: why an ``ok`` cannot be said.
    """

    client: str
    rounds: int
    configured: int
    limits: Limits
    found: tuple[Exposure, ...]
    changes: tuple[Change, ...] = ()
    simulated: bool = True
    notes: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """``ok``: every secret is below the limits, by attacks that worked, and nothing was left
        unasked."""
        found = answer_of(self.found, self.limits)
        return "not known" if found == "ok" and self.unasked else found

    @property
    def passes(self) -> bool:
        return self.answer == "ok"

    @property
    def worst(self) -> Exposure:
        return max(self.found, key=lambda e: e.severity(self.limits))

    def smallest(self) -> list[Change]:
        """Of each kind of change the smallest that gets below the limits."""
        kinds = dict.fromkeys(change.kind for change in self.changes)
        enough = [
            next((c for c in self.changes if c.kind == k and c.answer(self.limits) == "ok"), None)
            for k in kinds
        ]
        return [change for change in enough if change is not None]


def answer_of(found: Sequence[Exposure], limits: Limits) -> Answer:
    """That of the worst secret."""
    answers = {e.answer(limits) for e in found}
    if not found:
        return "not known"
    return (
        "too much" if "too much" in answers else "not known" if len(answers) > 1 else answers.pop()
    )


def preflight(
    config: Config,
    client: str = "",
    limits: Limits = USUAL,
    rounds: int | None = None,
    targets: Sequence[str] = (),
    changes: bool = True,
    progress: Progress = silent,
) -> Preflight:
    """Audit a client's own updates, and look for what would bring them below the limits.

    Without a name it is the config's only client. ``rounds``: how many are listened to, by default
    as many as the config trains. ``targets``: secrets to ask about, by default all that the audit
    would.

    Of each kind of change (noise, smaller batches, more local epochs, columns left out) the
    smallest that helps is looked for by halving, which takes for granted that more of it never
    leaks more. What is named is measured whole; a change is given up at the first secret that
    still leaks too much, or is not known.
    """
    ready, asked = _asked(config, client, limits, rounds, targets)
    progress("as configured", 0, 1)
    found, typical = _rehearse(ready, asked.client, asked.rounds, limits, targets=targets)
    made = replace(asked, found=found)
    _refuse_nothing(found)
    if made.answer == "ok" or not changes or answer_of(found, limits) == "ok":
        return made
    return replace(made, changes=tuple(_tried(ready, made, typical, targets, progress)))


def _rehearse(
    ready: Plan, client: str, rounds: int, limits: Limits, targets: Sequence[str] = ()
) -> tuple[tuple[Exposure, ...], float]:
    """What the audit finds of a rehearsal; of what is not settled by it, of a second; and of what
    they give a hint of, of all."""
    first, typical = measured(ready, client, rehearsed(ready, client, rounds), targets=targets)
    draws = {e.name: [e] for e in first}
    for draw in range(1, DRAWS):
        found = [worse(same) for same in draws.values()]
        unsettled = [e for e in found if np.isfinite(e.value) and e.attack]
        unsettled = [e for e in unsettled if not e.doubt and not e.beyond(limits)]
        asked = [e for e in unsettled if draw == 1 or len(draws[e.name]) > 2 or e.hint]
        if not asked:
            break
        keys = list(dict.fromkeys(e.target for e in asked))
        more, _ = measured(ready, client, rehearsed(ready, client, rounds, draw), targets=keys)
        for exposure in more:
            if exposure.name in {e.name for e in asked}:
                draws[exposure.name].append(exposure)
    return tuple(worse(same) for same in draws.values()), typical


def preflight_updates(
    config: Config,
    updates: Sequence[Path],
    client: str = "",
    limits: Limits = USUAL,
    rounds: int | None = None,
    targets: Sequence[str] = (),
) -> Preflight:
    """Audit real updates, from files (see `overheard.guard.updates`), and whether they are this
    config's; the rest as `preflight` has it."""
    ready, asked = _asked(config, client, limits, rounds, targets)
    messages = [read_update(Path(file), ready.recipe) for file in updates]
    found, _ = measured(ready, asked.client, messages, targets=targets)
    _refuse_nothing(found)
    strange = [replayed(ready, asked.client, sent, returned) for sent, returned in messages]
    unasked = [f"{file}: {why}" for file, why in zip(updates, strange, strict=True) if why]
    given = len(messages)
    if given < asked.rounds:
        unasked.append(
            f"{given} of {asked.rounds} rounds were given, and what rounds reveal adds up; "
            f"--rounds {given} judges these alone"
        )
    unasked = [*asked.unasked, *unasked]
    return replace(asked, rounds=given, found=found, simulated=False, unasked=tuple(unasked))


def _asked(
    config: Config, client: str, limits: Limits, rounds: int | None, targets: Sequence[str]
) -> tuple[Plan, Preflight]:
    """The client's plan, as it is heard by itself, and the answer before anything was measured."""
    ready = plan(config)
    name = _only(ready, client)
    configured = config.training.rounds
    wanted = configured if rounds is None else rounds
    check("rounds", wanted, "rounds", FixConfig)
    notes, unasked = _left_out(ready, targets)
    made = Preflight(name, wanted, configured, limits, (), notes=notes, unasked=unasked)
    return heard_alone(ready), made


def _refuse_nothing(found: Sequence[Exposure]) -> None:
    if not found:
        raise FixConfig(
            "the audit of this config asks nothing that can be scored; set audit.attributes, "
            "audit.label or audit.membership"
        )


def _left_out(ready: Plan, targets: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the answer does not cover; and what the audit would ask that is not asked here."""
    notes, unasked = [], []
    summing = chain(*ready.config.defence).summing
    if summing is not None:
        notes.append(
            f"{summing.name} hides your update among the others'; it is judged as if it were heard "
            "by itself"
        )
    if ready.properties is not None and not targets:
        unasked.append(
            "[property] is asked of the whole federation and not here: simulate it and audit it as "
            "'secure-server'"
        )
    return tuple(notes), tuple(unasked)


def _tried(
    ready: Plan, made: Preflight, typical: float, targets: Sequence[str], progress: Progress
) -> Iterator[Change]:
    """The changes that were measured, kind by kind, the smallest of each first."""
    limits = made.limits
    leaking = [e for e in made.found if e.answer(limits) != "ok"]
    kinds = dict(_kinds(ready, made.client, leaking, typical))
    total = 1 + sum(map(len, kinds.values()))
    done = 1
    for kind, steps in kinds.items():
        tried: dict[int, Change] = {}
        low, high = 0, len(steps)
        while low < high:
            middle = (low + high) // 2
            step = steps[middle]
            progress(step.words, done + len(tried), total)
            left = _changed(step, made, targets)
            if left is not None:
                tried[middle] = Change(kind, step.strength, step.words, left)
            if left is not None and answer_of(left, limits) == "ok":
                high = middle
            else:
                low = middle + 1
        done += len(steps)
        yield from (tried[place] for place in sorted(tried))
    progress("done", total, total)


def _changed(step: _Step, made: Preflight, targets: Sequence[str]) -> tuple[Exposure, ...] | None:
    """What is left: first the strongest attack on what leaked most; if that is stopped, all.

    None: the change does not train, or no attack of ours reads what comes of it.
    """
    worst = made.worst
    key = worst.attribute if question_named(worst.question).removable else ""
    try:
        changed = step.make()
        first: tuple[Exposure, ...] = ()
        if key and worst.attack:
            messages = rehearsed(changed, made.client, made.rounds)
            first, _ = measured(changed, made.client, messages, [worst.attack], [key])
        if (
            first
            and np.isfinite(first[0].value)
            and (first[0].doubt or first[0].beyond(made.limits))
        ):
            return first
        return _rehearse(changed, made.client, made.rounds, made.limits, targets)[0]
    except (ChooseAnotherAttack, FixConfig, FixData):
        return None


@dataclass(frozen=True)
class _Step:
    strength: float
    words: str
    make: Callable[[], Plan]


def _only(ready: Plan, client: str) -> str:
    if client in ready.clients:
        return client
    if not client and len(ready.clients) == 1:
        return next(iter(ready.clients))
    given = f"no client {client!r}" if client else "there are several clients; name yours"
    raise FixConfig(f"{given}; the clients are {', '.join(ready.clients)}")


def _kinds(
    ready: Plan, client: str, leaking: Sequence[Exposure], typical: float
) -> Iterator[tuple[str, list[_Step]]]:
    """What is tried: of each kind the changes, from the smallest; ``typical`` is the size of an
    update's coordinate."""
    noises = [
        _Step(
            times,
            f"Gaussian noise of {times:g} times the update's typical coordinate "
            f"(sd {times * typical:.3g})",
            partial(_with_noise, ready, times * typical),
        )
        for times in NOISES
    ]
    yield "noise", noises
    own, recipe = len(ready.clients[client]), ready.recipe
    if not recipe.sends_gradient and recipe.steps is None:
        batches = [b for b in BATCHES if b < min(recipe.batch_size or own, own)]
        smaller = [
            _Step(1 / b, f"batches of {b}", partial(_with_recipe, ready, {"batch_size": b}))
            for b in batches
        ]
        yield "batch", smaller
        longer = [
            _Step(e, f"{e} local epochs", partial(_with_recipe, ready, {"epochs": e}))
            for e in EPOCHS
            if e > recipe.epochs
        ]
        yield "epochs", longer
    seen = recipe.encoding.columns()
    removable = [e.attribute for e in leaking if question_named(e.question).removable]
    leaks = [column for name in removable for column in ready.attributes[name].columns]
    columns = [column for column in dict.fromkeys(leaks) if column in seen]
    if columns and len(columns) < len(seen):
        words = f"leaving {', '.join(columns)} out of the model"
        step = _Step(len(columns), words, partial(_without, ready, tuple(columns)))
        yield "drop", [step]


def _with_noise(ready: Plan, sd: float) -> Plan:
    defences = (*ready.config.defence, Gaussian(sd=sd))
    return replace(ready, config=ready.config.model_copy(update={"defence": defences}))


def _with_recipe(ready: Plan, changes: dict[str, Any]) -> Plan:
    return replace(ready, told=ready.recipe.model_copy(update=changes))


def _without(ready: Plan, columns: tuple[str, ...]) -> Plan:
    """Planned anew: the model has fewer inputs."""
    defences = (DropColumn(columns=columns), *ready.config.defence)
    return plan(ready.config.model_copy(update={"defence": defences}))

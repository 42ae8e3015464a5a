"""Does ``overheard compare`` see a rise of leakage, and does it cry wolf?

Two audits of the same clients and records are drawn, between which a known share of records more
is guessed right, or none, and are compared. Clients differ in how much they leak; the change may
differ between clients too, and then their records change together. ``tests/evaluation/
test_compare.py`` does the same with fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.robustness.promises import total, tried
from experiments.runner import Cell, Experiment, Result, cell
from overheard.evaluation.compare import compare
from overheard.evaluation.decision import clustered_interval, share_interval
from overheard.evaluation.record import AttackInfo, Audit, Finding, Run

Rng = np.random.Generator
POWER, FALSE = 0.80, 0.02


@dataclass(frozen=True)
class World:
    """``rise``: of the share guessed right, on average; ``spread``: standard deviation of a
    client's own change, half of whose variance is luck of the first audit; ``straggler``: one
    client's change is this much more or less, at random; ``attacks``: how many, of which the
    strongest counts; ``asked``: whether something is promised of it."""

    what: str
    rise: float = 0.0
    spread: float = 0.0
    straggler: float = 0.0
    clients: int = 6
    records: int = 1000
    unequal: bool = False
    attacks: int = 1
    secrets: int = 1
    asked: bool = True


SAME = 0.7
"""Share of records on which the two audits' luck is the same."""
SIX = "6 x 1000 records"
RISEN = (
    World(f"a rise of 10 points, {SIX}", 0.1),
    World(f"a rise of 10 points that differs by client (sd 2), {SIX}", 0.1, spread=0.02),
    World(f"a rise of 10 points that differs by client (sd 5), {SIX}", 0.1, spread=0.05),
    World(
        f"a rise of 10 points that differs by client (sd 10), {SIX}", 0.1, spread=0.1, asked=False
    ),
    World(f"a rise of 3 points, {SIX}", 0.03, asked=False),
    World(
        "a rise of 10 points, one client of 300 records", 0.1, clients=1, records=300, asked=False
    ),
)
CHANCE = "no rise, clients change by chance"
NO_RISE = (
    World(f"no rise, {SIX}", 0.0),
    World(f"{CHANCE} (sd 2), {SIX}", 0.0, spread=0.02),
    World(f"{CHANCE} (sd 5), {SIX}", 0.0, spread=0.05),
    World(f"{CHANCE} (sd 10), {SIX}", 0.0, spread=0.1),
    World(f"no rise, one client changes by 30 points either way, {SIX}", 0.0, straggler=0.3),
    World(f"{CHANCE} (sd 5), strongest of 4 attacks, {SIX}", 0.0, spread=0.05, attacks=4),
    World(f"{CHANCE} (sd 5), 3 secrets, {SIX}", 0.0, spread=0.05, secrets=3),
    World(f"{CHANCE} (sd 5), 6 of 100 to 3000 records", spread=0.05, unequal=True),
    World(f"{CHANCE} (sd 5), 20 x 50 records", spread=0.05, clients=20, records=50),
    World("no rise, one client of 300 records", clients=1, records=300),
)


def drawn(world: World, rng: Rng) -> list[Audit]:
    """The two audits."""
    sizes = np.full(world.clients, world.records)
    if world.unequal:
        sizes = np.exp(rng.uniform(np.log(100), np.log(3000), world.clients)).astype(int)
    sides: tuple[list[Finding], list[Finding]] = ([], [])
    units: tuple[dict[Any, NDArray[np.bool_]], dict[Any, NDArray[np.bool_]]] = ({}, {})
    for secret in range(world.secrets):
        base = np.clip(rng.normal(0.7, 0.1, world.clients), 0.4, 0.85)
        for attack in range(world.attacks):
            own = world.spread / np.sqrt(2) * rng.normal(size=(2, world.clients))
            own[1] += world.rise
            own[1, rng.integers(world.clients)] += world.straggler * rng.choice([-1, 1])
            for client, n in enumerate(sizes):
                luck = rng.random(n)
                again = np.where(rng.random(n) < SAME, luck, rng.random(n))
                shares = base[client] + own[:, client]
                for side, (share, chance) in enumerate(zip(shares, (luck, again), strict=True)):
                    hits = chance < share
                    found = _finding(f"a{attack}", f"s{secret}", str(client), [hits])
                    sides[side].append(found)
                    units[side][found.key] = hits
    return [_audit(world, found, right) for found, right in zip(sides, units, strict=True)]


def _finding(attack: str, secret: str, client: str | None, units: list[NDArray[Any]]) -> Finding:
    """Of one client, or of all together, each of whom is a unit."""
    shares = [hits.astype(np.float64) for hits in units]
    low, high = share_interval(shares[0]) if client else clustered_interval(shares, share=True)
    every = np.concatenate(shares)
    value = float(every.mean())
    return Finding(
        attack=attack, paper="x", question="attribute", threat="t", client=client, attribute=secret,
        metric="accuracy", value=value, low=min(low, value), high=max(high, value), majority=0.5,
        lift=value - 0.5, clients=len(units), n=len(every),
    )  # fmt: skip


def _audit(world: World, found: list[Finding], hits: dict[Any, NDArray[np.bool_]]) -> Audit:
    asked = sorted({(f.attack, str(f.attribute)) for f in found})
    pooled = [
        _finding(*one, None, [hits[f.key] for f in found if (f.attack, f.attribute) == one])
        for one in asked
    ]
    names = tuple(map(str, range(world.clients)))
    run = Run(
        recording="r", data="d", origin="o", clients=names, rounds=1, closed=True, threat="t",
        threat_words="w", knows=(), recipe={}, seed=0, software={},
    )  # fmt: skip
    needs = ("individual messages",)
    infos = tuple(
        AttackInfo(name=f"a{i}", question="attribute", paper="x", needs=needs, words="w")
        for i in range(world.attacks)
    )
    return Audit(run=run, attacks=infos, findings=tuple(found), pooled=tuple(pooled), skipped=())


def rises(world: World, trials: int, seed: int = 0) -> float:
    """In what share of comparisons a rise is shown."""
    rng = np.random.default_rng([seed, *world.what.encode()])
    shown = 0
    for _ in range(trials):
        before, after = drawn(world, rng)
        shown += compare(before, after).rose
    return shown / trials


def _drawn(each: Cell) -> dict[str, Any]:
    world, trials = BY_NAME[each["world"]], each["trials"]
    shown = rises(world, trials, each.seed)
    error = 3 * np.sqrt(max(shown * (1 - shown), 1e-3) / trials)
    bad = shown + error < POWER if world.rise else shown > FALSE
    return tried(trials, bad and world.asked, f"shown in {shown:.1%}") | {"shown": shown}


def _came(found: Sequence[Result]) -> str:
    """The range of what was shown, where there is a rise and where there is none."""
    risen = {world.what for world in RISEN if world.asked}
    there = [r.values["shown"] for r in found if r.setting["world"] in risen]
    none = [r.values["shown"] for r in found if not BY_NAME[str(r.setting["world"])].rise]
    said = f"{total(found, 'faults')} bounds broken; "
    said += f"a rise is shown in {min(there, default=0):.0%} of comparisons or more, "
    return said + f"one that is none in {max(none, default=0):.1%} at most"


BY_NAME = {world.what: world for world in (*RISEN, *NO_RISE)}
EXPERIMENTS = (
    Experiment(
        "robustness-compare",
        "comparisons of two audits: rises that are there, and that are not",
        _drawn,
        lambda: [cell(world=name, trials=2000, cost=60) for name in BY_NAME],
        must="`overheard compare` sees a rise of 10 points, and none where there is none",
        came=_came,
    ),
)

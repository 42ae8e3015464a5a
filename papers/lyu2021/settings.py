"""lyu2021's tables as lists of `Setting`s: what is federated, what is asked, who answers.

Beyond the paper's own cells: Location at 1000 records, mini-batches with more records, two rates
and several local epochs, and membership from mini-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.baselines import PublicModel, RandomGuess
from overheard.attacks.membership import CandidateDecode
from overheard.attacks.papers.lyu2021 import CosMatching, GradientVarianceGmm, L2Lbfgs, Statistics
from overheard.data.dealing import VICTIM
from overheard.transcript.view import Attack
from papers.common.harness import federation
from papers.lyu2021 import claims as printed
from papers.lyu2021.claims import COS, SOURCES, numbers

OURS, MEMBERS_OURS, LABELS_OURS = "max_entropy", "candidate_decode", "joint_decode"
RATE = 0.1
SMALL_RATE = 0.01
"""With mini-batches: at 0.1 a round of many small steps blurs what is measured."""

MEMBERS_RATE = 0.5
"""Variances tell members only from a model that fits them: at 0.1, 100 full batches do not."""

SOON_OVER = 300
"""Up to so many records a search takes seconds, and is repeated like everything else."""

MEMBERS_ROUNDS = 5
"""`candidate_decode` hears at most so many rounds, the first ones."""


@dataclass(frozen=True)
class Setting:
    """One column of a table. ``panel`` and ``at`` name it; ``claims``: the paper's, by method.

    ``column`` of ``records`` records of the victim; ``batch`` 0 is the full batch; ``others``
    counts the other participants (0: the victim is isolated); ``phase`` limits what is heard, and
    ``heard`` what our decoders hear (0: as much as the rest). ``pooled``: who of a pool is a member
    is asked as well. ``repeats``: at most so many repetitions; searches that take long are run in
    the first one only.
    """

    panel: str
    at: str
    source: str
    column: str
    records: int
    attacks: Mapping[str, Attack]
    claims: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    pooled: bool = False
    hidden: tuple[int, ...] = (128,)
    batch: int = 0
    epochs: int = 1
    rate: float = RATE
    rounds: int = 100
    others: int = 0
    phase: str = ""
    heard: int = 0
    labels_known: bool = True
    prior_known: bool = True
    repeats: int = 3

    def config(self, seed: int) -> dict[str, Any]:
        """The federation; a pool's strangers are taken out of a victim that is twice as large."""
        pool = self.pooled
        options = {
            **self.options,
            "seed": seed,
            "victim": self.records * (2 if pool else 1),
            "participants": 1 + self.others,
            "attributes": (self.column,),
        }
        model = {"name": "mlp", "hidden": list(self.hidden)}
        training = {
            "rounds": self.rounds,
            "learning_rate": self.rate,
            "batch_size": self.batch,
            "epochs": self.epochs,
            "isolate": "" if self.others else VICTIM,
        }
        audit = {"membership": self.records if pool else 0}
        return federation(seed, self.source, model, training, options) | {"audit": audit}

    def in_repetition(self, seed: int) -> Mapping[str, Attack]:
        """Who answers in this repetition: all at first, then those that do not search for long."""
        if seed >= self.repeats:
            return {}
        return {m: a for m, a in self.attacks.items() if not (seed and self._takes_long(a))}

    def _takes_long(self, attack: Attack) -> bool:
        return bool(getattr(attack, "slow", False)) and self.records > SOON_OVER


def cell(
    source: str, column: str, size: int, attacks: Mapping[str, Attack], more: str = "", **how: Any
) -> Setting:
    """A setting that is named by its data; ``more`` goes on with the name of the panel."""
    named = {"panel": f"{source}, {column}{more}", "at": f"{size} records"} | how
    return Setting(source=source, column=column, records=size, attacks=attacks, **named)


# ---------------------------------------------------------------------------------- the methods


WHOLE = CosMatching(phases=tuple(printed.PHASES), temperatures=(1.0,), steps=200)
"""The paper's own search: all its training phases. It gives no number of steps; where it speaks of
iterations it needs fewer than 200 (section 5.4). Its temperature is from a grid that it does not
state; one is tried here, which spares the search the rest of that grid."""

NEAREST = L2Lbfgs(last=(0,), step=(1,), iterations=200)


def searches(source: str, column: str, records: int, quick: bool) -> dict[str, Attack]:
    """The paper's own search and the one it compares with, in tables 2 to 4."""
    if quick:
        return quick_searches(records)
    phases = phases_searched(source, column, records)
    return {"l2_lbfgs": NEAREST, COS: replace(WHOLE, phases=phases)}


def phases_searched(source: str, column: str, records: int) -> tuple[str, ...]:
    """All phases where the time is compared, else the first rounds only: a search is dear."""
    if (source, column, records) == ("location30", SOURCES["location30"][0], 1000):
        return WHOLE.phases
    return ("pre1", "pre5") if records < 500 or source == "splice" else ("pre1",)


def quick_searches(records: int) -> dict[str, Attack]:
    """Short: two phases up to 100 records, one beyond; no L-BFGS where it takes long."""
    phases = ("pre1", "pre5") if records <= 100 else ("pre1",)
    cos = replace(WHOLE, phases=phases, steps=100 if records <= 100 else 200)
    return {COS: cos} if records >= 500 else {"l2_lbfgs": NEAREST, COS: cos}


def shortened() -> dict[str, Attack]:
    """The paper's search cut short: how long must it have been to get the paper's figures?"""
    short = {n: replace(WHOLE, phases=("pre1",), steps=n) for n in (10, 25, 50)}
    return {f"{COS}, {n} steps on pre1": search for n, search in short.items()}


def first_five(quick: bool) -> CosMatching:
    """The search over the first five rounds, for tables that vary something else."""
    return replace(WHOLE, phases=("pre5",), steps=50 if quick else 100)


def baselines() -> dict[str, Attack]:
    """The paper's methods that do not search."""
    return {
        "random": RandomGuess(),
        "public100": PublicModel(100),
        "public1000": PublicModel(1000),
        "statistics": Statistics(),
    }


def ours(rounds: int = 1) -> dict[str, Attack]:
    """Ours; one full-batch round is enough where values are two."""
    return {OURS: MaxEntropy(rounds=rounds)}


def rounds_for(source: str) -> int:
    """Full-batch rounds that ours uses: of four values more is to be told than of two."""
    return 5 if source == "splice" else 1


# ----------------------------------------------------------------------------------- the tables


def methods_table(source: str, quick: bool) -> list[Setting]:
    """Tables 2, 3 and 4: all methods by size of the victim; Location beyond the paper at 1000."""
    *columns, sizes = SOURCES[source]
    extra = (1000,) if source == "location30" else ()
    settings = []
    for i, column in enumerate(columns):
        for j, size in enumerate(sizes + extra):
            told = {m: numbers(line) for m, line in printed.METHODS[source].items()}
            claims = {} if j == len(sizes) else {m: n[i * len(sizes) + j] for m, n in told.items()}
            attacks = {
                **baselines(),
                **searches(source, column, size, quick),
                **ours(rounds_for(source)),
            }
            if size == 300 and not quick:
                attacks |= shortened()
            settings.append(cell(source, column, size, attacks, claims=some(claims)))
    return [_brief(s) for s in settings] if quick else settings


def some(claims: Mapping[str, float | None]) -> dict[str, float]:
    return {method: number for method, number in claims.items() if number is not None}


def _brief(setting: Setting) -> Setting:
    """Few rounds; the searches on one attribute only, ours everywhere."""
    first = SOURCES[setting.source][0] == setting.column
    kept = {m: a for m, a in setting.attacks.items() if first or m not in ("l2_lbfgs", COS)}
    rounds = setting.rounds if setting.batch else min(setting.rounds, 5)
    return replace(setting, attacks=kept, rounds=rounds)


def across(
    table: Mapping[str, str], make: Callable[[str, str, str], Setting], method: str = COS
) -> list[Setting]:
    """Tables 5 to 8: a line per variant, a column per data set and attribute.

    ``make(source, column, variant)`` gives the setting of one cell.
    """
    settings = []
    for at, (source, which) in enumerate((s, w) for s in printed.ACROSS for w in (0, 1)):
        column = str(SOURCES[source][which])
        for variant, line in table.items():
            claimed = numbers(line)[at]
            if claimed is not None:
                settings.append(replace(make(source, column, variant), claims={method: claimed}))
    return settings


def isolation_table(quick: bool) -> list[Setting]:
    """Table 5: isolated, or with 1 and 9 other participants; 100 records, full batch."""
    others = dict(zip(printed.ISOLATION, (0, 1, 9), strict=True))

    def make(source: str, column: str, at: str) -> Setting:
        attacks = {COS: first_five(quick), **ours(rounds_for(source))}
        return cell(source, column, 100, attacks, at=at, others=others[at], rounds=5)

    return across(printed.ISOLATION, make)


def batch_table(quick: bool) -> list[Setting]:
    """Table 6: batches of 8, 32 and all; beyond the paper: more records, two rates, 5 epochs."""
    sizes = dict(zip(printed.BATCHES, (8, 32, 0), strict=True))

    def make(source: str, column: str, at: str) -> Setting:
        attacks = {COS: first_five(quick), **ours(20 if sizes[at] else rounds_for(source))}
        batch = sizes[at]
        return cell(source, column, 100, attacks, at=at, batch=batch, rate=SMALL_RATE, rounds=20)

    settings = across(printed.BATCHES, make)
    if quick:
        few = [(300, 8, 0.01, 1), (300, 32, 0.01, 1), (300, 8, 0.1, 1)]
        many = [(1000, 32, 0.01, 1), (1000, 8, 0.01, 1)]
        mine = [_brief(s) for s in settings if s.source == "location30"]
        more = [_beyond("c001", *way) for way in few]
        return mine + more + [_beyond("c001", *way, rounds=10) for way in many]
    once = [(size, batch, rate, 1) for size in (300, 1000) for batch in (8, 32)
            for rate in (0.01, 0.1)]  # fmt: skip
    ways = (*once, (300, 8, 0.01, 5), (300, 32, 0.01, 5))
    columns: Sequence[str] = (str(SOURCES["location30"][0]), str(SOURCES["location30"][1]))
    return settings + [_beyond(column, *way) for column in columns for way in ways]


def _beyond(
    column: str, size: int, batch: int, rate: float, epochs: int, rounds: int = 20
) -> Setting:
    passes = f", {epochs} epochs" if epochs > 1 else ""
    at = f"B={batch}, {size} records, rate {rate}{passes}"
    one = cell("location30", column, size, ours(rounds), ", ours", at=at, batch=batch, rate=rate)
    return replace(one, epochs=epochs, rounds=rounds, repeats=1 if size > 300 else 3)


def phases_table(quick: bool) -> list[Setting]:
    """Table 7: who hears only the first, or only the late rounds; 100 records, full batch."""

    def make(source: str, column: str, at: str) -> Setting:
        # the view holds the rounds of one phase only, of which "last5" takes all
        attacks = {COS: replace(first_five(quick), phases=("last5",)), **ours(5)}
        return cell(source, column, 100, attacks, at=at, phase=at, repeats=1)

    return across(printed.PHASES, make)


def sizes_table(quick: bool) -> list[Setting]:
    """Table 8: size of the victim, from the first five rounds, full batch."""

    def make(source: str, column: str, at: str) -> Setting:
        many = int(at) >= 500
        search = {} if quick and many else {COS: first_five(quick or many)}
        attacks = {**search, **ours(5)}
        return cell(source, column, int(at), attacks, rounds=5, repeats=1 if many else 3)

    return across(printed.SIZES, make)


def networks_table(quick: bool) -> list[Setting]:
    """Table 9: three sizes of the network; Location, full batch."""
    first, second, sizes = SOURCES["location30"]
    settings = []
    for hidden, line in printed.NETWORKS.items():
        claims = iter(numbers(line))
        for column in (first, second):
            for size in sizes:
                attacks = {COS: replace(first_five(quick), phases=("pre1",)), **ours()}
                more, claimed = f", hidden {'-'.join(map(str, hidden))}", some({COS: next(claims)})
                one = cell("location30", column, size, attacks, more, hidden=hidden, rounds=1)
                settings.append(replace(one, claims=claimed))
    return settings


def members_table(source: str, quick: bool) -> list[Setting]:
    """Tables 10 and 11: who of a pool of members and as many strangers is a member?

    Beyond the paper: Location at 1000 records, and mini-batches at the smaller rate.
    """
    first, second, sizes = SOURCES[source]
    sizes = (*sizes, 1000) if source == "location30" else sizes
    settings = []
    for batch, line in printed.MEMBERS[source].items():
        claims = dict(enumerate(numbers(line)))
        for j, size in enumerate(sizes):
            for i, column in enumerate((first, second)):
                one = pool(source, column, size, batch, RATE if batch else MEMBERS_RATE)
                known = some({"gmm": claims.get(2 * j + i)})
                rounds = 20 if quick and size > 300 else 100
                attacks = {"gmm": GradientVarianceGmm(), **one.attacks}
                settings.append(replace(one, attacks=attacks, claims=known, rounds=rounds))
                if batch and source == "location30":
                    small = f", rate {SMALL_RATE}"
                    settings.append(pool(source, column, size, batch, SMALL_RATE, small))
    if not quick:
        return settings
    return [s for s in settings if s.column == first and (s.batch == 0 or s.records == 100)]


def pool(source: str, column: str, size: int, batch: int, rate: float, more: str = "") -> Setting:
    """Who of a pool is a member, asked of ours."""
    return cell(
        source,
        column,
        size,
        {MEMBERS_OURS: CandidateDecode(rounds=MEMBERS_ROUNDS)},
        f", B={batch or 'all'}{more}",
        pooled=True,
        batch=batch,
        rate=rate,
        rounds=MEMBERS_ROUNDS,
        heard=MEMBERS_ROUNDS,
        repeats=1 if batch or size > 300 else 3,
    )


def prior_table(source: str, quick: bool) -> list[Setting]:
    """Tables 12 and 13: nobody is told the population's shares; the search starts from N(0, 1)."""
    first, second, sizes = SOURCES[source]
    settings = []
    for batch, line in printed.PRIORS[source].items():
        claims = iter(numbers(line))
        for column in (first, second):
            for size in sizes:
                cos = replace(first_five(quick), phases=("pre1",))
                attacks = {COS: cos, **ours(20 if batch else 1)}
                one = cell(source, column, size, attacks, f", B={batch or 'all'}", batch=batch)
                one = replace(one, rate=SMALL_RATE if batch else RATE, rounds=20, prior_known=False)
                claimed = some({COS: next(claims)})
                settings.append(replace(one, claims=claimed, repeats=1 if batch else 3))
    return settings


def labels_table(quick: bool) -> list[Setting]:
    """Section 5.4: two classes, the labels unknown too (accuracy 1 claimed for them)."""
    settings = []
    for (source, column), line in printed.LABELS_UNKNOWN.items():
        for size, claimed in zip(SOURCES[source][2], numbers(line), strict=True):
            if size > (100 if quick else 1000):
                continue
            search = replace(WHOLE, phases=("pre1",))
            attacks: dict[str, Attack] = {COS: search, LABELS_OURS: MaxEntropy(labels=False)}
            one = two_classes(source, column, size, attacks, rounds=5)
            repeats = 1 if size >= 500 else 3
            settings.append(replace(one, claims=some({COS: claimed}), repeats=repeats))
    return settings


def two_classes(
    source: str, column: str, size: int, attacks: Mapping[str, Attack], **how: Any
) -> Setting:
    """Section 5.4's data: two classes, and nobody is told who is of which."""
    how |= {"options": {"classes": 2}, "labels_known": False}
    return cell(source, column, size, attacks, ", 2 classes", **how)

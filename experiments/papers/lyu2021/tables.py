"""lyu2021's tables 2 to 13, and what sections 5.2 and 5.4 describe in words.

A table is its settings with what the paper claims there (as printed: ``claims.toml``), and the
methods that answer each. "cos_matching" is the paper's own method ("Our" in its tables), and so is
"gmm" for membership.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from experiments.papers.lyu2021.run import Setting, measured
from experiments.papers.scoring import IMPUTATION, OURS, printed
from experiments.runner import Cell, Experiment, Values, cell
from overheard.attacks.attribute import CandidateDecode, MaxEntropy
from overheard.attacks.baselines import PublicModel, RandomGuess
from overheard.attacks.papers.lyu2021 import CosMatching, GradientVarianceGmm, L2Lbfgs, Statistics
from overheard.transcript.view import Attack

PRINTED = printed("lyu2021")
COS = "cos_matching"
SOURCES: Mapping[str, tuple[str, str, tuple[int, ...]]] = {
    "purchase100": ("c130", "c595", (50, 100, 500, 1000)),
    "hs3d": ("c007", "c017", (50, 100, 500, 1000)),
    "location30": ("c001", "c069", (50, 100, 300)),
}
"""Each with two attributes and the victim's sizes (tables 2 to 4), in the order of the columns of
tables 5 to 8. Where the paper's index does not fit our columns these are attributes of comparable
variance, as each data source says. `hs3d` is the paper's genome data."""
MEMBERS_OURS, LABELS_OURS = "candidate_decode", "joint_decode"
PIPELINE = f"gmm, then {COS}"
PRIOR_KNOWN = f"{COS}, label prior known"
NEAREST_VALUE = f"{COS}, nearest value"
SMALL_RATE = 0.01
"""With mini-batches: at 0.1 a round of many small steps blurs what is measured."""
MEMBERS_RATE = 0.5
"""Variances tell members only from a model that fits them: at 0.1, 100 full batches do not."""
WHOLE = CosMatching(phases=tuple(PRINTED["phases"]), temperatures=(1.0,), steps=200)
"""The paper's own search: all its training phases. It gives no number of steps; where it speaks of
iterations it needs fewer than 200 (section 5.4). Its temperature is from a grid that it does not
state; one is tried here, which spares the search the rest of that grid."""
FIRST = replace(WHOLE, phases=("pre1",))
FIRST_FIVE = replace(WHOLE, phases=("pre5",), steps=100)
"""For tables that vary something else."""

Claims = Mapping[Setting, Mapping[str, float | None]]
Methods = Mapping[str, Attack | None]


@dataclass(frozen=True)
class Table:
    """What the paper claims in each setting, and who answers there."""

    about: str
    claims: Claims
    methods: Callable[[Setting], Methods]

    def cells(self) -> list[Cell]:
        """Every method in every setting, three times. Quick: ours on small full batches, once."""
        return [
            cell(m, seed, self.cost(m, setting), self.quick(m, setting, seed), **setting.named())
            for setting in self.claims
            for m in self.methods(setting)
            for seed in range(3)
        ]

    @staticmethod
    def cost(method: str, setting: Setting) -> float:
        search = COS in method or method == "l2_lbfgs" or setting.batch > 0
        return (10 if search else 2) * max(setting.records / 100, 1)

    @staticmethod
    def quick(method: str, setting: Setting, seed: int) -> bool:
        ours = method in (OURS, MEMBERS_OURS, LABELS_OURS)
        return seed == 0 and ours and setting.records <= 100 and not setting.batch

    def run(self, one: Cell) -> Values:
        setting = Setting(**dict(one.setting))  # type: ignore[arg-type]
        return measured(setting, self.methods(setting)[one.method], one.seed)

    def claimed(self, one: Cell) -> Values:
        number = self.claims[Setting(**dict(one.setting))].get(one.method)  # type: ignore[arg-type]
        return {} if number is None else {"accuracy": number}


def numbers(line: str) -> list[float | None]:
    """A printed line; None for an empty cell."""
    return [None if cell == "-" else float(cell) for cell in line.split()]


def ours(setting: Setting) -> dict[str, Attack]:
    """One full-batch round is enough where values are two; of four values more is to be told."""
    rounds = 20 if setting.batch else 5 if setting.source == "hs3d" or setting.phase else 1
    return {OURS: MaxEntropy(rounds=rounds)}


# ------------------------------------------------------------------------------- tables 2 to 9


def all_methods(setting: Setting) -> Methods:
    """Tables 2 to 4. The search hears the first rounds only where it is dear.

    On the genome data four values are one number, of which equation (2) has the mean. A mean does
    not tell a distribution, so that what the search ends at can be read in two ways: the likeliest
    value, as in Algorithm 1, and the one nearest to the mean.
    """
    cheap = setting.records < 500 or setting.source == "hs3d"
    search = replace(WHOLE, phases=("pre1", "pre5")) if cheap else FIRST
    nearest = {NEAREST_VALUE: replace(search, expected=True)} if setting.source == "hs3d" else {}
    return {
        "random": RandomGuess(),
        "public100": PublicModel(100),
        "public1000": PublicModel(1000),
        IMPUTATION: None,
        "statistics": Statistics(),
        "l2_lbfgs": L2Lbfgs((0,), (1,), 200, expected=setting.source == "hs3d"),
        COS: search,
        **nearest,
        **ours(setting),
    }


def methods_claims(source: str) -> Claims:
    """Tables 2, 3 and 4: all methods by size of the victim."""
    *columns, sizes = SOURCES[source]
    lines = {m: numbers(line) for m, line in PRINTED["methods"][source].items()}
    settings = [Setting(source, str(column), size) for column in columns for size in sizes]
    return {s: {m: line[at] for m, line in lines.items()} for at, s in enumerate(settings)}


def across(table: Mapping[str, str], make: Callable[[Setting, str], Setting]) -> Claims:
    """Tables 5 to 8: a line per variant, a column per data set and attribute; 100 records."""
    columns = [(source, SOURCES[source][which]) for source in SOURCES for which in (0, 1)]
    return {
        make(Setting(source, str(column), 100), variant): {COS: claimed}
        for at, (source, column) in enumerate(columns)
        for variant, line in table.items()
        if (claimed := numbers(line)[at]) is not None
    }


def isolated(setting: Setting, variant: str) -> Setting:
    others = dict(zip(PRINTED["isolation"], (0, 1, 9), strict=True))
    return replace(setting, others=others[variant], rounds=5)


def batched(setting: Setting, variant: str) -> Setting:
    size = dict(zip(PRINTED["batches"], (8, 32, 0), strict=True))[variant]
    return replace(setting, batch=size, rate=SMALL_RATE, rounds=20)


def in_phase(setting: Setting, variant: str) -> Setting:
    return replace(setting, phase=variant)


def sized(setting: Setting, variant: str) -> Setting:
    return replace(setting, records=int(variant), rounds=5)


def search_and_ours(search: CosMatching, setting: Setting) -> Methods:
    """The view holds the rounds of one phase only, of which "last5" takes all."""
    search = replace(search, phases=("last5",)) if setting.phase else search
    return {COS: search, **ours(setting)}


def networks_claims() -> Claims:
    """Table 9: three sizes of the network; Location, full batch."""
    first, second, sizes = SOURCES["location30"]
    return {
        Setting("location30", str(column), size, hidden=hidden, rounds=1): {COS: claimed}
        for hidden, line in PRINTED["networks"].items()
        for (column, size), claimed in zip(
            ((c, n) for c in (first, second) for n in sizes), numbers(line), strict=True
        )
    }


# ----------------------------------------------- tables 10 to 13; sections 5.2 and 5.4


def members_claims(source: str) -> Claims:
    """Tables 10 and 11: who of a pool of members and as many outsiders is a member?"""
    *columns, sizes = SOURCES[source]
    return {
        Setting(
            source, str(c), size, batch, 0.1 if batch else MEMBERS_RATE, pooled=True
        ): {"gmm": claimed}
        for batch, line in zip((8, 32, 0), PRINTED["members"][source].values(), strict=True)
        for (size, c), claimed in zip(
            ((n, c) for n in sizes for c in columns), numbers(line), strict=True
        )
    }  # fmt: skip


def members_methods(setting: Setting) -> Methods:
    """Section 3.3's mixture, with Algorithm 1 on whom it calls members (section 5.2), and ours."""
    return {
        "gmm": GradientVarianceGmm(),
        PIPELINE: GradientVarianceGmm(then=FIRST_FIVE),
        MEMBERS_OURS: CandidateDecode(rounds=5),
    }


def prior_claims(source: str) -> Claims:
    """Tables 12 and 13: nobody knows the population's shares; the search starts from N(0, 1)."""
    *columns, sizes = SOURCES[source]
    return {
        Setting(source, str(c), size, batch, SMALL_RATE if batch else 0.1, 20, prior_known=False): {
            COS: claimed
        }
        for batch, line in zip((8, 32, 0), PRINTED["priors"][source].values(), strict=True)
        for (c, size), claimed in zip(
            ((c, n) for c in columns for n in sizes), numbers(line), strict=True
        )
    }


def labels_claims() -> Claims:
    """Section 5.4: two classes, the labels unknown too (accuracy 1 claimed for them).

    For the attribute the paper has one number and does not say whether the labels' prior is known.
    """
    return {
        Setting(
            source, column, size, rounds=5, labels_known=False,
            classes=2 if source == "purchase100" else 0,
        ): {
            COS: claimed,
            PRIOR_KNOWN: claimed,
        }
        for (source, column), line in ((k.split(), v) for k, v in PRINTED["labels"].items())
        for size, claimed in zip(SOURCES[source][2], numbers(line), strict=True)
    }  # fmt: skip


def labels_methods(setting: Setting) -> Methods:
    """Claimed: all labels within 200 iterations where the prior is known, "longer" where not."""
    known = replace(FIRST, label_prior_known=True)
    searches = {COS: FIRST, PRIOR_KNOWN: known}
    short = {f"{m}, 50 steps": replace(search, steps=50) for m, search in searches.items()}
    return {**searches, **short, LABELS_OURS: MaxEntropy(labels=False)}


by_five, by_one = partial(search_and_ours, FIRST_FIVE), partial(search_and_ours, FIRST)
BY_NAME = {
    "table2": Table("all methods, purchases", methods_claims("purchase100"), all_methods),
    "table3": Table("all methods, locations", methods_claims("location30"), all_methods),
    "table4": Table("all methods, genome", methods_claims("hs3d"), all_methods),
    "table5": Table("isolation, participants", across(PRINTED["isolation"], isolated), by_five),
    "table6": Table("batch size", across(PRINTED["batches"], batched), by_five),
    "table7": Table("training phases", across(PRINTED["phases"], in_phase), by_five),
    "table8": Table("size of the victim", across(PRINTED["sizes"], sized), by_five),
    "table9": Table("size of the network", networks_claims(), by_one),
    "table10": Table("membership, purchases", members_claims("purchase100"), members_methods),
    "table11": Table("membership, locations", members_claims("location30"), members_methods),
    "table12": Table("prior unknown, locations", prior_claims("location30"), by_one),
    "table13": Table("prior unknown, purchases", prior_claims("purchase100"), by_one),
    "labels": Table("labels unknown too (section 5.4)", labels_claims(), labels_methods),
}
EXPERIMENTS = tuple(
    Experiment(f"lyu2021-{name}", table.about, table.run, table.cells, claims=table.claimed)
    for name, table in BY_NAME.items()
)

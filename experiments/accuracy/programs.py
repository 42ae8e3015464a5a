"""What do Newton steps, released tables and boosted trees give away, and what helps against that?

RAND (comes with the package) and Adult (needs the data); who listens knows everything of the
people but one attribute. The tables of docs/tables-and-trees.md are made from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations, product
from statistics import fmean, stdev
from typing import Any

from experiments.accuracy.audits import Case, clients_of, experiment
from experiments.accuracy.networks import config
from experiments.pages import table
from experiments.runner import Cell, Experiment, Result, cell, results
from overheard.federation.defences.accounting import DELTA, sampled_gaussian_changed
from overheard.sweep.grid import cells, parse_sweep
from overheard.sweep.run import run_cell

Settings = dict[str, Any]
ATTRIBUTES = ("female", "black", "physlm")
SITES = tuple(f"site {k}" for k in range(1, 7))
BINARY: Settings = {"source": "randhie", "options": {"above_median": True}}
NEWTON: Settings = {"name": "newton", "likelihood": "logistic"}
MESSAGES = 7
"""A tenth of the 19 coefficients and 6 more say which."""
STEPS = {
    f"{site}, {column}": Case(
        {"data": BINARY, "model": NEWTON, "training": {"rounds": MESSAGES},
         "audit": {"attributes": [column]}},
        clients=(site,),
        rounds=True,
        quick=site == "site 3",
    )
    for site, column in product(SITES, ATTRIBUTES)
}  # fmt: skip

# --------------------------------------------------------------------------------- released tables

BINS = {
    "xage": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
    "educdec": [8.0, 11.0, 12.0, 15.0],
    "num": [2.0, 4.0, 6.0],
    "disea": [5.0, 10.0, 20.0],
    "linc": [8.0, 8.5, 9.0, 9.5],
    "mhi": [60.0, 70.0, 80.0, 90.0],
}
PAIRS, TRIPLES = tuple(combinations(BINS, 2))[:5], tuple(combinations(BINS, 3))[:4]
"""Public columns of the tables of three and of four columns, the attribute being the other one."""
RELEASES: dict[str, tuple[Sequence[tuple[str, ...]], Settings]] = {
    "1 table of 2 columns": ([("xage",)], {}),
    "6 tables of 2 columns": ([(c,) for c in BINS], {}),
    "1 table of 3 columns": (PAIRS[:1], {}),
    "5 tables of 3 columns": (PAIRS, {}),
    "1 table of 4 columns": (TRIPLES[:1], {}),
    "4 tables of 4 columns": (TRIPLES, {}),
    "1 table of 4 columns, rounded to 5": (TRIPLES[:1], {"round_to": 5}),
    "1 table of 4 columns, rounded to 10": (TRIPLES[:1], {"round_to": 10}),
    "5 tables of 3 columns, rounded to 5": (PAIRS, {"round_to": 5}),
}
"""The public columns of each table, and what is done against readers."""


def _released(name: str, column: str) -> Case:
    public, settings = RELEASES[name]
    tables = [{"by": [column, *columns]} for columns in public]
    model = {"name": "statistics", "tables": tables, "bins": BINS, **settings}
    return Case(
        config({}, model, "randhie", audit={"attributes": [column]}),
        clients=(),
        quick=name.startswith("1 table of 2"),
    )


TABLES_OF = {f"{n}; {column}": _released(n, column) for n, column in product(RELEASES, ATTRIBUTES)}

# ------------------------------------------------------------------------------------ boosted trees

TREES: Settings = {"name": "xgboost", "eta": 0.1}
"""Flower's bagging, a tree a round and client, XGBoost's defaults otherwise."""


def _boosted(source: str, column: str, records: int, depth: int, objective: str) -> Case:
    model = {**TREES, "objective": objective, "max_depth": depth}
    return Case(
        config({"rounds": 51}, model, source, audit={"attributes": [column]}),
        clients_of(source, records, [min(records, 1000)] * 4, 3000 if source == "adult" else 1000),
        rounds=True,
        cost=60,
    )


BOOSTED = {
    f"{source}, {column}, {records} records, depth {depth}": _boosted(
        source, column, records, depth, objective
    )
    for source, column, records, objective in (
        ("adult", "sex", 1000, "binary:logistic"),
        ("adult", "sex", 3000, "binary:logistic"),
        ("randhie", "black", 900, "reg:squarederror"),
        ("randhie", "physlm", 900, "reg:squarederror"),
    )
    for depth in (6, 8)
}

# ------------------------------------------------------------------------------------ what helps


def plain(name: str, **changes: Any) -> Settings:
    """Nothing but other settings of the program itself."""
    return {"defence": name, "change": {f"model.{k}": v for k, v in changes.items()}}


def defended(name: str, **settings: Any) -> Settings:
    """One defence of the catalogue; its settings are its name in the table."""
    said = ", ".join(f"{k} {v:g}" for k, v in settings.items())
    change = {"defence": [{"name": name, **settings}]}
    return {"defence": f"{name} {said}".strip(), "change": change}


def hidden(rounds: int) -> Settings:
    """Only the sum over all sites is seen, and everybody's records are decoded at once."""
    change = {"defence": [{"name": "secure_sum"}], "training.rounds": rounds}
    who = {"threat": "secure-server", "attacks": ["sum_decode"]}
    return {"defence": "secure_sum", "change": change, **who}


def noisy(*noises: float) -> list[Settings]:
    return [{**defended("dp_sums", clip=2.0, noise=n), "strength": n} for n in noises]


SWEEPS: dict[str, tuple[Settings, list[Settings]]] = {
    "trees": (
        {"data": BINARY, "model": {**TREES, "max_depth": 6}, "training": {"rounds": 20}},
        [
            plain("nothing"),
            defended("leaf_values"),
            *(defended("leaf_values", rounded_to=step) for step in (0.001, 0.01, 0.05)),
            *(plain(f"min_child_weight {w}", min_child_weight=w) for w in (10, 40)),
            plain("subsample 0.5", subsample=0.5),
            plain("depth 3", max_depth=3),
        ],
    ),
    "newton": (
        {"data": BINARY, "model": NEWTON, "training": {"rounds": 4}},
        [plain("nothing"), hidden(2), *noisy(0.01, 0.1, 1.0, 4.0)],
    ),
    "statistics": (
        {
            "data": {"source": "randhie"},
            "model": {
                "name": "statistics",
                "tables": [
                    {"by": ["black", *three]}
                    for three in combinations(("xage", "educdec", "num", "female"), 3)
                ],
                "bins": {name: BINS[name] for name in ("xage", "educdec", "num")},
            },
            "training": {"rounds": 1},
        },
        [
            plain("nothing"),
            hidden(1),
            *(defended("suppress_cells", below=5, zeros=shown) for shown in (True, False)),
            defended("suppress_cells", below=10, zeros=False),
            *(defended("round_counts", to=step) for step in (5, 10)),
            *noisy(0.5, 1.0, 4.0),
        ],
    ),
}
"""``black`` at one site, or from all sites' sums, over three draws of the fifth held out."""


def _tried(each: Cell) -> Settings:
    """One setting, as `overheard sweep` measures it: the lift over the best guess of who does not
    listen, bits a record, what the global model or the tables are worth, and the epsilon for a
    record's values of all rounds together where there is one."""
    base, settings = SWEEPS[each["program"]]
    (setting,) = (s for s in settings if s["defence"] == each.method)
    asked = {"base": base | {"audit": {"attributes": ["black"]}}, "setting": [setting]}
    who = {"attacks": ["max_entropy"], "clients": ["site 5"], "seeds": [each.seed]}
    (one,) = cells(parse_sweep(who | asked))
    found = run_cell(one)
    if found.error:
        raise ValueError(found.error)
    (row,) = found.findings
    values: Settings = {"lift": max(row.lift or 0.0, 0.0), "utility": found.utility}
    values |= {"utility is": found.utility_is, "flagged": row.flagged}
    values |= {"bits": row.calibration.bits} if row.calibration else {}
    if noise := setting.get("strength"):
        rounds = base["training"]["rounds"]
        values["epsilon"] = sampled_gaussian_changed(noise, 1.0, rounds, DELTA)
    return values


def _settings() -> list[Cell]:
    return [
        cell(setting["defence"], seed, cost=20, program=program)
        for program, (_, settings) in SWEEPS.items()
        for setting in settings
        for seed in range(3)
    ]


EXPERIMENTS = (
    experiment("newton", "an attribute from Newton steps, by messages observed", STEPS, (0,)),
    experiment("tables", "an attribute from released tables", TABLES_OF, (0,)),
    experiment("trees", "an attribute from boosted trees, by rounds observed", BOOSTED),
    Experiment("accuracy-defences", "what helps where no network is trained", _tried, _settings),
)


# ------------------------------------------------------------------------------------ for readers


def _only(result: Result, measure: str) -> float:
    """The number of a result that is about one secret."""
    (value,) = result.values[measure].values()
    return float(value)


def _curves(name: str, first: str, rounds: Sequence[int], case: slice, only: str = "") -> str:
    """The share inferred correctly after so many rounds: means over seeds, and over the cases that
    are alike in this part of their names; ``only`` of those that end so."""
    found: dict[str, list[Result]] = {}
    for result in results(name):
        named = str(result.setting["case"])
        if named.endswith(only):
            found.setdefault(", ".join(named.split(", ")[case]), []).append(result)
    rows = []
    for alike, runs in found.items():
        curves = [r.values["by rounds"] for r in runs]
        means = [[c[str(n)] for c in curves if str(n) in c] for n in rounds]
        wrong = sum(_only(r, "certain") - _only(r, "certain_right") for r in runs)
        sure = f"{fmean(_only(r, 'certain') / _only(r, 'n') for r in runs):.0%}, {wrong:.0f} wrong"
        free = [f"{fmean(_only(r, m) for r in runs):.3f}" for m in ("imputation", "majority")]
        rows.append([alike, *(f"{fmean(m):.3f}" if m else "" for m in means), sure, *free])
    heads = [first, *(f"{n} observed" for n in rounds), "known beyond 99% at the end"]
    return table([*heads, "imputation", "majority"], rows)


def released_table() -> str:
    """Every release: how many people's values are proven."""
    found = {str(r.setting["case"]): r for r in results("accuracy-tables")}

    def proven(name: str, column: str) -> str:
        return f"{sum(found[f'{name}; {column}'].values['proven'].values()):,}"

    rows = [[name, *(proven(name, column) for column in ATTRIBUTES)] for name in RELEASES]
    return table(("released, once", *(f"`{a}`" for a in ATTRIBUTES)), rows)


def defended_table(program: str) -> str:
    """What helps one program, setting by setting, means over the draws."""
    rows, worth = [], "worth"
    for setting in SWEEPS[program][1]:
        runs = [r.values for r in results("accuracy-defences")
                if (r.setting["program"], r.method) == (program, setting["defence"])]  # fmt: skip
        if len(runs) < 2:
            continue
        lift, worth = [v["lift"] for v in runs], runs[0]["utility is"]
        bits = [v["bits"] for v in runs if "bits" in v]
        rows.append([
            setting["defence"],
            f"{fmean(lift):.3f} ± {stdev(lift):.3f}",
            f"{fmean(bits):.2f}" if bits else "",
            f"{fmean(v['utility'] for v in runs):.3f}",
            f"{runs[0]['epsilon']:.3g}" if "epsilon" in runs[0] else "",
        ])  # fmt: skip
    return table(["", "lift", "bits a record", worth, "epsilon"], rows)


TABLES = {
    "newton": partial(_curves, "accuracy-newton", "attribute", (1, 2, 5, 7), slice(1, 2)),
    "trees": partial(_curves, "accuracy-trees", "records", (1, 2, 5, 20, 51), slice(3), "depth 6"),
    "released": released_table,
    **{f"defended {program}": partial(defended_table, program) for program in SWEEPS},
}

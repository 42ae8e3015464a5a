"""The papers' pages: every item of a paper beside what it gives here, a picture a figure.

What a paper has, in its order, is ``paper.toml`` in its folder: a verdict, the headline, and a list
of items (algorithm, proposition, table, figure) with the code, and the experiment, if any, that
measures it. ``rows`` and ``columns`` say which parts of a setting (or ``method``, or ``at``, the
label of a value) a table of the paper has where; ``theirs``, which methods are rows; ``ours``, the
method beside them; ``less``: that less is better.

A number is the mean over seeds (of the mean over clients), with Student's 95% interval of three
seeds or more; the paper's beside it is of the same cells. What is not measured is listed with what
it takes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev
from typing import Any

from markupsafe import Markup
from scipy.stats import t as student

from experiments.data import SOURCES
from experiments.pages import Make, table
from experiments.runner import HERE, Cell, Experiment, Values, chosen, experiments, results, todo
from overheard.report.html import title
from overheard.report.svg import Mark, Plane, Scale, picture

PAPERS = ("xu2021", "driouich2022", "lyu2021", "leprovost2023", "kerkouche2023")
OVER = ("client",)
"""Parts of a setting over which a mean is taken, as over the clients of a cell's values."""
OF_METHOD = ("shadows",)
"""Parts of a setting that say how a method was run, and not on what."""
SHARES = ("accuracy", "F1", "Brier score", "cover", "majority")
"""Measures, or parts of their names, that lie between 0 and 1."""
STAND_INS = {"purchase100": "purchase100 (generated)"}
"""Sources that are not the paper's, as every row says."""
Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Line:
    """A number of a table; ``at``: where on a curve it is."""

    setting: str
    method: str
    measure: str
    at: str
    claimed: float | None
    measured: float
    low: float
    high: float
    seeds: int


def points(values: Values) -> Iterator[tuple[str, str, float]]:
    """Every number with its measure and label; a label that is a number is a place on a curve."""
    for measure, value in values.items():
        for label, number in value.items() if isinstance(value, Mapping) else (("", value),):
            if isinstance(number, int | float):
                yield measure, label, float(number)


def is_place(label: str) -> bool:
    return label.replace(".", "", 1).isdigit()


def lines(experiment: Experiment) -> list[Line]:
    """What is measured, setting by setting and method by method."""
    found: dict[Key, dict[int, list[float]]] = {}
    claims: dict[Key, dict[str, list[float]]] = {}
    for result in results(experiment.name):
        each = Cell(tuple(result.setting.items()), result.method, result.seed)
        words = ", ".join(f"{k} {v}" for k, v in _where(each))
        how = (f"{k} {v}" for k, v in each.setting if k in OF_METHOD)
        method = ", ".join([result.method, *how])
        for measure, label, number in points(result.values):
            key = (words, method, measure, label if is_place(label) else "")
            found.setdefault(key, {}).setdefault(result.seed, []).append(number)
        for measure, label, number in points(experiment.claims(each)):
            key = (words, method, measure, label if is_place(label) else "")
            claims.setdefault(key, {}).setdefault(label, []).append(number)
    return [
        Line(*key, _claimed(claims.get(key, {})), *interval(key[2], map(fmean, seeds.values())))
        for key, seeds in found.items()
    ]


def _claimed(by_label: Mapping[str, list[float]]) -> float | None:
    """The mean that the paper prints, else that of what it prints."""
    numbers = by_label.get("mean") or [n for some in by_label.values() for n in some]
    return fmean(numbers) if numbers else None


def interval(measure: str, numbers: Iterable[float]) -> tuple[float, float, float, int]:
    """Mean, ends and count. The ends are where the measure's are: a share is not above 1."""
    values = list(numbers)
    mean, n = fmean(values), len(values)
    reach = float(student.ppf(0.975, n - 1)) * stdev(values) / n**0.5 if n > 2 else 0.0
    low, high = mean - reach, mean + reach
    if any(share in measure for share in SHARES):
        low, high = min(max(low, 0.0), mean), max(min(high, 1.0), mean)
    return mean, low, high, n


def number(value: float | None) -> str:
    """Three decimals, or two digits where these say nothing; of none a dash."""
    if value is None:
        return "–"
    return f"{value:.3f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.2g}"


# ------------------------------------------------------------------ tables in a paper's own layout


@dataclass(frozen=True)
class Square:
    """One number of a paper's table: what it prints, and by method what is measured, by seed."""

    row: tuple[str, ...]
    column: tuple[str, ...]
    rest: tuple[str, ...]
    claimed: float | None
    theirs: Mapping[int, float]
    ours: Mapping[int, float]


def squares(item: Mapping[str, Any]) -> list[Square]:
    """Every number of an item's table, measured or not; ``at`` is the label of a value."""
    experiment, measure = experiments()[item["experiment"]], item["measure"]
    values: dict[tuple[Any, ...], dict[int, dict[str, float]]] = {}
    for result in results(experiment.name):
        each = Cell(tuple(result.setting.items()), result.method)
        for name, label, number in points(result.values):
            if name == measure:
                by_seed = values.setdefault((_where(each), each.method), {})
                by_seed.setdefault(result.seed, {})[label] = number
    wanted: dict[tuple[Any, ...], dict[str, float | None]] = {}
    for each in experiment.cells():
        key = (_where(each), each.method)
        known = {label: n for m, label, n in points(experiment.claims(each)) if m == measure}
        there = {label: None for seen in values.get(key, {}).values() for label in seen}
        wanted.setdefault(key, {}).update(known or there or {"": None})
    found = []
    for (where, method), claims in wanted.items():
        if method == item.get("ours") or method not in item.get("theirs", [method]):
            continue
        for label, claimed in claims.items():
            theirs = _by_seed(values.get((where, method), {}), label, claims)
            ours = _by_seed(values.get((where, item.get("ours")), {}), label, claims)
            parts = {**dict(where), "method": method, "at": label}
            row, column = (
                tuple(str(parts.pop(p, item.get("usual", ""))) for p in item[k])
                for k in ("rows", "columns")
            )
            aside = ("at", "method", *item.get("aside", ()))
            rest = tuple(f"{k} {v}" for k, v in parts.items() if k not in aside)
            found.append(Square(row, column, rest, claimed, theirs, ours))
    return found


def _where(each: Cell) -> tuple[tuple[str, Any], ...]:
    asked = ((k, v) for k, v in each.setting if k not in (*OVER, *OF_METHOD) and v != "")
    return tuple((k, STAND_INS.get(str(v), v)) for k, v in asked)


def _by_seed(
    seeds: Mapping[int, Mapping[str, float]], label: str, labels: Iterable[str]
) -> dict[int, float]:
    """A value of each seed; ``mean`` is over all labels, if all are measured."""
    over = {each for each in labels if each != "mean"} if label == "mean" else {label}
    whole = {seed: seen for seed, seen in seeds.items() if over <= set(seen)}
    return {seed: fmean(seen[at] for at in over or seen) for seed, seen in whole.items()}


def layout(item: Mapping[str, Any]) -> str:
    """The paper's table: paper / theirs here / ours in every cell."""
    parts, found = [], squares(item)
    for rest in dict.fromkeys(square.rest for square in found):
        mine = [square for square in found if square.rest == rest]
        columns = list(dict.fromkeys(square.column for square in mine))
        columns = [c for c in columns if any(c)] or columns
        rows: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
        for one in mine:
            numbers = (_mean(one.theirs.values()), _mean(one.ours.values()))
            cell = " / ".join((number(one.claimed), *numbers))
            rows.setdefault(one.row, {})[one.column] = cell
        if any(rest):
            parts.append(f"*{', '.join(rest)}*")
        heads = [", ".join(item["rows"]), *(", ".join(column) or "all" for column in columns)]
        parts.append(table(heads, [[", ".join(row), *(cells.get(c, "–") for c in columns)]
                                   for row, cells in rows.items()]))  # fmt: skip
    return "\n\n".join(parts)


def _mean(numbers: Iterable[float | None]) -> str:
    known = [n for n in numbers if n is not None]
    return number(fmean(known) if known else None)


def verdict(item: Mapping[str, Any]) -> str:
    """How near theirs is to the paper, and ours to both, and what is missing. A row is reproduced
    whose mean is within .05 of the paper's."""
    if "experiment" not in item:
        return str(item.get("verdict", "in code"))
    experiment = experiments()[item["experiment"]]
    left = todo([experiment])
    if not results(experiment.name):
        return f"not measured yet ({minutes(left)})"
    missing = f"{len(left)} of {len(experiment.cells())} cells not measured yet ({minutes(left)})"
    said = [str(item["verdict"])] if "verdict" in item else []
    found = [s for s in squares(item) if s.theirs] if "measure" in item else []
    claimed = [s for s in found if s.claimed is not None]
    for rest in dict.fromkeys(s.rest for s in claimed):
        mine = [s for s in claimed if s.rest == rest]
        paper = fmean(s.claimed or 0.0 for s in mine)
        here = fmean(fmean(s.theirs.values()) for s in mine)
        rows = [[s for s in mine if s.row == row] for row in dict.fromkeys(s.row for s in mine)]
        near = sum(abs(_apart(row)) <= 0.05 * max(1.0, abs(paper)) for row in rows)
        where = f" ({', '.join(rest)})" if rest else ""
        said.append(f"paper {number(paper)}, here {number(here)}{where}, "
                    f"{near} of {len(rows)} rows within .05")  # fmt: skip
    sign = -1 if item.get("less") else 1
    leads = [
        sign * fmean(s.ours[seed] - s.theirs[seed] for seed in seeds) >= 0
        for s in found
        if (seeds := s.ours.keys() & s.theirs.keys())
    ]
    if leads:
        said.append(f"ours at or ahead of theirs in {sum(leads)} of {len(leads)} cells")
    return "; ".join([*said, *([missing] if left else [])]) or "measured"


def _apart(row: Sequence[Square]) -> float:
    return fmean(fmean(s.theirs.values()) - (s.claimed or 0.0) for s in row)


def minutes(cells: Sequence[tuple[Experiment, Cell]]) -> str:
    return f"{max(1, round(sum(each.cost for _, each in cells) / 60)):,} CPU minutes"


def numbers_table(found: list[Line]) -> str:
    """Every number, of a curve its end and where the paper names a number."""
    last = {(x.setting, x.method, x.measure): x.at for x in found}
    rows = [
        (
            x.setting,
            x.method,
            f"{x.measure} at {x.at}" if x.at else x.measure,
            number(x.claimed),
            number(x.measured) + (f" ({number(x.low)}–{number(x.high)})" if x.seeds > 2 else ""),
            str(x.seeds),
        )
        for x in found
        if x.claimed is not None or x.at == last[x.setting, x.method, x.measure]
    ]
    return table(["setting", "method", "measure", "paper", "here (95%)", "seeds"], rows)


# -------------------------------------------------------------------------------------- pictures


def drawn(experiment: Experiment) -> str:
    """The first measure: a chart a setting if it is a curve, else one over the settings."""
    found = lines(experiment)
    found = [x for x in found if x.measure == found[0].measure]
    methods = list(dict.fromkeys(x.method for x in found))
    settings = list(dict.fromkeys(x.setting for x in found))
    if any(x.at for x in found):
        panels = {s: [(float(x.at), x) for x in found if x.setting == s] for s in settings}
        return picture(
            experiment.name, [(s, _chart(s, p, methods)) for s, p in panels.items()], methods
        )
    numbered = [(settings.index(x.setting) + 1.0, x) for x in found]
    caption = f"{found[0].measure}, by setting in the order of the table"
    return picture(experiment.name, [(caption, _chart(caption, numbered, methods))], methods)


def _chart(name: str, placed: Sequence[tuple[float, Line]], methods: Sequence[str]) -> Markup:
    """A mark and interval for each line, a short stroke for the paper's number."""
    places = sorted({at for at, _ in placed})
    heights = [v for _, x in placed for v in (x.low, x.high, x.claimed) if v is not None]
    low, high = min(heights), max(heights)
    across, up = 0.05 * (places[-1] - places[0]) or 1.0, 0.05 * (high - low) or 1.0
    plane = Plane(
        Scale(places[0] - across, places[-1] + across),
        Scale(low - up, high + up),
        [(at, f"{at:g}") for at in places[:: 1 + len(places) // 15]],
        [(v, f"{v:.3g}") for v in sorted({low, (low + high) / 2, high})],
    )
    marks = []
    for at, x in placed:
        words = f"{x.setting}, {x.method}: {number(x.measured)}"
        marks.append(Mark(at, x.measured, x.low, x.high, words, methods.index(x.method)))
        if x.claimed is not None:
            plane.segment((at - across / 3, at + across / 3), (x.claimed, x.claimed), "limit")
    return plane.drawn(name, marks)


# ----------------------------------------------------------------------------------------- pages


def described(paper: str) -> dict[str, Any]:
    """What ``paper.toml`` says of a paper."""
    return tomllib.loads((HERE / "papers" / paper / "paper.toml").read_text("utf-8"))


def is_drawn(item: Mapping[str, Any]) -> bool:
    there = "experiment" in item and bool(results(item["experiment"]))
    return there and item["name"].startswith("Figure")


def page(paper: str) -> str:
    """The verdict, every item in the paper's order, then its tables and figures one by one."""
    about = described(paper)
    all_of_it = todo(chosen([paper]))
    state = f"Still to be measured: {minutes(all_of_it)}." if all_of_it else "All is measured."
    rows = [
        (item["name"], item["about"], f"`{item['code']}`", *_run(item), verdict(item))
        for item in about["items"]
    ]
    parts = [
        f"# {paper}: {title(paper)}",
        f"**{about['verdict'].strip()}** {state}",
        "Cells are *paper / theirs here / ours*; a dash is not printed there, or not measured yet.",
        table(["item", "what it is", "code", "command", "data", "seeds", "verdict"], rows),
    ]
    for item in about["items"]:
        if "experiment" in item:
            parts += _section(item)
    for name, heading in (
        ("differs", "What does not reproduce, and where ours loses"),
        ("deviations", "What was done where the paper does not say, or differs from it"),
    ):
        parts += [f"## {heading}", "\n".join(f"- {text.strip()}" for text in about[name])]
    return "\n\n".join(parts) + "\n"


def _run(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Command, data and seeds of an item."""
    if "experiment" not in item:
        return "–", "–", "–"
    seeds = len({each.seed for each in experiments()[item["experiment"]].cells()})
    return f"`python -m experiments run {item['experiment']}`", item["data"], str(seeds)


def _section(item: Mapping[str, Any]) -> list[str]:
    experiment = experiments()[item["experiment"]]
    commits = sorted({r.commit for r in results(experiment.name)})
    parts = [f"## {item['name']}: {item['about']}"]
    parts += [f"Measured at {', '.join(commits)}."] if commits else []
    parts += [item["note"].strip()] if "note" in item else []
    if "rows" in item:
        parts.append(layout(item))
    if commits and (is_drawn(item) or "rows" not in item):
        parts.append(numbers_table(lines(experiment)))
    if is_drawn(item):
        parts.append(f"![{item['name']}]({experiment.name}.svg)")
    return parts


def headlines() -> str:
    """A row a paper: its headline as claimed, reproduced and ours; never blank."""
    rows = []
    for paper in PAPERS:
        item = described(paper)["headline"]
        where, left = item.get("where", ""), todo([experiments()[item["experiment"]]])
        found = [s for s in squares(item) if where in ", ".join(s.row + s.column + s.rest)]
        claimed = item.get("claimed") or _mean(s.claimed for s in found)
        row = [f"[{paper}](docs/papers/{paper}.md)", item["about"], claimed]
        for side, method in (("theirs", item["theirs"][0]), ("ours", item["ours"])):
            known = [getattr(s, side).values() for s in found]
            mine = [(one, each) for one, each in left if each.method == method]
            whole = bool(found) and all(known)
            row.append(_mean(map(fmean, known)) if whole else f"not measured yet ({minutes(mine)})")
        rows.append(row)
    return table(["paper", "headline", "claimed", "theirs here", "ours"], rows)


def artifact() -> str:
    """What an artifact's reviewers check: claims with tolerance, minutes and command; the data."""
    rows = []
    for paper in PAPERS:
        for item in (i for i in described(paper)["items"] if "experiment" in i):
            one = experiments()[item["experiment"]]
            whole = [(one, each) for each in one.cells()]
            state = (verdict(item), f"{one.tolerance:g}", minutes(whole), _run(item)[0])
            rows.append((f"{paper}, {item['name']}", item["about"], *state))
    data = []
    for source in SOURCES.values():
        members = source.package.members if source.package else ()
        sums = {**{m.to: m.sha256 for m in members}, **source.sha256}
        data += [(source.name, f"`{file}`", f"`{sha[:16]}…`", source.origin, source.remedy.strip())
                 for file, sha in sums.items()]  # fmt: skip
    head = (HERE / "papers" / "artifact.md").read_text(encoding="utf-8")
    claims = table(["item", "claim", "state", "tolerance", "whole", "command"], rows)
    files = table(["source", "file", "sha256", "origin", "how to get it"], data)
    return head.replace("<!-- claims -->", claims).replace("<!-- data -->", files)


TABLES: dict[str, Make] = {"papers": headlines}


def PAGES() -> dict[str, Make]:  # when asked: the catalogue is not known before
    """A page a paper, a picture a figure that is measured, and what reviewers need."""
    made: dict[str, Make] = {f"docs/papers/{p}.md": partial(page, p) for p in PAPERS}
    figures = {i["experiment"] for p in PAPERS for i in described(p)["items"] if is_drawn(i)}
    pictures = {f"docs/papers/{n}.svg": partial(drawn, experiments()[n]) for n in sorted(figures)}
    return {**made, **pictures, "ARTIFACT.md": artifact}

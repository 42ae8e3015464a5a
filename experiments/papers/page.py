"""The papers' pages: every experiment's numbers beside the paper's, a picture each.

``docs/papers/PAPER.md`` and its pictures are made from ``experiments/results``. A number is the
mean over seeds (of the mean over clients), with Student's 95% interval of three seeds or more; the
paper's beside it is of the same cells. What is not measured is listed with what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev

from markupsafe import Markup
from scipy.stats import t as student

from experiments.pages import Make, table
from experiments.runner import Cell, Experiment, Values, chosen, results, todo
from overheard.report.html import title
from overheard.report.svg import Mark, Plane, Scale, picture

PAPERS = ("xu2021", "lyu2021", "driouich2022", "leprovost2023", "kerkouche2023")
OVER = ("client",)
"""Parts of a setting over which a mean is taken, as over the clients of a cell's values."""
OF_METHOD = ("shadows",)
"""Parts of a setting that say how a method was run, and not on what."""
SHARES = ("accuracy", "F1", "Brier score", "cover", "majority")
"""Measures, or parts of their names, that lie between 0 and 1."""
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
        said = {k: f"{k} {v}" for k, v in result.setting.items() if k not in OVER and v != ""}
        words = ", ".join(text for name, text in said.items() if name not in OF_METHOD)
        method = ", ".join([result.method, *(said[name] for name in OF_METHOD if name in said)])
        each = Cell(tuple(result.setting.items()), result.method, result.seed)
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


def number(value: float) -> str:
    """Three decimals, or two digits where these say nothing."""
    return f"{value:.3f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.2g}"


def numbers_table(found: list[Line]) -> str:
    """Every number, of a curve its end and where the paper names a number."""
    last = {(x.setting, x.method, x.measure): x.at for x in found}
    rows = [
        (
            x.setting,
            x.method,
            f"{x.measure} at {x.at}" if x.at else x.measure,
            "" if x.claimed is None else number(x.claimed),
            number(x.measured) + (f" ({number(x.low)}–{number(x.high)})" if x.seeds > 2 else ""),
            str(x.seeds),
        )
        for x in found
        if x.claimed is not None or x.at == last[x.setting, x.method, x.measure]
    ]
    return table(["setting", "method", "measure", "claimed", "measured (95%)", "seeds"], rows)


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


def page(paper: str) -> str:
    """Every experiment of a paper."""
    about = f"experiments/papers/{paper}/README.md"
    parts = [
        f"# {paper}\n\n{title(paper)}. What the paper claims, what was done where it does not say, "
        f"and what does not reproduce: `{about}`."
    ]
    for one in chosen([paper]):
        rest = todo([one])
        hours = sum(each.cost for _, each in rest) / 3600
        measured, commits = len(one.cells()) - len(rest), {r.commit for r in results(one.name)}
        parts.append(
            f"## {one.name}\n\n{one.about[0].upper()}{one.about[1:]}. `python -m experiments run "
            f"{one.name}`: {measured} of {len(one.cells())} cells measured"
            + (f" (commits {', '.join(sorted(commits))})" if commits else "")
            + (f"; the others take about {hours:.1f} hours." if rest else ".")
        )
        if measured:
            parts += [f"![{one.name}]({one.name}.svg)", numbers_table(lines(one))]
    return "\n\n".join(parts) + "\n"


def PAGES() -> dict[str, Make]:  # when asked: the catalogue is not known before
    """Of what was measured a page a paper and a picture an experiment."""
    done = [one for paper in PAPERS for one in chosen([paper]) if results(one.name)]
    papers = dict.fromkeys(one.name.partition("-")[0] for one in done)
    made: dict[str, Make] = {f"docs/papers/{p}.md": partial(page, p) for p in papers}
    return made | {f"docs/papers/{one.name}.svg": partial(drawn, one) for one in done}

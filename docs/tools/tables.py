"""The tables of README and docs, made from the code and from papers/*/*.json, never typed.

``python docs/tools/tables.py`` runs the demo (not with ``--no-demo``), keeps its audits in
docs/assets/demo, and writes the tables into README.md and docs/ between their markers; tests say
when that was forgotten. `comparisons` says what is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # papers/ is not in the package

from comparisons import COMPARISONS, MEAN, Shown, interval, shown
from pages import PAGES, ROOT, table
from recipes import recipe_table
from released import defended_table, newton_table, released_table
from screenshots import demo_audits, take_audits
from speeds import growth_table, speed_table
from trees import certain_table, curve_table

from overheard.attacks import all_attacks, equation, is_slow, words
from overheard.evaluation.record import Audit
from overheard.questions.question import all_questions
from overheard.report import words as words_of
from overheard.report.references import title
from papers.common.harness import GIVEN

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
BY_BIN = ("reliability", GIVEN)
"""Of bins of probability, over which no mean is of use."""
QUESTIONS = {asked.name: asked.asks for asked in all_questions().values()}
SHORT = {
    "individual updates": "updates",
    "individual messages": "messages",
    "what clients do": "program",
    "local training recipe": "recipe",
    "public records": "records",
    "attribute domain": "values",
    "attribute prior": "shares",
    "auxiliary data": "elsewhere",
    "candidate pool": "pool",
    **dict.fromkeys(("sums of updates", "sums of messages"), "sums"),
}


def reproductions() -> dict[str, dict[str, Any]]:
    """Every committed experiment by its name, a part of one by its folder as well."""
    found = {}
    for path in sorted([*ROOT.glob("papers/*/*.json"), *ROOT.glob("papers/*/*/*.json")]):
        content = json.loads(path.read_text(encoding="utf-8"))
        if {"name", "paper", "rows"} <= content.keys():  # other results have other forms
            where = path.relative_to(ROOT)
            part = f", {where.parts[2]}" if len(where.parts) > 3 else ""
            found[content["name"] + part] = {**content, "path": str(where)}
    return found


def attack_table() -> str:
    """Question, attack, what it must know, paper, claimed and measured numbers."""
    experiments = reproductions()
    measured = {
        attack: (*_numbers(found), f"[{known.about}](papers/{known.experiment.split('-')[0]})")
        for known in COMPARISONS
        for attack in known.methods
        if (found := shown(known, attack, experiments[known.experiment]))
    }
    rows = []
    for name, attack in sorted(
        all_attacks().items(), key=lambda item: (list(QUESTIONS).index(item[1].question), item[0])
    ):
        needs = ", ".join(SHORT.get(kind, kind) for kind in sorted(k.name for k in attack.needs))
        paper = {"overheard": "ours", "baseline": "a guess"}.get(attack.paper, attack.paper)
        numbers = measured.get(name, ("",) * 5)
        rows.append((attack.question, f"`{name}`", needs, paper, *numbers))
    heads = ["question", "attack", "knows", "from", "claimed", "measured (95%)", "majority",
             "cells × repetitions", "on"]  # fmt: skip
    return table(heads, rows)


def _numbers(found: Shown) -> tuple[str, str, str, str]:
    return (
        "" if found.claimed is None else number(found.claimed),
        f"{number(found.measured)} ({number(found.low)}–{number(found.high)})",
        "" if found.majority is None else number(found.majority),
        found.over,
    )


def question_table() -> str:
    """The questions in words."""
    return table(["question", "asks"], [(f"`{k}`", v) for k, v in QUESTIONS.items()])


def attack_pages() -> str:
    """Every attack in words, with its equation."""
    lines = []
    for question, asks in QUESTIONS.items():
        named = {n: a for n, a in all_attacks().items() if a.question == question}
        lines += [f"### {asks[0].upper()}{asks[1:]}", ""] if named else []
        for name, attack in named.items():
            slow = " Runs only when named, or with `--slow`." if is_slow(attack) else ""
            lines += [f"**`{name}`** ({title(attack.paper)}). {words(attack)}{slow}", ""]
            if equation(attack):
                lines += [f"    {equation(attack)}", ""]
    return "\n".join(lines)


def paper_tables() -> str:
    """Claimed beside measured for every committed experiment, means over clients."""
    lines: list[str] = []
    by_paper: dict[str, dict[str, dict[str, Any]]] = {}
    for name, content in reproductions().items():
        by_paper.setdefault(content["paper"], {})[name] = content
    for paper, contents in by_paper.items():
        lines += [f"## {paper}", "", f"{title(paper)}.", ""]
        for name, content in contents.items():
            lines += [f"### {name}", ""]
            kind = "a quick run" if content["quick"] else "the whole run"
            lines += [
                f"Data: {content['data']}. {kind[0].upper()}{kind[1:]}, seeds: {content['seeds']}, "
                f"by `python -m papers {content['name']}`. Means over clients; every row is in "
                f"`{content['path']}`.",
                "",
                _experiment(content["rows"]),
                "",
            ]
    return "\n".join(lines)


def _experiment(rows: Sequence[dict[str, Any]]) -> str:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["measure"] in BY_BIN:
            continue
        groups.setdefault((row["measure"], row["setting"], row["method"]), []).append(row)
    cells = []
    for (measure, setting, method), group in groups.items():
        if len(group) > 1 and all(row["client"].startswith("round ") for row in group):
            cells += _over_rounds(setting, method, measure, group)
        else:
            cells.append((setting, method, measure, *_one_line(group)))
    heads = ["setting", "method", "measure", "claimed", "measured (95%)", "majority", "cells"]
    return table(heads, cells)


def _one_line(group: Sequence[dict[str, Any]]) -> tuple[str, str, str, str]:
    """Claimed and measured over the same cells: the row of means if there is one, with the clients'
    interval; else the cells that the paper prints, and what the others add in brackets."""
    parts = [row for row in group if row["client"] != MEAN]
    means = [row for row in group if row["client"] == MEAN]
    printed = [row for row in parts if row["claimed"] is not None]
    used = means or printed or parts
    claimed = [row["claimed"] for row in used if row["claimed"] is not None]
    majority = [row["majority"] for row in used if row["majority"] is not None]
    span = interval(used, parts if means else ())
    text = number(fmean(row["measured"] for row in used))
    text += "" if span is None else f" ({number(span[0])}–{number(span[1])})"
    if not means and printed and len(printed) < len(parts):
        text += f"; {number(fmean(row['measured'] for row in parts))} over all {len(parts)}"
    return (
        number(fmean(claimed)) if claimed else "",
        text,
        number(fmean(majority)) if majority else "",
        str(len(parts if means else used)),
    )


def _over_rounds(
    setting: str, method: str, measure: str, group: Sequence[dict[str, Any]]
) -> list[tuple[str, ...]]:
    """A curve over the rounds: where the paper names a number, and a few points besides."""
    wanted = {"round 10", "round 30", "round 50", "round 100", "round 200", group[-1]["client"]}
    return [
        (setting, method, f"{measure}, {row['client']}",
         "" if row["claimed"] is None else number(row["claimed"]),
         number(row["measured"]), "", "1")
        for row in group
        if row["client"] in wanted or row["claimed"] is not None
    ]  # fmt: skip


def number(value: float) -> str:
    """Three decimals, or two digits where these say nothing."""
    return f"{value:.3f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.2g}"


def demo_table(audits: Sequence[Audit] = ()) -> str:
    """What the demo finds over all people; by default from the audits that were committed."""
    audits = audits or demo_audits()
    rows = []
    secrets = dict.fromkeys(row.attribute for row in audits[0].pooled if row.attribute)
    for secret in secrets:
        best = [
            next(r for r in a.pooled if r.attribute == secret and r.attack == "max_entropy")
            for a in audits
        ]
        guesses = [words_of.percent(v or 0.0, 1) for v in (best[0].majority, best[0].imputation)]
        got = [words_of.interval(b.value, b.low, b.high, 1) for b in best]
        known = [b.calibration for b in best]
        sure = [f"{c.certain:,} of {b.n:,}" if c else "" for b, c in zip(best, known, strict=True)]
        rows.append((secret, *guesses, got[0], sure[0], got[1], sure[1]))
    rounds = [a.run.rounds for a in audits]
    heads = [
        "attribute", "commonest value", "a stranger",
        f"linear model, {rounds[0]} rounds", "known beyond 99%",
        f"network, {rounds[1]} round", "known beyond 99%",
    ]  # fmt: skip
    return table(heads, rows)


MARKED = {
    "attacks": attack_table,
    "questions": question_table,
    "demo": demo_table,
    "speeds": speed_table,
    "growth": growth_table,
    "recipes": recipe_table,
    "released": released_table,
    "newton": newton_table,
    "trees": curve_table,
    "trees certain": certain_table,
    **{f"defended {p}": partial(defended_table, p) for p in ("trees", "newton", "statistics")},
}
FILLED = [page for page in PAGES if "<!-- table: " in (ROOT / page).read_text(encoding="utf-8")]


def filled(text: str) -> str:
    """The text with every table between ``<!-- table: NAME -->`` markers made anew."""
    for name, make in MARKED.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        if start in text:
            before, _, rest = text.partition(start)
            _, _, after = rest.partition(end)
            text = f"{before}{start}{make()}\n{end}{after}"
    return text


def run_demo(folder: Path) -> Path:
    """Run `overheard demo` (about a minute); returns the folder of its audits."""
    words = [sys.executable, "-m", "overheard", "--quiet", "demo", "--out", str(folder)]
    threads = dict.fromkeys(THREADS, "1")
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **threads})
    return folder


def main() -> None:
    """Write the tables into the files that have them; the demo is run first, for its numbers."""
    if "--no-demo" not in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            take_audits(run_demo(Path(folder) / "demo"))
    for name in FILLED:
        page = ROOT / name
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

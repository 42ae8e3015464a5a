"""The tables of README and docs, made from the code and from papers/*/*.json, never typed.

``python docs/tools/tables.py`` writes them into README.md and docs/reliability.md between their
markers; a test says when that was forgotten. The documentation's build puts them into the pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from speeds import growth_table, speed_table
from trials import reliability_tables

from overheard.attacks import all_attacks, equation, is_slow, words
from overheard.evaluation.record import read_audit
from overheard.report import words as words_of
from overheard.report.references import PAPERS, title

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = {
    "local_model": "which model would the client have trained alone?",
    "attribute": "which value does an attribute have, for every record?",
    "label": "which labels do the records have?",
    "membership": "who of a pool of people is in the client's data?",
    "property": "which clients hold a given record, poison or ride for free?",
}
SHORT = {
    "individual updates": "updates",
    "sums of updates": "sums",
    "local training recipe": "recipe",
    "public records": "records",
    "attribute domain": "values",
    "attribute prior": "shares",
    "auxiliary data": "elsewhere",
    "candidate pool": "pool",
    "group counts": "counts",
}


@dataclass(frozen=True)
class Headline:
    """Which of the committed numbers stands for an attack: the mean over the rows that match.

    ``experiment`` is how the experiment's name begins; one that is not committed gives no number.
    """

    experiment: str
    method: str
    measure: str
    about: str
    setting: str = ""
    client: str = ""


HEADLINES = {
    "max_entropy": Headline("driouich2022-table1-adult", "max_entropy", "accuracy", "Adult, sex"),
    "joint_decode": Headline("lyu2021-labels", "joint_decode", "accuracy", "labels unknown"),
    "model_based_local": Headline("driouich2022-table1-adult", "local", "accuracy", "Adult, sex"),
    "model_based_last_returned": Headline(
        "driouich2022-table1-adult", "last returned", "accuracy", "Adult, sex"
    ),
    "model_based_global": Headline("driouich2022-table1-adult", "global", "accuracy", "Adult, sex"),
    "model_based_linear": Headline(
        "driouich2022-table1-flights", "local", "accuracy", "fares, direct", "direct"
    ),
    "l2_lbfgs": Headline("driouich2022-table1-adult", "l2_lbfgs", "accuracy", "Adult, sex"),
    "gumbel": Headline("driouich2022-table1-adult", "gumbel", "accuracy", "Adult, sex"),
    "cos_matching": Headline(
        "lyu2021-table3", "cos_matching", "accuracy", "Location-30, c069", "location30, c069"
    ),
    "statistics": Headline(
        "lyu2021-table3", "statistics", "accuracy", "Location-30, c069", "location30, c069"
    ),
    "public_model": Headline(
        "lyu2021-table3", "public1000", "accuracy", "Location-30, c069", "location30, c069"
    ),
    "random": Headline(
        "lyu2021-table3", "random", "accuracy", "Location-30, c069", "location30, c069"
    ),
    "structured": Headline("xu2021-table1", "structured", "local accuracy", "LEAF synthetic"),
    "learned_map": Headline("xu2021-table1", "learned_map", "local accuracy", "LEAF synthetic"),
    "last_returned": Headline("xu2021-table1", "last_returned", "local accuracy", "LEAF synthetic"),
    "global_model": Headline("xu2021-table1", "global_model", "local accuracy", "LEAF synthetic"),
    "bayes_groups": Headline(
        "leprovost2023-fig1", "bayes_groups", "median absolute error of group means",
        "wages, error", "epoch 5",
    ),
    "group_means_pinv": Headline(
        "leprovost2023-fig1", "group_means_pinv", "median absolute error of group means",
        "wages, error", "epoch 5",
    ),
    "group_means_tikhonov": Headline(
        "leprovost2023-fig1", "group_means_tikhonov", "median absolute error of group means",
        "wages, error", "epoch 5",
    ),
    "naive": Headline(
        "leprovost2023-fig1", "naive", "median absolute error of group means",
        "wages, error", "epoch 5",
    ),
    "auxiliary_mean": Headline(
        "leprovost2023-fig1", "auxiliary_mean", "median absolute error of group means",
        "wages, error", "epoch 5",
    ),
    "gradient_variance_gmm": Headline(
        "lyu2021-table11", "gmm", "accuracy", "Location-30, membership"
    ),
    "candidate_decode": Headline(
        "lyu2021-table11", "candidate_decode", "accuracy", "Location-30, membership"
    ),
    **{
        attack: Headline(
            "kerkouche2023-fig3, fashion-10-full", method, measure,
            "who holds one record, F1 at round 50", client="round 50",
        )
        for attack, method, measure in (
            ("gradient_disaggregation", "BASELINE", "F1"), ("ols", "OLS", "F1"),
            ("ridge", "REG", "F1"), ("prolin", "PROLIN", "F1"),
            ("matched_filter", "matched_filter", "F1, the others' targets"),
        )
    },
}  # fmt: skip


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
    rows = []
    for name, attack in sorted(
        all_attacks().items(), key=lambda item: (list(QUESTIONS).index(item[1].question), item[0])
    ):
        needs = ", ".join(SHORT.get(kind, kind) for kind in sorted(k.name for k in attack.needs))
        rows.append((attack.question, f"`{name}`", needs, _paper(attack.paper),
                     *_numbers(HEADLINES.get(name), experiments)))  # fmt: skip
    heads = ["question", "attack", "knows", "from", "claimed", "measured", "on"]
    return _table(heads, rows)


def question_table() -> str:
    """The questions in words."""
    return _table(["question", "asks"], [(f"`{k}`", v) for k, v in QUESTIONS.items()])


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
                f"by `overheard reproduce {content['name']}`. Means over clients; every row is in "
                f"`{content['path']}`.",
                "",
                _experiment(content["rows"]),
                "",
            ]
    return "\n".join(lines)


def _experiment(rows: Sequence[dict[str, Any]]) -> str:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["measure"], row["setting"], row["method"]), []).append(row)
    cells = []
    for (measure, setting, method), group in groups.items():
        claimed = [row["claimed"] for row in group if row["claimed"] is not None]
        same = [row["measured"] for row in group if row["claimed"] is not None]
        majority = [row["majority"] for row in group if row["majority"] is not None]
        beside = (
            f" ({_number(fmean(same))} on the same)" if claimed and len(same) < len(group) else ""
        )
        if len(group) > 1 and all(row["client"].startswith("round ") for row in group):
            cells += _over_rounds(setting, method, measure, group)
            continue
        cells.append((setting, method, measure,
                      _number(fmean(claimed)) if claimed else "",
                      _number(fmean(row["measured"] for row in group)) + beside,
                      _number(fmean(majority)) if majority else "", str(len(group))))  # fmt: skip
    heads = ["setting", "method", "measure", "claimed", "measured", "majority", "rows"]
    return _table(heads, cells)


def _over_rounds(
    setting: str, method: str, measure: str, group: Sequence[dict[str, Any]]
) -> list[tuple[str, ...]]:
    """A curve over the rounds: where the paper names a number, and a few points besides."""
    wanted = {"round 10", "round 30", "round 50", "round 100", "round 200", group[-1]["client"]}
    return [
        (setting, method, f"{measure}, {row['client']}",
         "" if row["claimed"] is None else _number(row["claimed"]),
         _number(row["measured"]), "", "1")
        for row in group
        if row["client"] in wanted or row["claimed"] is not None
    ]  # fmt: skip


def _numbers(headline: Headline | None, experiments: dict[str, Any]) -> tuple[str, str, str]:
    if headline is None:
        return "", "", ""
    asked = [c for name, c in experiments.items() if name.startswith(headline.experiment)]
    if not asked:
        return "", "", ""
    rows = [
        row
        for content in asked
        for row in content["rows"]
        if row["method"] == headline.method
        and row["measure"] == headline.measure
        and headline.setting in ("", row["setting"])
        and headline.client in ("", row["client"])
    ]
    if not rows:
        raise ValueError(f"{headline} matches no row; mend docs/tools/tables.py")
    claimed = [row["claimed"] for row in rows if row["claimed"] is not None]
    majority = [row["majority"] for row in rows if row["majority"] is not None]
    measured = _number(fmean(row["measured"] for row in rows))
    if majority:
        measured += f" (majority {_number(fmean(majority))})"
    source = f"[{headline.about}](papers/{headline.experiment.split('-')[0]})"
    return _number(fmean(claimed)) if claimed else "", measured, source


def _number(value: float) -> str:
    return f"{value:.3f}" if 1e-3 <= abs(value) < 1e3 else f"{value:.2g}"


def _paper(short: str) -> str:
    return {"overheard": "ours", "baseline": "a guess"}.get(short, short)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [heads, ["---"] * len(heads), *rows]
    safe = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in safe)


def demo_table() -> str:
    """What the demo finds over all people, from the audits that it wrote."""
    audits = [
        read_audit(ROOT / "docs" / "assets" / "demo" / f"{name}.json")
        for name in ("linear", "network")
    ]
    rows = []
    secrets = dict.fromkeys(row.attribute for row in audits[0].pooled if row.attribute)
    for secret in secrets:
        best = [
            next(r for r in a.pooled if r.attribute == secret and r.attack == "max_entropy")
            for a in audits
        ]
        guesses = [words_of.percent(v or 0.0, 1) for v in (best[0].majority, best[0].imputation)]
        got = [words_of.interval(b.value, b.low, b.high, 1) for b in best]
        sure = [f"{b.sure.certain:,} of {b.n:,}" if b.sure is not None else "" for b in best]
        rows.append((secret, *guesses, got[0], sure[0], got[1], sure[1]))
    rounds = [a.run.rounds for a in audits]
    heads = [
        "attribute", "commonest value", "a stranger",
        f"linear model, {rounds[0]} rounds", "known beyond 99%",
        f"network, {rounds[1]} round", "known beyond 99%",
    ]  # fmt: skip
    return _table(heads, rows)


MARKED = {
    "attacks": attack_table,
    "questions": question_table,
    "demo": demo_table,
    "reliability": reliability_tables,
    "speeds": speed_table,
    "growth": growth_table,
}
FILLED = ("README.md", "docs/reliability.md", "docs/benchmarks.md")


def filled(text: str) -> str:
    """The text with every table between ``<!-- table: NAME -->`` markers made anew."""
    for name, make in MARKED.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        if start in text:
            before, _, rest = text.partition(start)
            _, _, after = rest.partition(end)
            text = f"{before}{start}{make()}\n{end}{after}"
    return text


def main() -> None:
    """Write the tables into the files that have them."""
    unknown = sorted({a.paper for a in all_attacks().values()} - {*PAPERS, "overheard", "baseline"})
    if unknown:
        sys.exit(f"papers without an entry in report/references.py: {', '.join(unknown)}")
    for name in FILLED:
        page = ROOT / name
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

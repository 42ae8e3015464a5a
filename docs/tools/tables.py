"""The tables of README and docs, made from the code and from results, never typed.

``python docs/tools/tables.py`` runs the demo (not with ``--no-demo``), keeps its audits in
docs/assets/demo, and writes the tables into README.md and docs/ between their markers; tests say
when that was forgotten.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pages import PAGES, ROOT, table
from recipes import recipe_table
from screenshots import demo_audits, take_audits

from overheard.attacks import all_attacks, equation, is_slow, words
from overheard.evaluation.record import Audit
from overheard.questions.question import all_questions
from overheard.report import words as words_of
from overheard.report.references import title

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
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


def attack_table() -> str:
    """Question, attack, what it must know, paper."""
    rows = []
    for name, attack in sorted(
        all_attacks().items(), key=lambda item: (list(QUESTIONS).index(item[1].question), item[0])
    ):
        needs = ", ".join(SHORT.get(kind, kind) for kind in sorted(k.name for k in attack.needs))
        paper = {"overheard": "ours", "baseline": "a guess"}.get(attack.paper, attack.paper)
        rows.append((attack.question, f"`{name}`", needs, paper))
    return table(["question", "attack", "knows", "from"], rows)


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
    "recipes": recipe_table,
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

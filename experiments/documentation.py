"""What README and docs say of the code itself: attacks, questions, the demo's numbers and pictures.

``docs/assets/demo/*.json`` are the audits that `overheard demo` writes. Its report is rendered from
them, photographed in headless Chromium, and its hash kept beside the pictures, so that a test sees
when a picture outlives its page. ``python -m experiments demo`` makes all of it anew.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import re
import shutil
import subprocess  # nosec B404
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer.main

from experiments.pages import ROOT, table
from overheard.attacks import all_attacks, equation, is_slow, words
from overheard.cli import app
from overheard.cli.catalogue import every_key, kind_of, only
from overheard.errors import FixConfig
from overheard.evaluation.record import Audit, read_audit
from overheard.federation.reading import Key
from overheard.questions.question import all_questions
from overheard.report import render
from overheard.report import words as words_of
from overheard.report.html import CHROMIUM, title

ASSETS = ROOT / "docs" / "assets" / "demo"
NAMES = ("linear", "network")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
QUESTIONS = {asked.name: asked.asks for asked in all_questions().values()}


def attack_table() -> str:
    """Question, attack, what it must know, paper."""
    rows = []
    order = list(QUESTIONS)
    for attack in sorted(all_attacks().values(), key=lambda a: (order.index(a.question), a.name)):
        needs = ", ".join(sorted(kind.name for kind in attack.needs))
        paper = {"overheard": "ours", "baseline": "a guess"}.get(attack.paper, attack.paper)
        rows.append((attack.question, f"`{attack.name}`", needs, paper))
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


def command_pages(group: Any = None, above: str = "") -> str:
    """Every command with its arguments and options, as its help says; of groups those inside."""
    text = ""
    top: Any = group or typer.main.get_command(app)
    for name, one in top.commands.items():
        if hasattr(one, "commands"):
            text += command_pages(one, f"{name} ")
            continue
        text += f"## {above}{name}\n\n{inspect.cleandoc(one.help)}\n\n{one.epilog or ''}\n\n"
        for p in one.params:
            what = ", ".join(f"`{option}`" for option in (*p.opts, *p.secondary_opts))
            what = what if p.param_type_name == "option" else f"`{p.human_readable_name}`"
            text += f"- {what}: {p.help}{' Required.' if p.required else ''}\n"
        text += "\n"
    return text


def configuration() -> str:
    """The reference as Markdown: a section a table, a line a key; what several kinds of a table
    have alike stands at the first."""
    lines, there = [""], dict[tuple[str, ...], str]()
    for k in every_key():
        at, _, name = k.path.rpartition(".")
        heading = f"## {f'`[{at}]`' if at else 'Top level'}{kind_of(k)}"
        if heading not in lines:
            about = " ".join((k.table.__doc__ or "").split()).partition(". ")[0].rstrip(".")
            lines += ["", heading, "", f"{about}.", ""]
        again = there.setdefault((k.path, k.values, k.default, k.meaning), heading) != heading
        if k.default != f'"{kind_of(k)[2:-1]}"' and not again:
            lines.append(_key_line(k, name))
    return "\n".join(lines[2:]).replace("``", "`")


def _key_line(k: Key, name: str) -> str:
    """One line of the page: the key with its default, else with an example; of words, which."""
    if k.default and "required" not in k.default:
        begin = f"`{name} = {k.default}`"
    else:
        begin = f"*`{k.example or name}`*" + (" **required**" if k.default else "")
    words = re.findall(r'"[\w:-]+"', k.values)
    others = [word for word in words if word not in begin and word.strip('"') not in k.meaning]
    more = f" ({'or ' if words[0] in begin else ''}{', '.join(others)})" if others else ""
    mark = {"simulations": "†", "recordings": "‡"}.get(only(k).strip("(").split(" ")[0], "")
    return f"- {begin}{mark}{more}: {k.meaning}"


def demo_audits(folder: Path | None = None) -> list[Audit]:
    """The audits of the demo's two federations: those committed, or of a new demo."""
    if folder is None:
        return [read_audit(ASSETS / f"{name}.json") for name in NAMES]
    return [read_audit(folder / name / "audit.json") for name in NAMES]


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
        sure = [f"{c.known:,} of {b.n:,}" if c else "" for b, c in zip(best, known, strict=True)]
        rows.append((secret, *guesses, got[0], sure[0], got[1], sure[1]))
    rounds = [a.run.rounds for a in audits]
    heads = [
        "attribute", "commonest value", "imputation",
        f"linear model, {rounds[0]} rounds", "known beyond 99%",
        f"network, {rounds[1]} round", "known beyond 99%",
    ]  # fmt: skip
    return table(heads, rows)


TABLES = {"demo": demo_table, "configuration": configuration}


# ----------------------------------------------------------------------------------- the demo anew

SHOTS = (
    ("report-light.png", (1240, 1000), "light", "#first"),
    ("report-sure.png", (1240, 760), "light", "#sure"),
    ("report-phone-dark.png", (390, 844), "dark", "#first"),
)
"""File, size, colours, and what stands at the top."""


def run_demo(folder: Path) -> Path:
    """Run `overheard demo` (about a minute); returns the folder of its audits."""
    asked = [sys.executable, "-m", "overheard", "--quiet", "demo", "--out", str(folder)]
    threads = dict.fromkeys(THREADS, "1")
    subprocess.run(  # nosec B603  # our own command
        asked, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **threads}
    )
    return folder


def take_demo() -> None:
    """Run the demo and keep its audits, measured seconds aside: those differ from run to run."""
    with tempfile.TemporaryDirectory() as place:
        folder = run_demo(Path(place) / "demo")
        for name in NAMES:
            record = json.loads((folder / name / "audit.json").read_text(encoding="utf-8"))
            for finding in (*record["findings"], *record["pooled"], *record["curves"]):
                finding["seconds"] = float(f"{finding['seconds']:.1g}")
            text = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
            (ASSETS / f"{name}.json").write_text(text, encoding="utf-8")


def demo_page() -> str:
    """The demo's report, as `overheard demo` writes it."""
    return render(demo_audits()[-1])


def page_hash(page: str) -> str:
    """What is kept beside the pictures."""
    return hashlib.sha256(page.encode()).hexdigest()


def chromium() -> str | None:
    """Where the browser is."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def photograph() -> None:
    """Write the pictures of the demo's report, and note its hash."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    where, text = chromium(), demo_page()
    if where is None:
        raise FixConfig("no Chromium found; on Debian: apt install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        file = Path(folder) / "report.html"
        file.write_text(text, encoding="utf-8")
        quiet = ["--no-sandbox", "--disable-background-networking"]
        browser = play.chromium.launch(executable_path=where, args=quiet)
        for name, (width, height), colours, start in SHOTS:
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if colours == "dark" else "light",
            )
            page.goto(file.as_uri())
            page.evaluate("document.querySelectorAll('.annex').forEach(d => d.open = true)")
            page.evaluate(f"document.querySelector({start!r}).scrollIntoView()")
            image = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
            image.convert("RGB").quantize(64).save(ASSETS / name, optimize=True)
            page.close()
        browser.close()
    (ASSETS / "page.sha256").write_text(page_hash(text) + "\n", encoding="utf-8")

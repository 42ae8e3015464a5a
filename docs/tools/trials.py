"""The tables of docs/reliability.md, made from reliability/*.json: no figure there is typed.

Each file is ``{"title", "command", "rows": [{"what", "trials", "faults", "outcome"}]}`` and was
written by the command that it names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "reliability"
TRIALS = {
    "chaos": "A process is killed with `kill -9`: at an instant drawn from the clock, right before "
    "a file-system call, or there after the bytes that were not yet synced are cut at random, as a "
    "power cut would. A fault is a kill that hit the process while it ran; whatever can be resumed "
    "is resumed, and killed again up to twice on the way.",
    "damage": "One bit is flipped in a small recording, drawn from each region of its files, and "
    "the recording is verified; some are then audited, without and with `--ignore-damage`.",
    "disks": "Each command writes to a disk of its own that is too small, and is given again once "
    "there is room; is told to write into a folder that is mounted read-only; and is given a "
    "second time while the first is stopped in the middle of a file.",
    "attempts": "One tiny file for every way to harm whoever opens it that we could think of, each "
    "with the error that it must get.",
    "fuzz": "The readers are fed what a fuzzer makes of good files: a clean error or a right "
    "answer, never a crash, a wait or more memory than is stated.",
    "numbers": "What is claimed of the numbers is simulated: intervals that must hold the truth, "
    "probabilities that must be calibrated, fast code that must agree with slow code.",
    "null_audits": "Attacks listen to simulated federations, and their answers are scored against "
    "coin flips of which no message tells anything. Each trial is a whole audit; whatever it calls "
    "exposed is false.",
    "compare": "Two audits of the same clients and records are drawn, between which a known share "
    "of records more is guessed right, or none, and compared as `overheard compare` does. A fault "
    "is a kind of change that is shown too seldom, or seen too often where there is none.",
    "replays": "Federations are simulated by clients that train as declared, or otherwise, and "
    "each client is replayed on its own records. A fault is a kind of federation in which more "
    "clients that did as declared are called unfit than may be.",
    "identify": "Federations are simulated with every optimiser, batch size and number of epochs, "
    "rates within a factor of 100, columns scaled together or per client; their messages and the "
    "table of records are given to the search of `overheard init --data`, and the check of fit is "
    "asked about the true description and wrong ones. A fault is a trial in which the line is "
    "missed. Of answers that were the truth one in four is decoded under, of others each.",
    "collapses": "Clients train in mini-batches, or hold members and labels that nobody knows, on "
    "tables for which no decoder was made; every yes-or-no secret is asked again recoded from x to "
    "1 - x. A fault is an answer without a flag that is surer than right by more than five points "
    "and three standard errors.",
    "unseen": "Clients train networks in mini-batches on two tables that nobody here had used, in "
    "forty ways that were written down before any was run; every yes-or-no secret is asked again "
    "recoded from x to 1 - x, and some secrets by a listener who is wrong about the learning rate. "
    "A fault is an answer without a flag that is surer than right, as above, an accuracy that "
    "recoding changes beyond noise, or a share or mean that is not what is wanted.",
    "preflight": "Federations of all kinds are drawn, simulated and audited; each client has asked "
    "`overheard preflight` before, with another seed: from its own records alone, and with the "
    "whole config. A trial is a secret of a client, or of all clients together; a fault is one "
    "that the audit calls exposed and preflight had called ok. The last lines say what caution "
    "costs: what preflight answered where the audit found less.",
    "processors": "Every attack is launched on the same recording, and every federation recorded "
    "anew, with the arithmetic kernels of older processors; each of these is a trial. A fault is a "
    "number that differs by more than 1e-6 (in units of the largest of its array, where that "
    "exceeds 1), or, of what draws samples, a score that differs by more than another seed makes "
    "it. What attacks say of their own fit is not compared: that is a sum of squared roundings.",
    "coverage": "The share of lines and branches that the tests run.",
    "mutants": "The source is changed in small ways, one at a time: a test must fail. What "
    "survived is listed below its file (counted there) with a judgement.",
    "mutants_scores": "The same for every change of the files that make intervals, scores, bins of "
    "confidence and comparisons.",
}
"""What is tried, in a sentence each and in this order; files of other names come last."""
COUNTED = {
    "chaos": "kills that hit",
    "damage": "faults made",
    "disks": "faults made",
    "null_audits": "falsely exposed",
    "coverage": "not run",
    "mutants": "survived",
    "mutants_scores": "survived",
}
"""What ``faults`` counts there: made on purpose, or left over. Elsewhere they are faults found."""
FIELDS = {"what": str, "trials": int, "faults": int, "outcome": str}


def results(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Every file of results by its name, in order; a file of another form is an error."""
    found = {}
    for path in folder.glob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        good = isinstance(content, dict) and content.keys() == {"title", "command", "rows"}
        for row in content["rows"] if good else ():
            good &= row.keys() == FIELDS.keys()
            good = good and all(type(row[name]) is kind for name, kind in FIELDS.items())
        if not good:
            raise ValueError(f"{path}: is not of the form that {Path(__file__).name} describes")
        found[path.stem] = content
    order = [*TRIALS, *sorted(found.keys() - TRIALS.keys())]
    return {name: found[name] for name in order if name in found}


def reliability_tables(folder: Path = FOLDER) -> str:
    """One table for every file of results, with what was tried and how to try it again."""
    lines = []
    for name, content in results(folder).items():
        lines += [f"## {content['title']}", ""]
        lines += [TRIALS[name], ""] if name in TRIALS else []
        trials, faults = (sum(row[key] for row in content["rows"]) for key in ("trials", "faults"))
        counted = COUNTED.get(name, "faults found")
        lines += [f"{trials:,} trials, {faults:,} {counted}, by `{content['command']}`:", ""]
        lines += [f"| what | trials | {counted} | outcome |", "| --- | ---: | ---: | --- |"]
        for row in content["rows"]:
            cells = (row["what"], f"{row['trials']:,}", f"{row['faults']:,}", row["outcome"])
            lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
        lines.append("")
    return "\n" + "\n".join(lines)


def _cell(text: str) -> str:
    """As text: a row may quote code, whose brackets are no link and no tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "&#91;")

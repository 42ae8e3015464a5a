"""How a case of the envelope is run, and how what comes out is judged against what is recorded.

All that this needs of the package is in `made` and in the functions up to `measured`.

An answer (an attack on a case, over all its seeds) is within the envelope if

- what it scores is not worse than what is recorded by more than two standard errors. Of shares of
  records guessed right a = r / n, pooled over seeds: sqrt(a (1 - a) / n) with (r + 1) / (n + 2) for
  a, so that what was always right may err a little. Of other scores (F1, errors): the standard
  deviation over seeds, by the root of how many there are, and at least `LEAST`;
- its mean confidence, pooled over the seeds that are not flagged, is at most `CALIBRATED` from the
  share guessed right; where the recorded one is farther (these are listed as ``miscalibrated``) or
  near that, it is at most `WORSE` farther than it was;
- the share of records that are certain (p > .99) and wrong, in answers that are not flagged, is not
  above the recorded one by more than two standard errors, as above;
- what marks an answer comes in every seed if it did in every seed, and in none if it did in none;
  its words are free. Marks are a flag and a refusal; in audits a verdict of exposed, a client whose
  messages do not fit the recipe, and a warning: such a client, or that nothing was measured.

Processor time is not compared by tests, but by the command: at most `SLOWER` times the recorded.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from quick_attacks import attack_named
from safetensors.numpy import load_file

import overheard
from overheard.attacks.partial import PartialDecode
from overheard.errors import OverheardError
from overheard.evaluation import scoring
from overheard.evaluation.ladder import RUNGS as LADDER
from overheard.evaluation.ladder import case_on
from overheard.programs.trusted import trust
from overheard.transcript.kind import EVERYBODY, program_in
from overheard.transcript.target import chosen_targets, targets_in
from tests.envelope.cases import MODULE, Case

KEPT = Path(__file__).with_name("envelope.json")
SAME = 1e-5
"""Messages differ by less: the rounding of other processors, which training carries on."""
CALIBRATED, WORSE, CERTAIN, LEAST, SLOWER = 0.05, 0.02, 0.99, 1e-3, 1.5
MARKS = ("flag", "refused", "exposed", "unfit", "warned")
RUNGS = ("half", "registry", "demographics", "schema")
Row = dict[str, Any]
"""One answer at one seed: its ``marks``, and the mean ``score`` of ``n`` units. Of a share of
records also the mean ``confidence`` and how many are ``certain_wrong``, where the attack says how
sure it is; of everything else whether a ``larger`` score is better."""


def made(case: Case, seed: int, path: Path) -> overheard.Recording:
    """The recording of a case; of one that is declared otherwise, with the messages of the
    truth."""
    trust(MODULE["factory"])
    config = overheard.parse_config({**case.config, "seed": seed})
    run = overheard.simulate(overheard.plan(config, case.dataset(seed)), path)
    if case.declared is not None:
        observed, run = run, made(case.declared, seed, path.with_name("declared")).path
        shutil.rmtree(run / "messages")
        shutil.copytree(observed / "messages", run / "messages")
    return overheard.Recording.open(run)


def summary(recording: overheard.Recording) -> list[float]:
    """Of the arrays that were sent and returned: how many numbers of which kinds there are, their
    length, and what they come to with random signs, in units of that length. The same on every
    processor but for rounding, of which linear algebra has its own on each."""
    files = sorted((recording.path / "messages").glob("*.safetensors"))
    arrays = [a for file in files for _, a in sorted(load_file(file).items())]
    kinds = zlib.crc32(" ".join(f"{a.dtype} {a.shape}" for a in arrays).encode())
    numbers = np.concatenate([np.ravel(a).astype(np.float64) for a in arrays])
    length = float(np.linalg.norm(numbers))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (3, len(numbers)))
    return [float(kinds), length, *(signs @ numbers / max(length, 1e-300)).tolist()]


def attacked(case: Case, recording: overheard.Recording, seed: int) -> dict[str, Row]:
    """What each attack of a case answers."""
    (target,) = chosen_targets(targets_in(recording.targets), [case.asks], "the case")
    client = EVERYBODY if target.asked.together else recording.clients[0]
    view, terms = overheard.observe(recording, case.threat, target, client), program_in(recording)
    assert terms is not None
    answers = scoring.answers_in(recording, target)
    scorer = scoring.Case(terms, recording.truth(), target, view, seed, answers).scorer()
    rows: dict[str, Row] = {}
    for name, attack in zip(case.attacks, map(attack_named, case.attacks), strict=True):
        try:
            guess = overheard.launch(attack, view, seed)
        except OverheardError:
            rows[name] = {"marks": ["refused"]}
            continue
        rows[name] = _row(guess, scorer(attack, guess, 0.0))
    return rows


def _row(guess: Any, scored: scoring.Scored) -> Row:
    found = scored.finding
    row: Row = {"marks": ["flag"] * bool(found.flag), "n": found.n, "score": found.value}
    if not found.measure.hits:
        row["larger"] = found.measure.share
    elif getattr(guess, "claims", True):
        p = guess.probabilities
        sure = p.max(axis=1) if p.ndim == 2 else np.maximum(p, 1 - p)
        wrong = (sure > CERTAIN) & (scored.units < 0.5)
        row |= {"confidence": float(sure.mean()), "certain_wrong": int(wrong.sum())}
    return row


def on_ladder(case: Case, recording: overheard.Recording, seed: int) -> dict[str, Row]:
    """What is learned on each rung of the ladder of knowledge but the first and the noisy one."""
    (target,) = chosen_targets(targets_in(recording.targets), [case.asks], "the case")
    asked = (recording, case.threat, target, recording.clients[0])
    rows: dict[str, Row] = {}
    attack = PartialDecode()
    for rung in (rung for rung in LADDER if rung.name in RUNGS):
        view, scorer = case_on(rung, *asked, ("x0", "x1"), seed)
        guess = overheard.launch(attack, view, seed)
        rows[rung.name] = _row(guess, scorer(attack, guess, 0.0))
    return rows


def judged(case: Case, recording: overheard.Recording, seed: int) -> dict[str, Row]:
    """What an audit says in the end, of all clients."""
    options = overheard.AuditOptions(seed, rounds=False)
    audit = overheard.audit(recording, case.threat, case.attacks, (), [case.asks], options)
    levels = {secret.level for secret in audit.secrets}
    unfit = bool(audit.unfit)
    named = {"exposed": "exposed" in levels, "unfit": unfit}
    named["warned"] = unfit or "not measured" in levels
    return {"audit": {"marks": [mark for mark, given in named.items() if given]}}


RUN = {"attack": attacked, "ladder": on_ladder, "verdict": judged}


def measured(case: Case) -> Row:
    """All seeds of a case: summaries of the messages, answers by attack, and the processor seconds
    of a seed, the median (so that imports, of which the first one pays, do not count)."""
    messages, answers, seconds = [], [], []
    for seed in range(case.seeds):
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            recording = made(case, seed, Path(folder) / "run")
            messages.append(summary(recording))
            answers.append(RUN[case.how](case, recording, seed))
            seconds.append(time.process_time() - began)
    return {
        # XGBoost writes its version into its models
        "messages": [] if case.family == "trees" else messages,
        "seconds": round(float(np.median(seconds)), 3),
        "answers": {name: [one[name] for one in answers] for name in answers[0]},
    }


def pooled(rows: Sequence[Row]) -> dict[str, float]:
    """Over seeds: the mean score and its standard error (turned round where smaller is better); of
    shares the gap between confidence and accuracy and the share that is certain and wrong."""
    scored = [row for row in rows if "score" in row]
    if not scored:
        return {}
    if "larger" in scored[0]:
        scores = np.array([row["score"] for row in scored]) * (1 if scored[0]["larger"] else -1)
        error = scores.std(ddof=1) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
        return {"score": float(scores.mean()), "error": max(float(error), LEAST)}
    found = {"score": _mean(scored, "score"), "error": _error(scored, _mean(scored, "score"))}
    claimed = [row for row in scored if "confidence" in row and "flag" not in row["marks"]]
    if claimed:
        sure, wrong = _mean(claimed, "confidence"), sum(row["certain_wrong"] for row in claimed)
        share = wrong / sum(row["n"] for row in claimed)
        gap = abs(sure - _mean(claimed, "score"))
        found |= {"confidence": sure, "gap": gap, "wrong": share}
        found["wrong_error"] = _error(claimed, share)
    return found


def _mean(rows: Sequence[Row], what: str) -> float:
    return float(np.average([row[what] for row in rows], weights=[row["n"] for row in rows]))


def _error(rows: Sequence[Row], share: float) -> float:
    """The standard error of a share of the records, as if one more were right and one wrong."""
    n = sum(row["n"] for row in rows)
    near = (share * n + 1) / (n + 2)
    return float((near * (1 - near) / n) ** 0.5)


def outside(then: Sequence[Row], now: Sequence[Row]) -> list[str]:
    """In which respects an answer has left the envelope of what is recorded."""
    found = []
    for mark in MARKS:
        before, after = ([mark in row["marks"] for row in rows] for rows in (then, now))
        if all(before) > all(after) or any(after) > any(before):
            word = "must" if all(before) else "must not"
            found.append(f"{mark} in {sum(after)} of {len(after)} seeds, {word} come")
    was, is_ = pooled(then), pooled(now)
    if was and is_ and was["score"] - is_["score"] > 2 * was["error"]:
        found.append(f"score {is_['score']:.4g}, was {was['score']:.4g} (s.e. {was['error']:.2g})")
    if "gap" in was and "gap" in is_:
        most = max(CALIBRATED, was["gap"] + WORSE)
        if is_["gap"] > most:
            found.append(f"confidence is {is_['gap']:.3f} from accuracy, at most {most:.3f}")
        if is_["wrong"] > was["wrong"] + 2 * was["wrong_error"]:
            found.append(f"certain and wrong {is_['wrong']:.4f}, was {was['wrong']:.4f}")
    return found


def left(then: Row, now: Row) -> dict[str, list[str]]:
    """The same of a whole case, by attack; what changed of its messages, too."""
    was, are = (np.array(one["messages"], dtype=np.float64) for one in (then, now))
    same = was.shape == are.shape and np.allclose(was, are, rtol=SAME, atol=SAME)
    found = {} if same else {"messages": ["are other ones"]}
    for name in sorted({*then["answers"], *now["answers"]}):
        both = [one["answers"].get(name) for one in (then, now)]
        reasons = ["is there no more, or is new"] if None in both else outside(*both)
        found |= {name: reasons} if reasons else {}
    return found


def kept() -> dict[str, Row]:
    """What is recorded, by the name of the case."""
    return dict(json.loads(KEPT.read_text())["cases"]) if KEPT.exists() else {}


def keep(cases: Mapping[str, Row]) -> None:
    """Write it down, a line a case, after a list of the answers whose confidence is off."""
    far = [f"{name}: {attack}" for name, case in cases.items()
           for attack, rows in case["answers"].items()
           if pooled(rows).get("gap", 0.0) > CALIBRATED]  # fmt: skip
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    text = json.dumps({"miscalibrated": far}, indent=1).removesuffix("\n}")
    KEPT.write_text(f'{text},\n"cases": {{\n{lines}\n}}}}\n')

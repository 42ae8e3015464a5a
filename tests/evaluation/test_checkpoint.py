"""An attack that breaks down is listed, with what it raised; the others run to their ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.partial import PartialDecode
from overheard.evaluation.audit import PIECE, audit
from overheard.evaluation.checkpoint import Checkpoint
from overheard.evaluation.parts import AuditOptions
from overheard.evaluation.record import Finding, read_audit
from overheard.evaluation.scoring import Posterior, Scored
from overheard.report.digest import digest
from overheard.report.html import render, render_markdown
from overheard.transcript.knowledge import Messages
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

NAMES = ("majority", "max_entropy", "model_based_linear")


def crashing(error: BaseException, when: Any = lambda view: True) -> Any:
    real = MaxEntropy.__call__

    def call(self: MaxEntropy, view: Any, rng: Any) -> Any:
        if when(view):
            raise error
        return real(self, view, rng)

    return call


@pytest.mark.parametrize(
    "error",
    [ValueError("shapes (3,) and <b>(4,)</b>\nsecond line"), MemoryError(), AssertionError("no")],
)
def test_a_crash_ends_that_attack_and_nothing_else(federate, monkeypatch, error, tmp_path):
    recording = federate()
    whole = audit(recording, EAVESDROPPER, NAMES)
    assert not whole.failed
    monkeypatch.setattr(MaxEntropy, "__call__", crashing(error, lambda view: view.client == "1"))
    kept = Checkpoint(tmp_path, PIECE)
    record = audit(recording, EAVESDROPPER, NAMES, kept=kept)
    (failed,) = record.failed
    assert (failed.attack, failed.client, failed.attribute) == ("max_entropy", "1", "s")
    assert failed.error == type(error).__name__
    said = [type(error).__name__, *str(error).splitlines()[:1]]
    assert failed.reason.startswith(": ".join(said) + " (evaluation/test_checkpoint.py:")
    answered = {(f.attack, f.client) for f in whole.findings}
    assert {(f.attack, f.client) for f in record.findings} == answered - {("max_entropy", "1")}
    monkeypatch.undo()  # what was kept is not asked again
    assert audit(recording, EAVESDROPPER, NAMES, kept=kept).failed == record.failed
    path = tmp_path / "audit.json"
    path.write_text(record.to_json())
    assert read_audit(path).failed == record.failed


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(2), RuntimeWarning("asked for")])
def test_what_is_meant_for_the_whole_audit_passes(federate, monkeypatch, error):
    monkeypatch.setattr(MaxEntropy, "__call__", crashing(error))
    with pytest.raises(type(error)):
        audit(federate(), EAVESDROPPER, NAMES)


def test_the_curves_note_what_failed_and_go_on(federate, monkeypatch, tmp_path):
    recording, kept = federate(), Checkpoint(tmp_path, PIECE)
    asked = (recording, EAVESDROPPER, ["max_entropy"], ["1"], None, AuditOptions(rounds=True))
    whole = audit(*asked)
    few = crashing(ValueError("few"), lambda view: len(view.know(Messages)) == 2)
    monkeypatch.setattr(MaxEntropy, "__call__", few)
    monkeypatch.setattr(PartialDecode, "__call__", crashing(IndexError("5")))
    record = audit(*asked[:-1], AuditOptions(rounds=True, ladder=True), kept)
    doing = {f.doing: f.error for f in record.failed}
    assert doing["with the first 2 rounds alone"] == "ValueError"
    assert doing["as half"] == doing["as schema"] == "IndexError"
    assert [f.rounds for f in record.curves] == [f.rounds for f in whole.curves if f.rounds != 2]
    monkeypatch.undo()
    again = audit(*asked[:-1], AuditOptions(rounds=True, ladder=True), kept)
    assert (again.curves, again.failed) == (record.curves, record.failed)


def test_every_report_lists_it(federate, monkeypatch):
    monkeypatch.setattr(MaxEntropy, "__call__", crashing(ValueError("<b>bold</b>")))
    record = audit(federate(), EAVESDROPPER, NAMES)
    page, text = render(record), render_markdown(record)
    assert "What failed" in page
    assert "ValueError: &lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold" not in page
    assert "## What failed" in text
    assert "ValueError: \\<b\\>bold" in text
    assert [f["error"] for f in digest(record)["failed"]] == ["ValueError"] * len(record.failed)


def test_the_command_writes_everything_and_exits_3(workplace, monkeypatch):
    monkeypatch.setattr(MaxEntropy, "__call__", crashing(ValueError("shapes")))
    words = ["audit", "run", "--attack", "max_entropy", "--attack", "majority"]
    done = workplace.overheard(*words, "--out", "a")
    assert done.returncode == 3
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("failed: "))
    assert line.startswith("failed: max_entropy on s (site 0, site 1 and site 2): ValueError: shap")
    record = read_audit(workplace.path / "a" / "audit.json")
    assert {f.attack for f in record.findings} == {"majority"}


# --- what is kept is read back bit for bit, or not at all

FINDING = Finding(
    attack="a", paper="p", question="attribute", threat="t", client="c", attribute="s",
    metric="accuracy", value=0.1 + 0.2, low=1 / 7, high=1 / 3, n=3, seconds=1e-9, seed=4,
    details={"whole": 3, "real": 3.0, "tiny": 5e-324, "words": "yes"},
)  # fmt: skip
ODD = np.array([0.1, np.nan, np.inf, -0.0, 5e-324])


def scored(posterior: bool) -> Scored:
    sure = Posterior(ODD, ODD[::2], ODD * 0.5) if posterior else None
    return Scored(FINDING, ODD, None if posterior else np.array([1.5, 2.5]), sure)


def arrays(of: Scored) -> list[np.ndarray]:
    held = [of.units, of.imputed, *(vars(of.posterior).values() if of.posterior else ())]
    return [array for array in held if array is not None]


@pytest.mark.parametrize("posterior", [True, False])
def test_scores_come_back_bit_for_bit(tmp_path: Path, posterior: bool) -> None:
    kept, made = Checkpoint(tmp_path, PIECE), scored(posterior)
    assert kept.read("t", "c", "a") is None
    kept.made(lambda: [made], "t", "c", "a")
    (back,) = kept.made(lambda: [], "t", "c", "a")
    assert back.finding.model_dump_json() == made.finding.model_dump_json()
    for one, other in zip(arrays(back), arrays(made), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    assert kept.read("t", "c", "another") is None


def test_a_damaged_piece_is_made_again(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path, PIECE)
    kept.made(lambda: [scored(True)], "t")
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        assert kept.read("t") is None
        kept.made(lambda: [scored(True)], "t")
    assert path.read_bytes() == whole

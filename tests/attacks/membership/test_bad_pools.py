"""Pools that cannot be sorted, and what contradicts itself: said in one line, nothing lost."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overheard.attacks.membership import CandidateDecode
from overheard.errors import FixData, FixRecording
from overheard.transcript.knowledge import AttributeDomain, AttributePrior, CandidatePool, Link
from overheard.transcript.ledger import INDEX, digest_line
from overheard.transcript.observe import MEMBER_COLUMN, observe
from overheard.transcript.store import Recording
from overheard.transcript.target import membership
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

MLP = {"name": "mlp", "hidden": [24]}


@pytest.fixture
def pooled(federate: Any) -> Recording:
    made = federate(
        MLP, people=50, clients=2, columns=6, audit={"membership": 40}, rounds=1, participation=1.0
    )
    assert isinstance(made, Recording)
    return made


def look(recording: Recording) -> Any:
    view = observe(recording, EAVESDROPPER, membership("s"), "0")
    truth = recording.truth("Membership", "membership.s")["0"]
    return view, truth[MEMBER_COLUMN] == 1, truth["s"]


def pool_of(view: Any, keep: Any) -> CandidatePool:
    pool = view.know(CandidatePool)
    return CandidatePool(pool.records.take(keep), pool.labels[keep])


def test_a_sound_pool_is_called_a_good_fit(pooled: Recording) -> None:
    view, _, _ = look(pooled)
    guess = launch(CandidateDecode(), view, 0)
    assert guess.diagnostics["fit"] == "good"
    assert "flag" not in guess.diagnostics


def test_a_pool_without_any_member_is_flagged(pooled: Recording) -> None:
    """40 strangers, said to hold 20 members: no choice of them explains the update."""
    view, member, _ = look(pooled)
    link = view.know(Link)
    said = dataclasses.replace(link, weights=np.full_like(link.weights, 20.0))
    guess = launch(CandidateDecode(), view.knowing(pool_of(view, ~member), said), 0)
    assert guess.diagnostics["fit"] == "poor"
    assert "members are missing from the pool" in guess.diagnostics["flag"]


def test_a_pool_that_lacks_some_members_is_flagged(pooled: Recording) -> None:
    view, member, _ = look(pooled)
    keep = np.ones(len(member), dtype=bool)
    keep[np.flatnonzero(member)[:3]] = False
    guess = launch(CandidateDecode(), view.knowing(pool_of(view, keep)), 0)
    assert guess.diagnostics["fit"] == "poor"


def test_a_copy_of_a_member_in_the_pool_is_a_tie(pooled: Recording) -> None:
    view, member, secret = look(pooled)
    twin = int(np.flatnonzero(member)[0])
    again = np.append(np.arange(len(member)), twin)
    guess = launch(CandidateDecode(), view.knowing(pool_of(view, again)), 0)
    assert guess.diagnostics["tied_records"] == 2
    assert guess.diagnostics["undecidable"] == 2
    assert guess.diagnostics["fit"] == "good"
    # one of the two was used, and nobody can say which
    assert guess.probabilities[[twin, -1]] == pytest.approx([0.5, 0.5], abs=1e-3)
    others = np.delete(np.arange(len(member)), twin)
    assert np.array_equal(guess.choice()[others], member[others])
    inside = others[member[others]]
    assert np.array_equal(guess.attribute.choice()[inside], secret[inside])


def test_a_prior_must_sum_to_one_and_fit_the_values(pooled: Recording) -> None:
    with pytest.raises(FixData, match=r"sum to 0\.9; give shares .* sum to one"):
        AttributePrior((0.4, 0.5))
    with pytest.raises(FixData, match="not negative"):
        AttributePrior((1.5, -0.5))
    view, _, _ = look(pooled)
    with pytest.raises(FixData, match="3 shares for 2 values"):
        launch(CandidateDecode(), view.knowing(AttributePrior((0.2, 0.3, 0.5))), 0)


def test_one_value_is_nothing_to_infer() -> None:
    with pytest.raises(FixData, match="the values 1; at least two different ones are needed"):
        AttributeDomain("s", (1,))
    with pytest.raises(FixData, match="the values 1, 1; at least two"):
        AttributeDomain("s", (1, 1))


def declare(run: Path, old: bytes, new: bytes) -> None:
    """Rewrite the declared recipe, with an index that agrees."""
    side = run / "side"
    (file,) = side.glob("*-localtraining.json")
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new))
    previous, lines = "", []
    for line in (side / INDEX).read_text().splitlines():
        entry = json.loads(line.partition(" ")[2])
        if entry.get("file") == file.name:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            entry |= {"size": file.stat().st_size, "sha256": digest}
        text = json.dumps(entry)
        previous = digest_line(previous, text)
        lines.append(f"{previous} {text}\n")
    (side / INDEX).write_text("".join(lines))


def test_another_architecture_than_declared_is_refused(pooled: Recording) -> None:
    run = pooled.path
    declare(run, b'"hidden":[24]', b'"hidden":[25]')
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with pytest.raises(FixRecording, match=r"the messages carry .* different model"):
        look(Recording.open(run))
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before

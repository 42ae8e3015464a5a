"""Secure aggregation alone: the sum is decoded as one large update."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import guessed, summed, view_of

from overheard.attacks import pipeline
from overheard.attacks.baselines import imputed_prior
from overheard.attacks.sums import SumDecode
from overheard.errors import ChooseAnotherAttack, FixData, GrantKnowledge
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.knowledge import EverybodysRecords
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import launch

pytestmark = pytest.mark.slow


def network(hidden: int) -> dict[str, Any]:
    return {"name": "mlp", "hidden": [hidden]}


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_sums_of_five_clients_tell_everybodys_secret(tmp_path: Path, participation: float) -> None:
    run = summed(tmp_path / "run", participation=participation)
    for client in run.clients:
        guess, secret = guessed(SumDecode(), run, "c043", client, SECURE_SERVER)
        hits = attribute_hits(guess, secret)
        # of sums of three the last two records hang on how the processor rounds
        assert hits.mean() >= (1.0 if participation == 1 else 0.9)
        assert hits[guess.probabilities.max(axis=1) > 0.95].all()


def test_clients_of_whom_nothing_is_known_are_noise(tmp_path: Path) -> None:
    """Three of five clients' records are known: far more than an imputation knows."""
    run = summed(tmp_path / "run", model=network(64))
    known, hits, sure, free = run.clients[:3], [], [], []
    for client in known:
        view = view_of(run, "attribute.c043", client, threat=SECURE_SERVER)
        given, secret = view.know(EverybodysRecords), run.truth()[client]["c043"]
        records, labels = {n: given.records[n] for n in known}, {n: given.labels[n] for n in known}
        guess = launch(SumDecode(), view.knowing(EverybodysRecords(records, labels)), 0)
        imputed = replace(guess, probabilities=imputed_prior(view, records[client], labels[client]))
        hits.append(attribute_hits(guess, secret).mean())
        free.append(attribute_hits(imputed, secret).mean())
        sure.append(guess.probabilities.max(axis=1).mean())
    assert np.mean(hits) > np.mean(free) + 0.08
    assert abs(np.mean(sure) - np.mean(hits)) < 0.1


def test_what_it_cannot_read_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several = summed(tmp_path / "several", epochs=2)
    monkeypatch.setattr(pipeline, "UNKNOWNS", 1000)
    with pytest.raises(ChooseAnotherAttack, match=r"1250 unknowns.*: each counts 10 times"):
        guessed(SumDecode(), several, "c043", "victim", SECURE_SERVER)
    whole = summed(tmp_path / "whole")
    view = view_of(whole, "attribute.c043", "victim", threat=SECURE_SERVER)
    with pytest.raises(GrantKnowledge, match="EverybodysRecords"):
        launch(SumDecode(), view.narrowed(view.kinds - {EverybodysRecords}), 0)
    known = view.know(EverybodysRecords)
    other = whole.clients[1]
    some = EverybodysRecords({other: known.records[other]}, {other: known.labels[other]})
    with pytest.raises(FixData, match="its records are not known"):
        launch(SumDecode(), view.knowing(some), 0)
    uneven = {**known.labels, other: known.labels[other][:20]}
    records = {**known.records, other: known.records[other].take(np.arange(20))}
    names = [n for n in whole.clients if n != whole.clients[0]]
    some = EverybodysRecords({n: records[n] for n in names}, {n: uneven[n] for n in names})
    with pytest.raises(ChooseAnotherAttack, match=r"\[20, 25\] records"):
        launch(SumDecode(), view.knowing(some), 0)

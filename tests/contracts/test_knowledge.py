"""What every attack reaches for: what it declares, and the right messages.

Every attack of the catalogue runs in a federation that it applies to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import FAMILIES, heard, quick, score

from overheard.attacks import listens
from overheard.errors import DeclareKnowledge
from overheard.evaluation.attempt import NOT_RUN
from overheard.evaluation.record import Finding
from overheard.questions.local_model import CLOSE
from overheard.transcript.knowledge import KINDS, LISTENING
from overheard.transcript.view import View, launch

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Watched(View):
    """A view that notes what is asked of it, by whoever holds it or a part of it."""

    asked: set[type[Any]] = field(default_factory=set)

    def know(self, kind: type[Any]) -> Any:
        self.asked.add(kind)
        return super().know(kind)


def watched(view: View) -> Watched:
    return Watched(view.client, view.target, view.threat, view._knowledge)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_asks_for_what_it_declares_and_for_nothing_else(tmp_path: Path, family: str) -> None:
    view = heard(FAMILIES[family], FAMILIES[family].made(tmp_path / "run"))
    for name in FAMILIES[family].attacks:
        attack, spy = quick(name), watched(view)
        launch(attack, spy, 3)
        declared = attack.needs | getattr(attack, "uses", frozenset())
        assert spy.asked <= declared, name
        assert attack.needs <= spy.asked, f"{name} declares what it never asks for"


def test_whoever_asks_for_more_is_refused(tmp_path: Path) -> None:
    """The test above can fail: a curious attack is seen, and gets nothing."""
    family = FAMILIES["models"]
    view = watched(heard(family, family.made(tmp_path / "run")))
    honest = quick("last_returned")

    class Curious:
        name, paper, question, needs = "curious", "none", "local_model", honest.needs

        def __call__(self, view: View, rng: Any) -> Any:
            for kind in KINDS:
                view.know(kind)

    with pytest.raises(DeclareKnowledge):
        launch(Curious(), view, 0)
    assert not view.asked <= honest.needs


@pytest.mark.parametrize("family", FAMILIES)
def test_placebo(tmp_path: Path, family: str) -> None:
    """Whoever listens to another federation learns nothing about this one, whatever is asked."""
    made = FAMILIES[family].made
    recording = made(tmp_path / "run")
    view = heard(FAMILIES[family], recording)
    others = [heard(FAMILIES[family], made(tmp_path / f"{k}", seed=k)) for k in (1, 2, 3)]
    for name in FAMILIES[family].attacks:
        attack = quick(name)
        if not listens(attack):
            continue
        found = []
        for other in others:
            pieces = [other.know(kind) for kind in LISTENING & other.kinds]
            try:
                found.append(
                    score(recording, view, attack, launch(attack, view.knowing(*pieces), 3))
                )
            except NOT_RUN:
                continue
        _check_nothing(name, [f for f in found if not f.flag])


def _check_nothing(name: str, found: list[Finding]) -> None:
    """No better than what needs no listening, beside chance."""
    for metric in {f.metric for f in found}:
        mean = float(np.mean([f.value for f in found]))
        if metric == "excess_loss":
            assert mean > CLOSE, f"{name} rebuilds the model of a client it did not hear"
        elif metric == "mean_absolute_error":
            free = float(np.mean([f.imputation for f in found]))
            assert mean > 0.7 * free, f"{name}: off by {mean:.3f}, a stranger by {free:.3f}"
        else:
            lowest = min(f.p_value for f in found)
            assert lowest > 1e-3, f"{name} learns from other people's messages"

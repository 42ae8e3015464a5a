"""Every attack needs the right messages: of another federation's it learns nothing.

Every attack of the catalogue runs in a federation that it applies to.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federations import FAMILIES, observed, quick, score

from overheard.attacks import listens
from overheard.evaluation.checkpoint import NOT_RUN
from overheard.evaluation.record import Finding
from overheard.questions.local_model import EXCESS_LOSS
from overheard.transcript.knowledge import listens as hears
from overheard.transcript.view import launch

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("family", FAMILIES)
def test_placebo(tmp_path: Path, family: str) -> None:
    """Whoever listens to another federation learns nothing about this one, whatever is asked."""
    made = FAMILIES[family].made
    recording = made(tmp_path / "run")
    view = observed(FAMILIES[family], recording)
    others = [observed(FAMILIES[family], made(tmp_path / f"{k}", seed=k)) for k in (1, 2, 3)]
    for name in FAMILIES[family].attacks:
        attack = quick(name)
        if not listens(attack):
            continue
        found = []
        for other in others:
            pieces = [other.know(kind) for kind in other.kinds if hears([kind])]
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
            assert mean > EXCESS_LOSS.limit, (
                f"{name} rebuilds the model of a client it did not hear"
            )
        elif metric == "mean_absolute_error":
            free = float(np.mean([f.imputation for f in found]))
            assert mean > 0.7 * free, f"{name}: off by {mean:.3f}, a stranger by {free:.3f}"
        else:
            lowest = min(f.p_value for f in found)
            assert lowest > 1e-3, f"{name} learns from other people's messages"

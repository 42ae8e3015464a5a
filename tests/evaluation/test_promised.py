"""What was promised stands in the audit and in its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from federations import simulated

from overheard.errors import FixRecording
from overheard.evaluation.audit import audit, promise_notes
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.report.html import render, render_markdown
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow


def run_with(path: Path, *defences: dict[str, Any]) -> Recording:
    config = {
        "data": {"source": "digits", "options": {"victim": 20, "participants": 2}},
        "model": {"name": "logistic"},
        "training": {"rounds": 2, "learning_rate": 0.1, "batch_size": 10},
        "defence": list(defences),
    }
    return simulated(path, config)


def test_an_audit_and_its_report_say_what_was_promised(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    run = run_with(tmp_path / "run", {"name": "dp_sgd", "clip": 1.0, "noise": 4.0})
    record = audit(run, EAVESDROPPER, ["majority"], ["victim"])
    (note,) = [n for n in record.notes if "Differential privacy" in n]
    promise = run.side("PrivacyBudget")["victim"]
    assert f"epsilon {promise['epsilon']:.3g} for its presence" in note
    assert f"{promise['changed']:.3g} for its values, at delta 1e-05" in note
    assert "DP-SGD: 4 steps, sampling rate 0.5, noise 4" in note
    assert promise["epsilon"] < promise["changed"]
    for page in (render(record), render_markdown(record)):
        assert "Differential privacy promised to a record" in page


class SideOnly:
    """A recording of which only the side knowledge is asked."""

    side_folder = Path("run/side")

    def __init__(self, content: Any) -> None:
        self.content, self.shared = content, {}

    def side(self, kind: str) -> Any:
        return self.content if kind == "PrivacyBudget" else None


def test_of_several_clients_the_one_promised_least() -> None:
    said = {"delta": 1e-5, "words": "DP-SGD"}
    both = {"a": {"epsilon": 3.0, "changed": 8.0, **said}, "b": {"epsilon": 5.0, **said}}
    (note,) = promise_notes(SideOnly(both))  # type: ignore[arg-type]
    assert "epsilon 5 for its presence, at delta 1e-05 (DP-SGD; client b" in note
    assert "the least of 2" in note
    (note,) = promise_notes(SideOnly(both | {"c": {"epsilon": None, **said}}))  # type: ignore[arg-type]
    assert note == (
        "Differential privacy: none is promised to a record "
        "(DP-SGD; client c, promised the least of 3)."
    )


@pytest.mark.parametrize("content", [{"a": {"epsilon": "x"}}, {"a": 3}, {"a": {}}, [1]])
def test_what_is_no_promise_is_refused(content: Any) -> None:
    with pytest.raises(FixRecording, match="PrivacyBudget is not what the format says"):
        promise_notes(SideOnly(content))  # type: ignore[arg-type]


def test_epsilons_at_different_deltas_are_not_compared() -> None:
    """The larger one may be at the smaller delta, and say nothing about which promise is worse."""
    both = {
        "a": {"epsilon": 3.0, "delta": 1e-3, "words": "DP-SGD"},
        "b": {"epsilon": 5.0, "delta": 1e-6, "words": "DP-SGD"},
        "c": {"epsilon": 4.0, "delta": 1e-6, "words": "DP-SGD"},
    }
    first, second = promise_notes(SideOnly(both))  # type: ignore[arg-type]
    assert "epsilon 3 for its presence, at delta 0.001" in first
    assert "epsilon 5 for its presence, at delta 1e-06" in second
    assert "client b, promised the least of 2 at this delta" in second


def with_numbers(path: Path, scale: str) -> tuple[Recording, Any]:
    config = parse_config(
        {
            "data": {"source": "randhie", "scale": scale},
            "model": {"name": "linear"},
            "training": {"rounds": 1, "learning_rate": 1e-6},
            "audit": {"attributes": []},
            "defence": [{"name": "dp_sgd", "clip": 1.0, "noise": 4.0}],
        }
    )
    made = plan(config)
    return Recording.open(simulate(made, path)), made


def test_what_the_recipe_publishes_is_named_beside_the_epsilon(tmp_path: Path) -> None:
    """Because it gives a person away: the mean of all, less everybody else's values."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    run, made = with_numbers(tmp_path / "run", "records")
    _, note = promise_notes(run)
    assert "does not count what the recipe publishes: the means and scales of " in note
    assert "data-independent" in note
    block = next(b for b in made.recipe.encoding.blocks if getattr(b, "scale", 1.0) != 1.0)
    assert block.column in note
    values = made.dataset.records[block.column]
    follows = block.shift * len(values) - values[1:].sum()
    assert follows == pytest.approx(values[0], abs=1e-6)


def test_scales_that_do_not_depend_on_the_data_leave_nothing_out(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    run, made = with_numbers(tmp_path / "run", "none")
    assert {getattr(b, "scale", 1.0) for b in made.recipe.encoding.blocks} == {1.0}
    notes = promise_notes(run)
    assert not any("means and scales" in note for note in notes)

"""driouich2022's runners in small; what needs its data is skipped where they are not."""

from __future__ import annotations

import os

import numpy as np
import pytest

from overheard.attacks.papers.driouich2022 import infer
from overheard.evaluation.baselines import algorithm3_accuracy_bound
from overheard.evaluation.metrics import attribute_hits, client_losses
from overheard.transcript.kind import recipe_of
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import observe
from papers.common.catalogue import experiment_named
from papers.common.heterogeneity import mean_distances
from papers.common.rows import Row, write_reproduction
from papers.driouich2022 import bound, choices
from papers.driouich2022.data import ends

pytestmark = pytest.mark.slow

needs_data = pytest.mark.skipif(
    "OVERHEARD_DATA" not in os.environ, reason="set OVERHEARD_DATA to the folder with the data"
)


def quiet(what: str, done: int, total: int) -> None:
    """No progress bar in tests."""


def test_the_four_models_of_figure_3(federate):
    """Whichever model is attacked, Proposition 3 bounds its accuracy from below."""
    recording = federate(rounds=60, wire="float64")
    recipe, truth = recipe_of(recording), recording.truth()
    at = recipe.encoding.inputs_of("s").start
    for client in recording.clients:
        view = observe(recording, EAVESDROPPER, attribute("s"), client)
        records = truth[client]
        thetas = dict(bound.models(view, recipe, records))
        assert tuple(thetas) == bound.MODELS
        assert thetas["local"] == pytest.approx(thetas["analytical"], abs=1e-3)
        for theta in thetas.values():
            error = float(client_losses(recipe, theta, records).mean())
            least = algorithm3_accuracy_bound(error, theta[at], records["s"].mean())
            assert attribute_hits(infer(view, theta), records["s"]).mean() >= least


def test_proposition_3_end_to_end(tmp_path):
    experiment = experiment_named("driouich2022-prop3")
    outcome = experiment.measure(True, 1, quiet)
    margins = [r.measured for r in outcome.rows if r.measure == "least accuracy less its bound"]
    assert len(margins) == 6
    assert min(margins) >= 0
    bounds = [r.measured for r in outcome.rows if r.measure == bound.BOUND and "0.5" in r.setting]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > 0.9
    table, picture = write_reproduction(experiment, outcome, tmp_path)
    assert table.exists()
    assert picture.exists()


def test_settings_are_the_papers():
    lbfgs = choices.as_set("adult", 7, "client 4")["l2_lbfgs"]
    assert (lbfgs.last, lbfgs.step, lbfgs.iterations, lbfgs.rate) == ((700,), (40,), 7, 1.0)  # type: ignore[attr-defined]
    gumbel = choices.as_set("adult", 7, "client 2")["gumbel"]
    assert (gumbel.last, gumbel.step, gumbel.steps, gumbel.rate) == ((900,), (50,), 7, 1000.0)  # type: ignore[attr-defined]
    assert choices.rate("adult", "l2_lbfgs", "client 3") == 0.1
    assert choices.rate("flights", "l2_lbfgs", "Vistara") == 1.0
    assert choices.chosen("flights", "gumbel", "Vistara") == (600, 30)


def test_ends_and_distances():
    rows = [Row("fares", c, "data", "records", v) for c, v in (("a", 5.0), ("b", 7.0))]
    least, greatest = ends("records", "3 9 4", rows)
    assert (least.measured, least.claimed) == (5.0, 3.0)
    assert (greatest.measured, greatest.claimed) == (7.0, 9.0)
    optima = {"a": np.array([1.0, 0.0]), "b": np.array([0.0, 2.0]), "c": np.array([1.0, 1.0])}
    a = (np.sqrt(5) / 2 + 1 / np.sqrt(2)) / 2
    assert mean_distances(optima)["a"] == pytest.approx(a)


@needs_data
@pytest.mark.parametrize("number", ["table4", "table5", "fig3"])
def test_quick_forms_on_the_data(tmp_path, number):
    experiment = experiment_named(f"driouich2022-{number}")
    outcome = experiment.measure(True, 1, quiet)
    assert outcome.quick
    table, picture = write_reproduction(experiment, outcome, tmp_path)
    assert table.exists()
    assert picture.exists()
    if number == "fig3":
        means = {r.method: r.measured for r in outcome.rows if r.client == "mean"}
        assert 0 < means["local"] - means["last returned"] < 0.1
        assert means["last returned"] > 0.7  # Algorithm 4 has 0.46

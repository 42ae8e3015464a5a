"""Defences of programs that train no network: what is left to who listens, and to who is told."""

from __future__ import annotations

import numpy as np
import pytest
from federations import recorded

from overheard.attacks import attack_named
from overheard.errors import FixConfig, ListenLonger
from overheard.evaluation.audit import audit
from overheard.federation.defences.accounting import sampled_gaussian
from overheard.programs.program import Candidates
from overheard.transcript.kind import program_in
from overheard.transcript.knowledge import Messages, Sums
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER
from overheard.transcript.verify import verify
from overheard.transcript.view import launch, observe

pytestmark = pytest.mark.slow

NEWTON = {"name": "newton", "likelihood": "linear"}
TABLES = {
    "name": "statistics",
    "tables": [{"by": ["s", "x0"]}, {"kind": "sum", "of": "x1", "by": ["s", "x0"]}],
    "bins": {"x0": [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5]},
}
TREES = {"name": "xgboost", "objective": "reg:squarederror", "max_depth": 3}
NOISE = {"name": "dp_sums", "clip": 1.5, "noise": 0.5}


def federated(path, model, defence, rounds=6, people=60):
    return recorded(
        path, model, clients=3, people=people, rounds=rounds, participation=1.0, defence=[defence]
    )


@pytest.mark.parametrize("model", [NEWTON, TABLES], ids=lambda m: m["name"])
def test_noise_is_reckoned_with_as_it_is(tmp_path, model):
    """At the truth, clipped as the clients clip, what is left has the variance that is expected."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    recording = federated(tmp_path / "run", model, NOISE, rounds=12)
    program, truth = program_in(recording), recording.truth()["1"]
    observed = observe(recording, EAVESDROPPER, attribute("s"), "1").know(Messages)
    each = Candidates(truth, ({"s": 0.0}, {"s": 1.0}), 60)
    measured = program.measure(observed.exchanges, each)
    right = measured.chi2_per_equation(np.eye(2)[truth["s"].astype(int)])
    assert 0.5 < right < 1.5
    promised = recording.side("PrivacyBudget")["1"]
    assert promised["epsilon"] == sampled_gaussian(0.5, 1.0, 12, promised["delta"])
    assert promised["changed"] > promised["epsilon"]
    view = observe(recording, EAVESDROPPER, attribute("s"), "1")
    assert "flag" not in launch(attack_named("max_entropy"), view, 0).diagnostics


def test_a_sum_of_releases_is_decoded_as_one_pool(tmp_path):
    """Three clients of 20: the sums hold as many numbers as one client's own releases."""
    recording = federated(tmp_path / "run", NEWTON, {"name": "secure_sum"}, people=20)
    target = attribute("s")
    assert verify(recording.path).sound
    with pytest.raises(ListenLonger, match="holds sums of updates only"):
        observe(recording, EAVESDROPPER, target, "1")
    view = observe(recording, SECURE_SERVER, target, "1")
    guess = launch(attack_named("sum_decode"), view, 0)
    assert guess.diagnostics["unknowns"] == 60
    assert "flag" not in guess.diagnostics  # the rounding of the sums is told
    record = audit(recording, SECURE_SERVER, ["sum_decode", "max_entropy"])
    assert {f.attack for f in record.findings} == {"sum_decode"}
    assert not record.failed
    first = view.know(Sums).first(1).as_messages().exchanges[0]
    program, truth = program_in(recording), recording.truth()
    rng = np.random.default_rng(0)
    own = [program.respond(first.sent, truth[c], rng)["gradient"] for c in recording.clients]
    np.testing.assert_allclose(first.returned["gradient"], np.sum(own, axis=0), atol=1e-8)


def test_counts_of_everybody_are_known_and_nobodys_value_is(tmp_path):
    tables = {"name": "statistics", "tables": [{"by": ["s"]}]}
    recording = federated(tmp_path / "run", tables, {"name": "secure_sum"}, rounds=1, people=20)
    view = observe(recording, SECURE_SERVER, attribute("s"), "0")
    guess = launch(attack_named("sum_decode"), view, 0)
    share = np.mean([recording.truth()[c]["s"].mean() for c in recording.clients])
    np.testing.assert_allclose(guess.probabilities[:, 1], share)
    assert guess.diagnostics["proven"] == 0


@pytest.mark.parametrize(
    ("model", "defence", "said"),
    [
        (NEWTON, {"name": "clip", "norm": 1.0}, "'clip' is about networks"),
        (NEWTON, {"name": "round_counts", "to": 5}, "does not fit model 'newton'"),
        ({**TABLES, "suppress": 5}, NOISE, "noise is on plain sums"),
        ({**TABLES, "suppress": 5}, {"name": "secure_sum"}, "counts and sums as they are"),
        (TREES, NOISE, "does not fit model 'xgboost'"),
        (TREES, {"name": "secure_sum"}, "does not fit model 'xgboost'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, model, defence, said):
    with pytest.raises(FixConfig, match=said):
        federated(tmp_path / "run", model, defence)

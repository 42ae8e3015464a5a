"""Newton steps: what a client sends is what the model's likelihood says, and it is decoded."""

from __future__ import annotations

import numpy as np
import pytest
from federations import candidates_of, sent_by
from scipy import optimize, special

from overheard.errors import FixConfig, FixRecording
from overheard.programs.families.newton import FAMILIES, Newton, NewtonSettings
from overheard.programs.program import Exchange
from overheard.programs.recipe import Target
from overheard.programs.records import Encoding, Records, Scaled

LIKELIHOODS = tuple(FAMILIES)
RNG = np.random.default_rng(3)


def records_for(likelihood, rows=40):
    rng = np.random.default_rng(7)
    x, s = rng.normal(size=(rows, 3)), (rng.random(rows) < 0.5).astype(float)
    eta = 0.3 * x.sum(axis=1) + 0.5 * s
    label = {
        "linear": eta + rng.normal(size=rows),
        "logistic": (rng.random(rows) < special.expit(eta)).astype(float),
        "poisson": rng.poisson(np.exp(eta)).astype(float),
        "gamma": rng.gamma(2.0, np.exp(eta) / 2),
    }[likelihood]
    return Records({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "s": s, "y": label})


def newton(likelihood, **settings):
    blocks = tuple(Scaled(column=c) for c in "abcs")
    classes = (0.0, 1.0) if likelihood == "logistic" else ()
    return Newton.planned(
        NewtonSettings(likelihood=likelihood, **settings),
        Encoding(blocks=blocks),
        Target(column="y", classes=classes),
        Records({}),
    )


def negative_log_likelihood(likelihood, records):
    """Written out, up to a constant: the slow twin of the family's formulas."""
    inputs, labels = np.column_stack([*(records[c] for c in "abcs"), np.ones(40)]), records["y"]
    forms = {
        "linear": lambda e: ((labels - e) ** 2 / 2).sum(),
        "logistic": lambda e: (np.logaddexp(0, e) - labels * e).sum(),
        "poisson": lambda e: (np.exp(e) - labels * e).sum(),
        "gamma": lambda e: (labels * np.exp(-e) + e).sum(),
    }
    return lambda b: forms[likelihood](inputs @ b)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_gradient_and_hessian_are_those_of_the_likelihood(likelihood):
    program, records = newton(likelihood), records_for(likelihood)
    loss = negative_log_likelihood(likelihood, records)
    b = np.random.default_rng(1).normal(0, 0.2, 5)
    answer = program.respond({"coefficients": b}, records, RNG)
    np.testing.assert_allclose(
        answer["gradient"], -optimize.approx_fprime(b, loss, 1e-7), rtol=2e-4, atol=2e-4
    )
    slopes = [
        optimize.approx_fprime(
            b, lambda t, j=j: -program.respond({"coefficients": t}, records, RNG)["gradient"][j]
        )
        for j in range(5)
    ]
    np.testing.assert_allclose(
        answer["hessian"], np.array(slopes)[np.triu_indices(5)], rtol=2e-4, atol=2e-4
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_server_steps_to_the_optimum_of_all_records(likelihood):
    program, records = newton(likelihood, ridge=0.5), records_for(likelihood)
    halves = [records.take(np.arange(20)), records.take(np.arange(20, 40))]
    sent = program.first()
    for _ in range(12):
        sent = program.following(
            sent, {str(k): program.respond(sent, half, RNG) for k, half in enumerate(halves)}
        )
    loss = negative_log_likelihood(likelihood, records)
    best = optimize.minimize(lambda b: loss(b) + 0.25 * (b[:-1] ** 2).sum(), np.zeros(5))
    np.testing.assert_allclose(sent["coefficients"], best.x, atol=1e-4)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_measurement_is_exact_at_the_truth_and_only_there(likelihood, intercept):
    program, records = newton(likelihood, intercept=intercept), records_for(likelihood)
    measurement = program.measure(sent_by(program, records, 3), candidates_of(records))
    truth = records["s"].astype(int)
    right = measurement.chi2_per_equation(np.eye(2)[truth])
    wrong = truth.copy()
    wrong[0] = 1 - wrong[0]
    assert right < 1
    assert measurement.chi2_per_equation(np.eye(2)[wrong]) > 1e6 * max(right, 1e-6)


def test_a_column_that_never_varies_may_be_rounding_errors_to_its_client():
    """Its client took the mean of equal numbers from each, which need not leave zeros."""
    program, records = newton("logistic", ridge=1.0), records_for("logistic")
    theirs = Records({**records.columns, "c": np.full(40, 1.4e-14)})
    observed = sent_by(program, theirs)
    known = {**records.columns, "c": np.zeros(40)}
    truth = np.eye(2)[records["s"].astype(int)]
    measurement = program.measure(observed, candidates_of(Records(known)))
    assert measurement.chi2 < 1e3
    other = Records({**known, "a": known["a"] + 1e-9})
    wrong = program.measure(observed, candidates_of(other))
    assert wrong.chi2_per_equation(truth) > 1e6 * measurement.chi2_per_equation(truth)


def test_labels_and_records_that_do_not_fit_are_refused_by_name():
    encoding, target = Encoding(blocks=(Scaled(column="a"),)), Target(column="y")
    with pytest.raises(FixConfig, match="2 classes"):
        Newton.planned(NewtonSettings(), encoding, target, Records({}))
    bad = Records({**records_for("poisson").columns, "y": np.full(40, -1.0)})
    with pytest.raises(FixConfig, match="not negative"):
        newton("poisson").respond({"coefficients": np.zeros(5)}, bad, RNG)


@pytest.mark.parametrize(
    "returned",
    [
        {},
        {"gradient": np.zeros(4)},
        {"gradient": np.zeros(5), "hessian": np.zeros(4)},
        {"gradient": np.zeros(5), "hessian": np.full(15, np.nan)},
    ],
)
def test_messages_of_another_program_are_refused_in_a_line(returned):
    program, records = newton("logistic"), records_for("logistic")
    with pytest.raises(FixRecording) as refused:
        program.measure([Exchange(4, program.first(), returned)], candidates_of(records))
    assert str(refused.value).startswith("round 4: ")

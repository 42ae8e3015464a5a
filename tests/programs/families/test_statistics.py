"""Released tables: numbers as any library makes them, exact at the truth, decoded with proof."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from federations import candidates_of, generated_people, guessed, sent_by, simulated
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.attacks import attack_named
from overheard.decoding.subset_sums import Conditioning, Options, decode_subset_sums
from overheard.errors import FixConfig, FixRecording, OverheardError
from overheard.programs.families.statistics import Statistics, StatisticsSettings
from overheard.programs.program import Exchange
from overheard.programs.recipe import Target
from overheard.programs.records import Encoding, OneHot, Records, Scaled

RNG, DECODER = np.random.default_rng(0), attack_named("max_entropy")
TABLES = {
    "count": [{"by": ["s", "colour"]}, {"by": ["s", "a"]}],
    "sum": [{"kind": "sum", "of": "x", "by": ["s"]}, {"kind": "sum", "of": "x"}],
    "mean": [{"kind": "mean", "of": "x", "by": ["s", "colour"]}],
    "variance": [{"kind": "variance", "of": "x", "by": ["s"]}],
}


def some_records(rows=24, seed=1):
    rng = np.random.default_rng(seed)
    return Records(
        {
            "s": (rng.random(rows) < 0.5).astype(float),
            "colour": rng.choice(["blue", "green", "red"], rows),
            "a": rng.integers(0, 3, rows).astype(float),
            "x": rng.normal(size=rows),
            "y": rng.normal(size=rows),
        }
    )


def program(tables, records=None, **more):
    blocks = (
        Scaled(column="s"),
        OneHot(column="colour", values=("blue", "green", "red")),
        Scaled(column="a"),
        Scaled(column="x"),
    )
    asked = StatisticsSettings.model_validate({"name": "statistics", "tables": tables, **more})
    population = some_records(200, 5) if records is None else records
    return Statistics.planned(asked, Encoding(blocks=blocks), Target(column="y"), population)


def test_numbers_are_those_that_anybody_computes():
    records = some_records()
    made = program([table for kind in TABLES.values() for table in kind])  # type: ignore[attr-defined]
    (one,) = sent_by(made, records)
    meant = {name: array for name, array in one.returned.items() if "shown" not in name}
    s, x = records["s"], records["x"]
    colours = ("blue", "green", "red")
    cells = [(v, c) for v in (0.0, 1.0) for c in colours]
    inside = [(s == v) & (records["colour"] == c) for v, c in cells]
    np.testing.assert_array_equal(meant["0.counts"], [i.sum() for i in inside])
    np.testing.assert_allclose(meant["2.numbers"], [x[s == v].sum() for v in (0, 1)])
    np.testing.assert_allclose(meant["3.numbers"], [x.sum()])
    np.testing.assert_allclose(meant["4.numbers"], [x[i].mean() if i.any() else 0 for i in inside])
    moments = [x[s == v].mean() for v in (0, 1)], [x[s == v].var(ddof=1) for v in (0, 1)]
    np.testing.assert_allclose(meant["5.numbers"], np.concatenate(moments))


@pytest.mark.parametrize("kind", TABLES)
def test_the_measurement_is_exact_at_the_truth(kind):
    records = some_records()
    made = program(TABLES[kind])
    truth = np.eye(2)[records["s"].astype(int)]
    measurement = made.measure(sent_by(made, records, 2), candidates_of(records))
    assert measurement.rank >= 1
    assert measurement.chi2_per_equation(truth) < 4
    rng = np.random.default_rng(0)
    wrong = [measurement.chi2_per_equation(truth[rng.permutation(24)]) for _ in range(10)]
    assert np.median(wrong) > 100
    coarse = program(TABLES[kind], decimals=2)  # fewer digits are noise of their size
    rounded = coarse.measure(sent_by(coarse, records), candidates_of(records))
    assert rounded.chi2_per_equation(truth) < 9


settings_of_defences = st.sampled_from(
    [
        {"suppress": suppress, "round_to": round_to, "zeros": zeros}
        for suppress, round_to, zeros in product((0, 2, 3, 5), (1, 2, 3, 5), (True, False))
        if (not suppress and zeros) or suppress > (round_to - 1) // 2
    ]
)
some_tables = st.lists(
    st.sets(st.sampled_from(["s", "colour", "a"]), min_size=1, max_size=3).map(
        lambda by: {"by": sorted(by)}
    ),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(some_tables, settings_of_defences, st.integers(1, 7), st.integers(0, 1000))
def test_released_tables_leave_what_listing_every_answer_leaves(tables, defence, rows, seed):
    """Suppressed, rounded or not: bounds that the truth meets, and the posterior of all answers."""
    records = some_records(rows, seed)
    made = program(tables, **defence)
    observed, candidates = sent_by(made, records), candidates_of(records)
    equations = made.equations(observed, candidates)
    left = equations.given(records["s"].astype(int)).residual
    assert (np.abs(left) <= equations.half_width).all()
    found, state = decode_subset_sums(equations), Conditioning(equations, Options())
    sames = []
    for answer in product((0, 1), repeat=rows):
        other = Records({**records.columns, "s": np.array(answer, dtype=float)})
        (again,) = sent_by(made, other)
        if all((again.returned[n] == a).all() for n, a in observed[0].returned.items()):
            sames.append(answer)
    p = np.mean(sames, axis=0)
    np.testing.assert_allclose(found.posterior.probabilities[:, 1], p, atol=1e-9)
    for group in np.unique(state.group):
        mine = state.group == group
        sums = {sum(np.array(answer)[mine]) for answer in sames}
        assert (state.values()[mine] >= 0).all() == (len(sums) == 1)


def federated(path, tables, people=60, rounds=1, **more):
    content = {
        "data": {"source": "file"},
        "model": {"name": "statistics", "tables": tables, **more},
        "training": {"rounds": rounds},
    }
    return simulated(path, content, generated_people(2, people, 3, 0))


BINS = {"x0": [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5], "x1": [-1.0, 0.0, 1.0]}


def test_a_fine_table_names_people_and_suppression_hides_them(tmp_path):
    tables = [{"by": ["s", "x0", "x1"]}]
    open_, secret = guessed(DECODER, federated(tmp_path / "open", tables, bins=BINS))
    assert open_.diagnostics["method"] == "conditioning"
    named = open_.probabilities.max(axis=1) == 1
    assert named.sum() == open_.diagnostics["proven"] > 5
    assert (open_.choice() == secret)[named].all()
    shown, _ = guessed(DECODER, federated(tmp_path / "zeros", tables, bins=BINS, suppress=5))
    assert shown.diagnostics["proven"] == open_.diagnostics["proven"]  # zeros tell it all
    defence = {"suppress": 5, "zeros": False}
    closed, secret = guessed(DECODER, federated(tmp_path / "closed", tables, bins=BINS, **defence))
    assert closed.diagnostics["proven"] < open_.diagnostics["proven"]
    named = closed.probabilities.max(axis=1) == 1
    assert (closed.choice() == secret)[named].all()


def test_sums_beside_counts_are_decoded_and_proven_where_counts_alone_decide(tmp_path):
    tables = [{"by": ["s", "x0"]}, {"kind": "sum", "of": "x1", "by": ["s"]}]
    guess, secret = guessed(DECODER, federated(tmp_path / "run", tables, bins=BINS, people=16))
    sure = guess.probabilities.max(axis=1) > 0.99
    assert (guess.choice() == secret)[sure].all()
    assert sure.sum() >= guess.diagnostics["proven"]


@pytest.mark.parametrize(
    ("tables", "more", "meant"),
    [
        ([{"by": ["s", "nobody"]}], {}, "no column 'nobody'"),
        ([{"by": ["x0"]}], {}, "model.bins"),
        ([{"kind": "sum"}], {}, "of"),
        ([{"by": ["s"], "of": "x0"}], {}, "of"),
        ([{"by": ["s", "s"]}], {}, "twice"),
        ([], {}, "tables"),
        ([{"by": ["x0", "x1"]}], {"bins": {"x0": [2.0, 1.0]}}, "increase"),
        ([{"by": ["s"]}], {"suppress": -1}, "suppress"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(tmp_path, tables, more, meant):
    with pytest.raises(OverheardError, match=meant):
        federated(tmp_path / "run", tables, **more)


@pytest.mark.parametrize(
    "counts", [[0.0, 0.0, 0.0], [1.5, 2.0], [-2.0, 2.0], [np.inf, 2.0], ["a", "b"]]
)
def test_messages_of_another_program_are_refused_in_a_line(counts):
    made, records = program([{"by": ["s"]}]), some_records()
    observed = [Exchange(3, made.first(), {"0.counts": np.array(counts)})]
    for ask in (made.measure, made.equations):
        with pytest.raises(FixRecording, match="round 3: "):
            ask(observed, candidates_of(records))


def test_recorded_tables_may_have_other_names_and_come_one_by_one():
    """As FLARE releases them: a histogram in one round, a sum in another, numbers without axes."""
    names = {"0.counts": "histogram/people/s", "1.numbers": "sum/people/x"}
    tables, records = [{"by": ["s"]}, {"kind": "sum", "of": "x"}], some_records()
    made, plain = program(tables, sent_names=names), program(tables)
    whole = plain.respond(plain.first(), records, np.random.default_rng(0))
    meant = (
        {"histogram/people/s": whole["0.counts"], "count": np.array(3)},
        {"sum/people/x": whole["1.numbers"].reshape(())},
    )
    observed = made.assembled([Exchange(number, {}, one) for number, one in enumerate(meant)])
    assert [made.distance(one.returned, whole) for one in observed] == [0, 0]
    once = plain.measure([Exchange(0, plain.first(), whole)], candidates_of(records))
    assert made.measure(observed, candidates_of(records)).rank == once.rank
    with pytest.raises(FixRecording, match="no table of the program"):
        made.measure(made.assembled([Exchange(0, {}, {"x": np.zeros(2)})]), candidates_of(records))


def test_a_value_outside_every_cell_is_refused():
    made = program([{"by": ["colour"]}])
    strange = Records({**some_records().columns, "colour": np.full(24, "mauve")})
    with pytest.raises(FixConfig, match="mauve"):
        made.respond(made.first(), strange, RNG)

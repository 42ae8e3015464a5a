"""lyu2021's cells in small, on digits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.papers.lyu2021 import tables
from experiments.papers.lyu2021.run import Setting, has_twin, measured
from experiments.papers.lyu2021.tables import COS
from overheard import parse_config, plan
from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.papers.lyu2021 import CosMatching, GradientVarianceGmm

pytestmark = pytest.mark.slow
SHORT = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=10)
SMALL = Setting("digits", "c043", 40, hidden="64", rounds=2)


def test_claims_stand_where_the_paper_prints_them():
    claims = {name: table.claims for name, table in tables.BY_NAME.items()}
    assert claims["table3"][Setting("location30", "c069", 300)][COS] == 0.7967
    assert claims["table3"][Setting("location30", "c001", 100)]["l2_lbfgs"] == 1.0
    assert claims["table8"][Setting("location30", "c001", 300, rounds=5)][COS] == 0.8667
    assert claims["table8"][Setting("hs3d", "c017", 1000, rounds=5)][COS] == 0.255
    pool = Setting("location30", "c069", 300, rate=tables.MEMBERS_RATE, pooled=True)
    assert claims["table11"][pool]["gmm"] == 0.8933
    unknown = Setting("location30", "c069", 50, 32, 0.01, 20, prior_known=False)
    assert claims["table12"][unknown][COS] == 0.86
    for each in tables.BY_NAME["table12"].cells():  # a cell is the setting and back
        assert Setting(**dict(each.setting)) in claims["table12"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        SMALL,
        replace(SMALL, batch=8),
        replace(SMALL, phase="last5", rounds=7),
        replace(SMALL, others=2),
    ],
    ids=["full batch", "B=8", "last rounds only", "3 participants"],
)
def test_ours_reads_the_attribute_in_every_kind_of_setting(setting):
    found = measured(setting, MaxEntropy(rounds=2), 0)
    assert found["accuracy"] == 1.0
    assert 0.5 <= found["majority"] < 1.0
    assert found["balanced accuracy"] == 1.0


def test_the_imputation_and_the_search_stand_beside_it():
    assert 0.4 < measured(SMALL, None, 0)["accuracy"] <= 1
    assert 0 < measured(SMALL, SHORT, 0)["accuracy"] <= 1


def test_members_and_their_attribute():
    """Section 5.2: the mixture says who is a member, Algorithm 1 what their attribute is."""
    pool = replace(SMALL, records=30, pooled=True, rate=0.5, rounds=20)
    mixture = measured(pool, GradientVarianceGmm(), 0)
    both = measured(pool, GradientVarianceGmm(then=replace(SHORT, steps=5)), 0)
    assert both["accuracy"] == mixture["accuracy"]
    assert 0 <= both["accuracy of members' attribute"] <= 1
    assert "accuracy of members' attribute" not in mixture
    ours = tables.members_methods(pool)[tables.MEMBERS_OURS]
    assert measured(pool, ours, 0)["accuracy"] == 1.0


def test_labels_and_prior_unknown():
    asked = replace(SMALL, labels_known=False, prior_known=False, hidden="96")
    ours = measured(asked, MaxEntropy(labels=False), 0)
    assert (ours["accuracy"], ours["accuracy of labels"]) == (1.0, 1.0)


def test_a_known_prior_of_labels_finds_them_sooner():
    """Section 5.4, at the same few steps."""
    asked = replace(SMALL, records=30, labels_known=False, rounds=1, hidden="128")
    few = replace(SHORT, steps=25)
    unknown, known = (measured(asked, replace(few, label_prior_known=k), 0) for k in (False, True))
    assert known["accuracy of labels"] > unknown["accuracy of labels"]


def test_records_with_a_twin_are_found():
    ready = plan(parse_config(SMALL.config(0)))
    twice = ready.clients["victim"].take(np.array([0, 1, 2, 1, 3]))
    assert has_twin(ready.recipe, twice, "c043", 0.0).tolist() == [False, True, False, True, False]

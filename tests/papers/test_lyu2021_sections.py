"""What lyu2021 says beside its tables: the settings, and each in small on digits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from overheard.attacks.papers.lyu2021 import CosMatching, GradientVarianceGmm
from overheard.errors import FixData
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from papers.data import splice
from papers.lyu2021 import sections
from papers.lyu2021.scoring import LABELS_RIGHT, MEMBERS_RIGHT, score
from papers.lyu2021.settings import Setting

SHORT = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=60)
DIGITS = Setting("digits, c043", "30 records", "digits", "c043", 30, {}, options={"public": 100})


def test_members_first_then_their_attribute() -> None:
    """Section 5.2: the mixture says who is a member, Algorithm 1 what their attribute is."""
    few = replace(SHORT, steps=5)
    attacks = {sections.PIPELINE: GradientVarianceGmm(then=few), "gmm": GradientVarianceGmm()}
    pool = replace(DIGITS, attacks=attacks, pooled=True, rate=0.5, rounds=20)
    (both, alone), notes = score(pool, 0)
    assert not notes
    assert np.array_equal(both.hits, alone.hits)
    assert MEMBERS_RIGHT not in alone.measures
    assert 0 <= both.measures[MEMBERS_RIGHT].value <= 1


def test_a_known_prior_of_labels_finds_them_sooner() -> None:
    """Section 5.4, at the same few steps."""
    few = replace(SHORT, steps=25)
    attacks = {"unknown": few, "known": replace(few, label_prior_known=True)}
    asked = replace(DIGITS, attacks=attacks, labels_known=False, rounds=1)
    (unknown, known), notes = score(asked, 0)
    assert not notes
    assert known.measures[LABELS_RIGHT].value > unknown.measures[LABELS_RIGHT].value


def test_nucleotides_as_numbers_are_one_input() -> None:
    (first, *_) = sections.equation2_table(True)
    try:
        splice.load(victim=5)
    except FixData as error:
        pytest.skip(str(error))
    ready = plan(parse_config(first.config(0)))
    inside = ready.recipe.encoding.inputs_of("c001")
    assert inside.stop - inside.start == 1
    assert ready.attributes["c001"].values == (1.0, 2.0, 3.0, 4.0)

"""lyu2021 beside its tables: what sections 3.2, 5.2 and 5.4 describe in words, as settings.

Membership unknown: the mixture of section 3.3 says who is a member, then Algorithm 1 searches their
attribute (section 5.2). Labels unknown, but their prior known (section 5.4). And equation (2) for
more than two values: the attribute is one number, of which a distribution gives the mean.
"""

from __future__ import annotations

from dataclasses import replace

from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.papers.lyu2021 import GradientVarianceGmm
from overheard.transcript.view import Attack
from papers.lyu2021 import claims as printed
from papers.lyu2021.claims import COS, SOURCES, numbers
from papers.lyu2021.settings import (
    MEMBERS_RATE,
    OURS,
    RATE,
    WHOLE,
    Setting,
    cell,
    first_five,
    pool,
    some,
    two_classes,
)

PIPELINE = f"gmm, then {COS}"
PRIOR_KNOWN = f"{COS}, label prior known"
NEAREST_VALUE = f"{COS}, nearest value"
FEW_STEPS = 50
QUICK_RECORDS = 100


def pipeline_table(quick: bool) -> list[Setting]:
    """Section 5.2: who of a pool is a member, and with which value; purchases and locations.

    The paper prints no accuracy for the attribute: "the conclusions for the scenario when the
    membership is known also generally hold".
    """
    settings = []
    for source, lines in printed.MEMBERS.items():
        *columns, sizes = SOURCES[source]
        for batch in lines:
            for column in columns[:1] if quick else columns:
                for size in sizes:
                    if quick and (size > QUICK_RECORDS or source != "location30" or batch == 32):
                        continue
                    one = pool(source, column, size, batch, RATE if batch else MEMBERS_RATE)
                    both = {PIPELINE: GradientVarianceGmm(then=first_five(quick)), **one.attacks}
                    repeats = 1 if batch or size > QUICK_RECORDS else 3
                    rounds = 30 if quick else 100
                    settings.append(replace(one, attacks=both, rounds=rounds, repeats=repeats))
    return settings


def label_prior_table(quick: bool) -> list[Setting]:
    """Section 5.4: two classes, unknown labels that start from their prior, or from N(0, 1).

    Claimed: all labels right within 200 iterations where the prior is known, "longer" where it is
    not. So each search is run with 200 steps and with `FEW_STEPS`. For the attribute the paper has
    one number and does not say which of the two it is of.
    """
    settings = []
    for (source, column), line in printed.LABELS_UNKNOWN.items():
        for size, claimed in zip(SOURCES[source][2], numbers(line), strict=True):
            if quick and (size > QUICK_RECORDS or column != SOURCES[source][0]):
                continue
            unknown = replace(WHOLE, phases=("pre1",))
            known = replace(unknown, label_prior_known=True)
            attacks: dict[str, Attack] = {COS: unknown, PRIOR_KNOWN: known}
            attacks |= {
                f"{method}, {FEW_STEPS} steps": replace(search, steps=FEW_STEPS)
                for method, search in ((COS, unknown), (PRIOR_KNOWN, known))
            }
            one = two_classes(source, column, size, attacks, rounds=1)
            claims = some({COS: claimed, PRIOR_KNOWN: claimed})
            settings.append(replace(one, claims=claims, repeats=1 if size > QUICK_RECORDS else 3))
    return settings


def equation2_table(quick: bool) -> list[Setting]:
    """Equation (2) for four values: nucleotides as the numbers 1 to 4, one input a column.

    A mean of values does not tell their distribution, so what the search ends at can be read in two
    ways: the likeliest value, and the one nearest to the mean. Claimed are Table 4's numbers.
    """
    *columns, sizes = SOURCES["splice"]
    told = numbers(printed.METHODS["splice"][COS])
    settings = []
    for i, column in enumerate(columns[:1] if quick else columns):
        for j, size in enumerate(sizes):
            if quick and size > QUICK_RECORDS:
                continue
            search = replace(WHOLE, phases=("pre1", "pre5"))
            attacks: dict[str, Attack] = {
                COS: search,
                NEAREST_VALUE: replace(search, expected=True),
                OURS: MaxEntropy(rounds=5),
            }
            panel, claims = f"splice as numbers, {column}", some({COS: told[i * len(sizes) + j]})
            one = cell("splice", column, size, attacks, panel=panel, options={"numbers": True})
            repeats = 1 if size > QUICK_RECORDS else 3
            settings.append(replace(one, claims=claims, rounds=5, repeats=repeats))
    return settings

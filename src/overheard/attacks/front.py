"""Both ends of every decoder of attributes: what a record may be beforehand, and what is answered.

Between them stand a measurement and a decoder; those are what attacks differ in.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.stranger import told
from overheard.decoding.limits import CARRIED, UNKNOWNS
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.ties import same_rows, tie_diagnostics
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.records import Records, encode, encode_each
from overheard.transcript.guess import AttributeValues
from overheard.transcript.knowledge import (
    AttributeDomain,
    Labels,
    Link,
    PublicRecords,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
UNEXPLAINED = "poor fit: the updates hold more than recipe, model and rounding explain"
DECIDED = 0.9
"""Expected accuracy below which choices are said to be undecided."""


def labels_of(view: View) -> Array:
    """The known labels as numbers."""
    return np.asarray(told(view).target.encode_values(view.know(Labels).values))


def candidate_inputs(view: View, records: Records | None = None) -> Array:
    """Inputs (K, m, d) of the public records under each value of the attribute."""
    records = view.know(PublicRecords).records if records is None else records
    return encode_each(told(view).encoding, records, view.know(AttributeDomain).settings)


def public_ties(view: View) -> NDArray[np.intp]:
    """Numbers of records that agree in everything public and in the label."""
    settings, records = view.know(AttributeDomain).settings, view.know(PublicRecords).records
    public = encode(told(view).encoding, records, settings[0])
    return same_rows(np.column_stack([public, labels_of(view)]))


def is_input(view: View) -> bool:
    """Does the model see the attribute at all?"""
    columns = told(view).encoding.columns()
    return any(column in columns for column in view.know(AttributeDomain).columns)


def refuse_unseen(view: View) -> None:
    """For decoders of updates: what the model does not see is not in them."""
    if not is_input(view):
        raise ChooseAnotherAttack(
            f"the model does not see {view.know(AttributeDomain).column!r}, so no update depends "
            "on it: there is nothing to decode"
        )


def refuse_numbers(domain: AttributeDomain) -> None:
    """For decoders of values that are known one by one."""
    if domain.spread:
        raise ChooseAnotherAttack(
            f"{domain.column!r} is a number; numbers are decoded for linear least squares only"
        )


def refuse_many_values(domain: AttributeDomain) -> None:
    """More candidates of a record than are decoded."""
    if (many := len(domain.values)) > CARRIED:
        raise ChooseAnotherAttack(
            f"{domain.column!r} has {many} values or combinations of values; up to {CARRIED} are "
            "decoded: ask about fewer columns at once, or cut a number into bins"
        )


def refuse_many(unknowns: int, remedy: str) -> None:
    """More unknowns than a Gram matrix has room for."""
    if unknowns > UNKNOWNS:
        raise ChooseAnotherAttack(
            f"{unknowns} unknowns at once; up to {UNKNOWNS} are decoded: {remedy}"
        )


def all_known(link: Link, known: int) -> None:
    """Refuse when the client trained on more records than are known: the rest would be blamed."""
    counts = link.weights[np.isfinite(link.weights)]
    if len(counts) and counts.max() > known:
        raise FixData(
            f"{known} records are known but the client reported {counts.max():g}; decode with "
            "partial_decode, or give all records that it trained on"
        )


def flagged(flag: str, probabilities: Array) -> dict[str, str]:
    """The diagnostic ``flag``: why the answer must not be relied on. An answer that may be, and
    that leaves much open, is ``undecided``: its probabilities stand."""
    if flag:
        return {"flag": flag}
    expected = float(probabilities.max(axis=1).mean())
    if expected < DECIDED:
        return {"undecided": f"the decoder itself expects {expected:.2f} of its choices right"}
    return {}


def answer(
    view: View,
    posterior: Posterior,
    ties: NDArray[np.intp],
    notes: Mapping[str, float | int | str] | None = None,
) -> AttributeValues:
    """The guess, with how it was reached and what it leaves open."""
    probabilities = posterior.probabilities
    return AttributeValues(
        probabilities,
        view.know(AttributeDomain).values,
        {
            "method": posterior.method,
            **flagged(posterior.flag, probabilities),
            "rank": posterior.rank,
            "unknowns": posterior.unknowns,
            "chi2": posterior.chi2_per_equation,
            **(notes or {}),
            "entropy_bits": float(np.mean(posterior.entropy_bits)),
            **tie_diagnostics(ties, probabilities),
        },
    )


def unseen(view: View, prior: Array) -> AttributeValues:
    """The client's program does not look at the attribute: what was known before."""
    domain = view.know(AttributeDomain)
    return AttributeValues(
        prior,
        domain.values,
        {
            "method": "prior",
            "not_an_input": f"the model does not see {domain.column!r}",
            **flagged("", prior),
            "rank": 0,
            "unknowns": len(prior) * (len(domain.values) - 1),
        },
    )

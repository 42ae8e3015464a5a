"""Which attributes are asked about, and which values may each take?

A secret is a column, or several columns at once, whose values are then the combinations that occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from overheard.data.dataset import MOST_VALUES, Dataset, bins_of, domain_of, is_binned
from overheard.errors import FixConfig, FixData
from overheard.federation.federation import Attribute
from overheard.programs.records import Encoding, Records, encode, positions
from overheard.transcript.knowledge import AttributeDomain


def columns_of(secrets: Iterable[Attribute]) -> tuple[str, ...]:
    """The columns of some secrets, each once."""
    each = ((secret,) if isinstance(secret, str) else secret for secret in secrets)
    return tuple(dict.fromkeys(column for columns in each for column in columns))


def domains(
    records: Records, secrets: Sequence[Attribute], bins: int | None
) -> dict[str, AttributeDomain]:
    """What each secret is called, and the values that it may take."""
    columns = columns_of(secrets)
    cut = {column for column in columns if is_binned(records, column, bins)}
    if bins and not cut:
        raise FixConfig(
            f"audit.bins = {bins} has no effect: no attribute under audit "
            f"({', '.join(columns) or 'there is none'}) is a number with more than {bins} values; "
            "leave it out, or ask for fewer bins"
        )

    def found() -> Iterator[AttributeDomain]:
        for secret in secrets:
            if not isinstance(secret, str):
                yield _several(records, secret, cut)
            elif secret in cut:
                yield _binned(records, secret, bins)
            else:
                yield AttributeDomain(secret, domain_of(records, secret))

    return {domain.column: domain for domain in found()}


def _several(records: Records, columns: tuple[str, ...], cut: set[str]) -> AttributeDomain:
    if numbers := cut.intersection(columns):
        raise FixConfig(
            f"attributes {', '.join(columns)}: {min(numbers)!r} is a number that is cut into bins; "
            "columns that are asked about at once have few values each: ask about it alone"
        )
    domain = AttributeDomain.of_several(columns, records)
    if (many := len(domain.values)) > MOST_VALUES:
        raise FixConfig(
            f"attributes {', '.join(columns)}: {many} combinations of their values occur; at most "
            f"{MOST_VALUES} are asked about at once: leave a column out"
        )
    return domain


def _binned(records: Records, column: str, bins: int | None) -> AttributeDomain:
    """The middles of the bins of a number, and its spread within each."""
    values = bins_of(records, column, bins)
    which, middles = positions(records[column], values), np.asarray(values, dtype=np.float64)
    left = (records[column] - middles[which]) ** 2
    spread = tuple(float(np.sqrt(left[which == k].mean())) for k in range(len(values)))
    return AttributeDomain(column, values, spread)


def refuse_function_of_public(
    dataset: Dataset, encoding: Encoding, domain: AttributeDomain
) -> None:
    """Refuse an attribute that anybody can compute from the public inputs."""
    inside = encoding.inputs_of_all(domain.columns)
    inputs = encode(encoding, dataset.records)
    secret, public = inputs[:, inside], np.delete(inputs, inside, axis=1)
    design = np.column_stack([public, np.ones(len(public))])
    if not inside or len(design) <= design.shape[1]:
        return
    left = secret - design @ np.linalg.lstsq(design, secret, rcond=None)[0]
    if np.abs(left).max() <= 1e-8 * max(float(np.abs(secret).max()), 1e-300):
        raise FixData(
            f"attribute {domain.column!r} is a linear function of the public columns: anybody who "
            "has those can compute it, so there is nothing to infer; audit another column or drop "
            "the columns that give it away"
        )

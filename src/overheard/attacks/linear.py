"""What do releases of programs that train no network tell? Candidates, a measurement, a decoder.

One front end for every family in ``programs/families``: each record is written out under each
candidate, the program says what all that was heard measures of them (`Program.measure`), and the
ladder decodes it. The families differ in their programs, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.front import answer, refuse_numbers, unseen
from overheard.attacks.membership import membership
from overheard.attacks.stranger import beforehand, prior_shares
from overheard.decoding.label_solve import Residuals, solve_residuals
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.sparse_ladder import decode_sparse
from overheard.decoding.ties import decode_tied, group_means
from overheard.decoding.whole_counts import WholeCounts, whole_counts
from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.programs.program import Candidates, Constraints, Program
from overheard.programs.records import Records
from overheard.transcript.guess import AttributeValues, LabelValues, Membership, OwnModel
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    CandidatePool,
    ClientProgram,
    EverybodysRecords,
    Labels,
    PublicRecords,
    Releases,
    SummedReleases,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
Groups = NDArray[np.intp]
MISFIT = "poor fit: the releases hold more than the program and rounding explain"
IMPOSSIBLE = "no values explain the released counts; program or records may be others"
_FAR = 1e4  # mean square of what no candidate explains, in units of rounding, that is let pass: the
# ladder raises the noise to it, and a wrong description leaves many orders of magnitude more
_DOUBT = 1e-6  # of a candidate that whole counts allow
_SWEEPS = 200  # of fitting margins; a few dozen settle to 1e-6
_OF_EVERYBODY = 2.0  # records whose values everybody's shares stand for, so that none becomes 0
HALF_ULP = 2.0**-24  # relative rounding of a float32, at most
_SETTLED = 0.5  # records by which a share moves no more


@dataclass(frozen=True)
class Linear:
    """Reads what a program releases (gradients and Hessians of Newton steps, nodes of trees,
    tables) as exactly linear measurements of the attribute, which may be the label where that is a
    class, and decodes them: certain where they
    suffice, calibrated where not. What a stranger would say of each record, where auxiliary records
    are granted, is its prior; else how common each value is at large.
    """

    name: ClassVar[str] = "linear"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Releases, ClientProgram, PublicRecords, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset({Labels, AttributePrior, AuxiliaryData})
    equation: ClassVar[str] = "release = Σᵢ φᵢ(sᵢ), φᵢ(v) what record i adds were its secret v"

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        program, domain = view.know(ClientProgram).program, view.know(AttributeDomain)
        releases, known = view.know(Releases), dict(view.know(PublicRecords).records.columns)
        label, size = program.target.column, len(view.know(PublicRecords).records)
        if Labels in view.kinds:
            known[label] = view.know(Labels).values
        elif label in program.columns() and label not in domain.columns:
            raise ChooseAnotherAttack(f"the labels {label!r} are not known, and are in the sums")
        refuse_numbers(domain)
        reported = releases.weights[np.isfinite(releases.weights)]
        if len(reported) and reported.max() > size:
            raise FixData(
                f"{size} records are known but the client reported {reported.max():g}; "
                "give all records that its releases sum over"
            )
        prior = beforehand(view)
        if not set(domain.columns) & set(program.columns()):
            return unseen(view, prior)
        tables = under_each(known, domain)
        ties = program.alike(tables[0])
        posterior, notes = decoded(program, releases, Candidates(tables), ties, prior)
        return answer(view, posterior, ties, notes)


@dataclass(frozen=True)
class LinearMembership:
    """Reads what a program releases as a sum over a pool of candidates in which strangers add
    nothing, and decodes who is in the sum and, where an attribute is unknown too, its value.
    """

    name: ClassVar[str] = "linear_membership"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Releases, ClientProgram, CandidatePool})
    uses: ClassVar[frozenset[type[Any]]] = frozenset({AttributeDomain, AttributePrior})
    equation: ClassVar[str] = "release = Σᵢ φᵢ(sᵢ) over the pool, φᵢ = 0 for strangers"

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        program, pool = view.know(ClientProgram).program, view.know(CandidatePool)
        releases = view.know(Releases)
        columns = {**pool.records.columns, program.target.column: pool.labels}
        size = len(pool.labels)
        tables: tuple[Records, ...] = (Records(columns),)
        shares = np.ones(1)
        if AttributeDomain in view.kinds:
            refuse_numbers(view.know(AttributeDomain))
            shares = prior_shares(view)
            tables = under_each(columns, view.know(AttributeDomain))
        reported = releases.weights[np.isfinite(releases.weights)]
        members = float(reported[-1]) / size if len(reported) else 0.5
        members = min(max(members, 0.5 / size), 1 - 0.5 / size)
        prior = np.tile(np.concatenate([[1 - members], members * shares]), (size, 1))
        ties = program.alike(tables[0])
        posterior, notes = decoded(program, releases, Candidates((None, *tables)), ties, prior)
        p = posterior.probabilities
        told = {
            "method": posterior.method,
            "rank": posterior.rank,
            "unknowns": posterior.unknowns,
            **notes,
        }
        inside = np.clip(1 - p[:, 0], 0.0, 1.0)
        return membership(view, p, inside, told, posterior.flag, ties)


@dataclass(frozen=True)
class LinearLabel:
    """Reads what a program releases as linear in the records' labels (gradients are, of squared
    error, Poisson and gamma) and solves for every label at once, knowing the other columns. Labels
    that the equations leave open stay near the mean that they tell. No label is claimed to more
    digits than float32 holds: clients may have rounded it so.
    """

    name: ClassVar[str] = "linear_label"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Releases, ClientProgram, PublicRecords})
    equation: ClassVar[str] = "release = Σᵢ φᵢ(0) + yᵢ (φᵢ(1) - φᵢ(0))"

    def __call__(self, view: View, rng: np.random.Generator) -> LabelValues:
        program, heard = view.know(ClientProgram).program, view.know(Releases).exchanges
        known = view.know(PublicRecords).records
        label, size = program.target.column, len(known)
        if program.target.classes:
            raise ChooseAnotherAttack(f"{label!r} is a class, which 'linear' decodes")
        tables = tuple(Records({**known.columns, label: np.full(size, y)}) for y in (1.0, 2.0))
        found = program.measure(heard, Candidates(tables))
        louder = max(1.0, found.misfit)
        first = _labels(found.differences, found.total, np.full(found.rank, louder**0.5))
        # what clients round, who have other labels than these: how far from linear it is that
        # labels as large as the answer enter
        above = np.abs(first.values)
        sized = Records({**known.columns, label: 1 + above})
        again = program.measure(heard, Candidates((*tables, sized)))
        each, same = np.moveaxis(again.differences.reshape(size, 2, -1), 1, 0)
        bent = same - above[:, None] * each
        if np.abs(bent).max(initial=0.0) > 1e-3 * np.abs(same).max(initial=0.0):
            raise ChooseAnotherAttack(f"what was released is not linear in {label!r}")
        solved = _labels(each, again.total, np.sqrt(louder + np.square(bent).sum(axis=0)))
        told = {
            "identified": int(solved.identified.sum()),
            "records": size,
            "prior_sd": solved.tau,
            "rank": found.rank,
            "misfit": found.misfit,
        }
        values = 1 + solved.values
        return LabelValues(values, np.hypot(solved.sd, HALF_ULP * np.abs(values)), told)


def under_each(known: Mapping[str, NDArray[Any]], domain: AttributeDomain) -> tuple[Records, ...]:
    """The records under each value of the attribute."""
    size = len(next(iter(known.values())))
    return tuple(
        Records({**known, **{c: np.full(size, v) for c, v in value.items()}})
        for value in domain.settings
    )


def _labels(each: Array, total: Array, noise: Array) -> Residuals:
    """How far above 1 each label is: what one more adds (m, R), and what all of them add (R,)."""
    together = each.sum(axis=0)
    mean = float(together @ total / max(float(together @ together), 1e-300))
    solved = solve_residuals([(each.T, total - mean * together, noise)], len(each))
    return replace(solved, values=mean + solved.values)


def decoded(
    program: Program, releases: Releases, candidates: Candidates, ties: Groups, prior: Array
) -> tuple[Posterior, dict[str, float | int]]:
    """Probabilities of each record's candidates, and notes: ``misfit``, the mean square of what no
    candidate explains, of whole counts ``certified``, the records with one possible value, and of
    sparse equations ``proven``, those that single cells decide.

    Where whole numbers are all that was released the posterior is exact, group by group, as far as
    their answers can be listed; `decode` answers for the rest.
    """
    sizes, shared = np.bincount(ties), group_means(prior, ties)
    sparse = program.equations(releases.exchanges, candidates)
    if sparse is not None:
        found = decode_sparse(sparse, ties, shared)
        told = _as_told_apart(found.posterior.probabilities, ties, prior)
        proven = {"misfit": found.misfit, "proven": int(found.proven.sum())}
        return replace(found.posterior, probabilities=told), proven
    constraints = program.constraints(releases.exchanges, candidates)
    whole = None if constraints is None else _whole(constraints, ties, shared)
    measurement = program.measure(releases.exchanges, candidates)
    if whole is not None and constraints is not None and constraints.complete:
        known = ~whole.left_open
    else:
        known = np.zeros(len(sizes), bool) if whole is None else whole.certified
    p = shared
    if whole is not None and whole.possible:
        p = np.where(whole.may[ties], p, 0.0)
        p /= p.sum(axis=1, keepdims=True)
    if known.all():
        unknowns = len(p) * (p.shape[1] - 1)
        posterior = Posterior(p, 0.0, measurement.rank, unknowns, 1, True, "whole counts")
    else:
        posterior = decode_tied(measurement, ties, p)
    flag = posterior.flag
    if not flag and measurement.spare_rows and measurement.misfit > _FAR:
        flag = MISFIT
    p = posterior.probabilities
    if whole is not None and whole.possible:
        # who is not proven to be the only answer is not said to be
        doubtful = np.where(whole.may[ties], (p + _DOUBT) / (1 + p.shape[1] * _DOUBT), 0.0)
        p = np.where(known[ties][:, None], whole.shares[ties], doubtful)
        p /= p.sum(axis=1, keepdims=True)
    elif whole is not None:
        flag = IMPOSSIBLE
    told = _as_told_apart(p, ties, prior)
    notes: dict[str, float | int] = {"misfit": measurement.misfit}
    if whole is not None:
        single = whole.certified & (whole.shares.max(axis=1) == 1)
        notes["certified"] = int(sizes[single].sum())
    return replace(posterior, probabilities=told, flag=flag), notes


def _whole(constraints: Constraints, ties: Groups, prior: Array) -> WholeCounts:
    """What the counts say. How common each value is at this client is fitted to them by expectation
    maximisation, where every answer can be summed: a prior is everybody's, and clients differ.
    """
    bounds = (constraints.counts, constraints.low, constraints.high, ties)
    found, before, sizes = whole_counts(*bounds, prior), prior.mean(axis=0), np.bincount(ties)
    shares = before
    for _ in range(_SWEEPS if constraints.complete else 0):
        if not found.possible or found.left_open.any():
            break
        fitted = (sizes @ found.shares + _OF_EVERYBODY * before) / (len(ties) + _OF_EVERYBODY)
        if np.abs(fitted - shares).max() * len(ties) < _SETTLED:
            break
        shares = fitted
        mine = prior * (shares / np.maximum(before, 1e-300))
        found = whole_counts(*bounds, mine / mine.sum(axis=1, keepdims=True))
    return found


def _as_told_apart(probabilities: Array, ties: Groups, prior: Array) -> Array:
    """Records that the program cannot tell apart, told apart by their priors: those closest to
    the priors whose mean over the group is what was decoded."""
    made = probabilities.copy()
    for group in np.flatnonzero(np.bincount(ties) > 1):
        mine = np.flatnonzero(ties == group)
        if (prior[mine] == prior[mine[0]]).all():
            continue
        wanted = probabilities[mine].mean(axis=0)
        fitted = prior[mine].copy()
        for _ in range(_SWEEPS):
            fitted *= wanted / np.maximum(fitted.mean(axis=0), 1e-300)
            fitted /= np.maximum(fitted.sum(axis=1, keepdims=True), 1e-300)
        made[mine] = fitted
    return made


@dataclass(frozen=True)
class LinearSum:
    """Reads the sum of what all clients released, which is all that secure aggregation of a program
    shows, as an exactly linear measurement of the attribute of every record of every client, and
    decodes them together: the clients are one pool.
    """

    name: ClassVar[str] = "linear_sum"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {SummedReleases, ClientProgram, EverybodysRecords, AttributeDomain}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset({AttributePrior, AuxiliaryData})
    equation: ClassVar[str] = "Σ over clients of releases = Σᵢ φᵢ(sᵢ) over everybody's records"

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        sums, domain = view.know(SummedReleases), view.know(AttributeDomain)
        everybody, names = view.know(EverybodysRecords), sums.clients
        program = view.know(ClientProgram).program.summed(len(names))
        refuse_numbers(domain)
        if not set(domain.columns) & set(program.columns()):
            raise ChooseAnotherAttack(f"the program does not look at {domain.column!r}")
        if silent := set(names) - set(everybody.records):
            raise FixData(f"the records of {min(silent)} are not known, and are in the sums too")
        owner = np.repeat(np.arange(len(names)), [len(everybody.labels[n]) for n in names])
        known = {
            column: np.concatenate([everybody.records[n][column] for n in names])
            for column in everybody.records[names[0]].columns
        }
        known[program.target.column] = np.concatenate([everybody.labels[n] for n in names])
        tables = under_each(known, domain)
        prior = np.concatenate(
            [beforehand(view, everybody.records[n], everybody.labels[n]) for n in names]
        )
        ties, heard = program.alike(tables[0]), Releases(sums.exchanges, np.full(len(sums), np.nan))
        posterior, notes = decoded(program, heard, Candidates(tables), ties, prior)
        mine = owner == names.index(view.client)
        own = replace(posterior, probabilities=posterior.probabilities[mine])
        return answer(view, own, ties[mine], notes)


@dataclass(frozen=True)
class OwnRelease:
    """Takes the step that the server would take with this client's releases and nobody else's: of
    Newton's method towards the client's own optimum, of boosted trees to its own trees."""

    name: ClassVar[str] = "own_release"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Releases, ClientProgram})
    equation: ClassVar[str] = "model = server's step (release of this client alone)"

    def __call__(self, view: View, rng: np.random.Generator) -> OwnModel:
        program = view.know(ClientProgram).program
        if not program.makes_model:
            raise ChooseAnotherAttack(f"{program.family!r} is a program that makes no model")
        try:
            return OwnModel(program.own(view.know(Releases).exchanges))
        except FixConfig as error:
            raise ChooseAnotherAttack(f"the client alone makes no model ({error})") from error

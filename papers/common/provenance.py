"""Which code a row depends on, whether that is the code of today, and how it was measured.

A row depends on the modules that its experiment imports, directly or through others, and on those
of the attack behind its method; not on the other attacks that the experiment compares with. What
only draws, names or writes results is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from types import ModuleType

from overheard.attacks import all_attacks
from overheard.code_digest import MAKES_NO_NUMBER, Age, age_of, code_of, seal, sources, stands_on
from overheard.errors import FixConfig
from papers.common.harness import STRANGER
from papers.common.rows import Choice, Experiment, Progress, Reproduction, Row, sparing

WRITES_ONLY = frozenset(f"papers.common.{name}" for name in ("catalogue", "provenance", "rows"))


def command(experiment: Experiment, quick: bool, seeds: int, part: Choice) -> str:
    """How to measure it again, without the folders that each machine has its own of."""
    words = ["overheard", "reproduce", experiment.name, "--seeds", str(seeds)]
    words += ["--quick"] if quick else []
    for name, value in asdict(part).items():
        if value != getattr(Choice(), name):
            words += [f"--{name}", str(value)]
    return " ".join(words)


# ------------------------------------------------------------------------------------ which code


@cache
def modules_behind(run: str, behind: tuple[str, ...] | None) -> frozenset[str]:
    """What rows depend on, that the module ``run`` measured of the attacks in ``behind``.

    Of the attacks that the experiment names it is not those in other modules; whoever takes more
    from such a module than the attack itself depends on it nevertheless, and so does an attack
    that stands on another one. None: nobody said which attacks, so it is all that is imported.
    """
    known = (*sources(), *sources("papers"))
    drawn = frozenset(name for name in known if name.endswith(("picture", "pictures")))
    without = MAKES_NO_NUMBER | WRITES_ONLY | drawn
    if behind is None:
        return stands_on(run, without=without)
    around = stands_on(run, apart=_attack_classes(), without=without)
    return around | stands_on(*behind, without=without)


@cache
def _code(run: str, behind: tuple[str, ...] | None) -> str:
    return code_of(modules_behind(run, behind))


def code_behind(experiment: Experiment, method: str) -> str:
    """The digest of the code that a method's rows depend on."""
    return _code(experiment.run.__module__, attacks_behind(experiment, method))


def attacks_behind(experiment: Experiment, method: str) -> tuple[str, ...] | None:
    """The modules of the attacks behind a method; None where nobody said."""
    name = method.partition(",")[0]
    if method in experiment.methods:
        things = experiment.methods[method]
    elif method == STRANGER:
        things = ()
    elif name in all_attacks():
        things = (all_attacks()[name],)
    else:
        return None
    return tuple(t.__name__ if isinstance(t, ModuleType) else t.__module__ for t in things)


@cache
def _attack_classes() -> Mapping[str, frozenset[str]]:
    """The attacks of every module that has some."""
    found: dict[str, set[str]] = {}
    for attack in all_attacks().values():
        found.setdefault(attack.__module__, set()).add(attack.__name__)
    return {module: frozenset(names) for module, names in found.items()}


# ----------------------------------------------------------------------------------- on the rows


def stamped(experiment: Experiment, outcome: Reproduction, how: str) -> Reproduction:
    """The outcome with its rows saying by which code, command and seeds they were measured."""
    code = {m: code_behind(experiment, m) for m in dict.fromkeys(r.method for r in outcome.rows)}
    rows = (
        replace(
            row,
            code=code[row.method],
            command=how,
            first_seed=experiment.first_seed if row.first_seed is None else row.first_seed,
        )
        for row in outcome.rows
    )
    return replace(outcome, rows=tuple(replace(row, seal=seal(asdict(row))) for row in rows))


def age(experiment: Experiment | None, row: Row) -> Age:
    """Whether the code of today measured a row; an experiment that is gone has no such code."""
    today = None if experiment is None else code_behind(experiment, row.method)
    return age_of(row.code, today)


# ---------------------------------------------------------------------------- measuring, and anew


def measure(
    experiment: Experiment,
    quick: bool,
    seeds: int,
    progress: Progress,
    part: Choice,
    before: Reproduction | None = None,
    methods: frozenset[str] = frozenset(),
) -> Reproduction:
    """The experiment's outcome; of methods whose rows in ``before`` are current, those rows.

    ``before`` must be of the same command: a mean over other seeds or sizes is another number.
    ``methods``: measure none but these; other rows stay as old as they are, and say so.
    """
    for package in ("overheard", "papers"):
        sources(package)  # the code that will run, not what somebody makes of it in the meantime
    present = {row.method for row in before.rows} if before else set()
    if unknown := methods - present:
        raise FixConfig(
            f"{experiment.name}: no rows of {min(unknown)!r} to measure again; give --again, the "
            f"folder with its rows and one of their methods: {', '.join(sorted(present)) or 'none'}"
        )
    how = command(experiment, quick, seeds, part)
    if before is None:
        return stamped(experiment, experiment.run_part(quick, seeds, progress, part), how)
    _check_same(before, quick, how)
    spared = up_to_date(experiment, before.rows) | (present - methods if methods else set())
    if spared >= present:
        return before
    with sparing(spared):
        fresh = stamped(experiment, experiment.run_part(quick, seeds, progress, part), how)
    kept = tuple(row for row in before.rows if row.method in spared)
    new = tuple(row for row in fresh.rows if row.method not in spared)
    return replace(fresh, rows=kept + new)


def up_to_date(experiment: Experiment, rows: Sequence[Row]) -> frozenset[str]:
    """The methods all of whose rows were measured by the code of today."""
    methods = {row.method for row in rows}
    return frozenset(methods - {r.method for r in rows if age(experiment, r) != "current"})


def _check_same(before: Reproduction, quick: bool, how: str) -> None:
    others = {row.command for row in before.rows} - {how, None}
    if before.quick != quick or others:
        was = f"with{'' if before.quick else 'out'} --quick"
        was = ", ".join(sorted(map(str, others))) or was
        raise FixConfig(
            f"{before.name}: these rows were measured by another command ({was}); give that one, "
            "or another folder"
        )

"""Which code a cell's result depends on: that of the chain, and of the attacks that it names."""

from __future__ import annotations

from functools import cache

from overheard.own_code import MAKES_NO_NUMBER, code_of, stands_on


@cache
def cell_code(attacks: tuple[str, ...]) -> str:
    """The digest for a cell that runs these attacks; none are all of them, as an audit has it."""
    from overheard.attacks import all_attacks

    known = all_attacks()
    named = [known[name].__module__ for name in attacks or known if name in known]
    return code_of(stands_on("overheard.sweep.cell", *named, without=MAKES_NO_NUMBER))

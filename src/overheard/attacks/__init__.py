"""The attacks: a file per question or method; `papers` has the papers' own, a file each.

A new attack is one new file: a frozen dataclass with the class attributes ``name``, ``paper``,
``question`` and ``needs`` and a ``__call__(view, rng)``; its docstring says in its first paragraph
what it does and in one that begins with "Solves: " which equation it solves. It is found here by
itself, shows up in ``overheard attacks``, runs in audits, and is held to the contract suite. An
attack in a package of its own is declared by an entry point of the group ``overheard.attacks``.
"""

from __future__ import annotations

import inspect
import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from overheard.errors import FixConfig
from overheard.transcript import knowledge
from overheard.transcript.threat import nearest
from overheard.transcript.view import Attack

GROUP = "overheard.attacks"
"""The group of entry points under which other packages declare attacks."""
SOLVES = "Solves: "
FACTS = ("name", "question", "needs", "paper")


@cache
def all_attacks() -> dict[str, type[Any]]:
    """Every attack class by its name, sorted by question and then by name."""
    result: dict[str, Any] = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for _, thing in inspect.getmembers(import_module(module.name), inspect.isclass):
            attack: Any = thing
            mine = attack.__module__ == module.name and "name" in vars(attack)
            if mine and all(hasattr(attack, fact) for fact in FACTS):
                _add(result, attack)
    for point in entry_points(group=GROUP):
        attack = point.load()
        if missing := [fact for fact in FACTS if not hasattr(attack, fact)]:
            raise FixConfig(f"{point.value}: is no attack: it lacks {', '.join(missing)}")
        _add(result, attack)
    return dict(sorted(result.items(), key=lambda item: (item[1].question, item[0])))


def aliases() -> dict[str, Attack]:
    """Older names, kept for one release, of attacks whose work others do now."""
    return {
        old: attack(**settings)
        for attack in all_attacks().values()
        for old, settings in getattr(attack, "aliases", {}).items()
    }


def _add(result: dict[str, Any], attack: Any) -> None:
    if attack.name in result:
        both = " and ".join(a.__module__ for a in (result[attack.name], attack))
        raise FixConfig(f"two attacks are called {attack.name!r}, in {both}; rename one")
    result[attack.name] = attack


def attack_named(name: str) -> Attack:
    """The attack of this name with its default settings."""
    known: dict[str, Attack] = {n: attack() for n, attack in all_attacks().items()} | aliases()
    if name not in known:
        raise FixConfig(f"unknown attack {name!r}; {nearest(name, known)}")
    return known[name]


def is_slow(attack: Attack | type[Any]) -> bool:
    """Whether an audit runs it only when asked: searches that take minutes a client."""
    return bool(getattr(attack, "slow", False))


def listens(attack: Attack | type[Any]) -> bool:
    """Whether it is an attack at all: it needs what clients say. The others are guesses that
    attacks are compared with."""
    return knowledge.listens(attack.needs)


def words(attack: Attack | type[Any]) -> str:
    """The first paragraph of an attack's docstring, on one line."""
    return paragraphs(attack)[0]


def equation(attack: Attack | type[Any]) -> str:
    """What the paragraph of an attack's docstring says that begins with "Solves: ": the equation
    behind it, and where its paper has it. Attacks that only guess have none.

    θ is the model sent, θ′ the one returned, g(v) a record's gradient were its secret v, s the
    secret, y the label, f the model and m the number of records; b is a round's sum of updates.
    """
    result = (text for text in paragraphs(attack) if text.startswith(SOLVES))
    return next(result, "").removeprefix(SOLVES)


def paragraphs(attack: Attack | type[Any]) -> list[str]:
    """Those of an attack's docstring, each on one line."""
    text = inspect.cleandoc(attack.__doc__ or "")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]

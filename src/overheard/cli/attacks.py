"""``overheard attacks``: which attacks are there, and what does each do?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from overheard import terminal
from overheard.cli.options import NoSeed


def attacks(
    name: Annotated[
        str | None, typer.Argument(help="One attack, to be explained; leave out for the list.")
    ] = None,
    seed: NoSeed = None,
) -> None:
    """List the attacks, or explain one: what it does, by which equation, what it must know."""
    from overheard.attacks import all_attacks, attack_named

    if name is not None:
        _explain(attack_named(name))
        return
    known = all_attacks()
    terminal.table(
        ["attack", "question", "paper", "needs"],
        [
            (name, attack.question, attack.paper, ", ".join(sorted(k.name for k in attack.needs)))
            for name, attack in known.items()
        ],
    )
    terminal.say("overheard attacks NAME explains one")
    terminal.emit([_facts(attack) for attack in known.values()])


def _facts(attack: Any) -> dict[str, Any]:
    from overheard.attacks import equation, is_slow, words
    from overheard.transcript.threat import who_grants

    needs = sorted(attack.needs, key=lambda kind: kind.name)
    threats = [set(who_grants(kind)) for kind in needs]
    return {
        "name": attack.name,
        "question": attack.question,
        "paper": attack.paper,
        "words": words(attack),
        "equation": equation(attack),
        "needs": [kind.name for kind in needs],
        "uses": sorted(kind.name for kind in getattr(attack, "uses", ())),
        "threats": sorted(set.intersection(*threats)) if threats else [],
        "slow": is_slow(attack),
    }


def _explain(attack: Any) -> None:
    import inspect

    from overheard.report.references import title

    facts = _facts(type(attack))
    terminal.emit(facts)
    terminal.say(f"{facts['name']}: {facts['words']}")
    rows = [
        ("question", facts["question"].replace("_", " ")),
        ("paper", title(facts["paper"])),
        ("equation", facts["equation"] or "none: it only guesses"),
        ("needs", ", ".join(facts["needs"])),
        ("uses if granted", ", ".join(facts["uses"]) or "nothing more"),
        ("threat models", ", ".join(facts["threats"]) or "none grants all of it by itself"),
        ("runs", "only with --slow or by name" if facts["slow"] else "in every audit"),
    ]
    settings = (inspect.getdoc(type(attack)) or "").partition("Settings:")[2]
    if settings:
        rows.append(("settings", " ".join(settings.split())))
    rows.append(("try", f"overheard audit RUN --attack {facts['name']} --out DIR"))
    terminal.table(["", facts["name"]], rows)

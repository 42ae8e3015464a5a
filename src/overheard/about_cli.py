"""``overheard attacks`` and ``overheard doctor``: what there is, and whether it is all there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from overheard import terminal

EXTRAS = {
    "flower": ("flwr",),
    "nvflare": ("nvflare",),
    "dp": ("opacus", "dp-accounting"),
    "ray": ("ray",),
    "browser": ("playwright", "axe-playwright-python"),
    "docs": ("mkdocs", "mkdocs-material", "mkdocstrings"),
    "dev": ("pytest", "hypothesis", "ruff", "mypy", "bandit"),
}
CORE = ("overheard", "numpy", "scipy", "scikit-learn", "torch", "pydantic")


def attacks(
    name: Annotated[
        str | None, typer.Argument(help="One attack, to be explained; leave out for the list.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", hidden=True)] = None,
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


def doctor(seed: Annotated[int | None, typer.Option("--seed", hidden=True)] = None) -> None:
    """Print what is installed and which data are found; exit 1 if something needed is missing."""
    import os
    import platform
    import sys

    from overheard.attacks import all_attacks
    from overheard.data.catalogue import about
    from overheard.data.source import sources
    from overheard.foreign.limits import LIMITS, limit, variable
    from overheard.isolation.launch import means

    core = {name: _version(name) for name in CORE}
    extras = {extra: {name: _version(name) for name in names} for extra, names in EXTRAS.items()}
    data = {name: about(name) for name in sources()}
    terminal.emit(
        {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": core,
            "extras": extras,
            "data": {name: known.found or None for name, known in data.items()},
            "attacks": len(all_attacks()),
            "isolation": means(),
            "limits": {name: limit(name) for name in LIMITS},
        }
    )
    rows = [
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("platform", f"{platform.platform()}, {os.cpu_count()} cores"),
        ("attacks", f"{len(all_attacks())} found"),
        ("OVERHEARD_DATA", os.environ.get("OVERHEARD_DATA", "not set")),
    ]
    rows += [(name, version or "MISSING") for name, version in core.items()]
    terminal.table(["this machine", ""], rows)
    terminal.table(
        ["extra", "state", "packages"],
        [
            (
                extra,
                "installed" if all(found.values()) else f"pip install 'overheard[{extra}]'",
                ", ".join(f"{name} {version or 'missing'}" for name, version in found.items()),
            )
            for extra, found in extras.items()
        ],
    )
    terminal.table(
        ["data", "where"],
        [(name, known.found or f"missing: {known.remedy}") for name, known in data.items()],
    )
    terminal.table(
        ["limit on strangers' files", "at most", "of", "set by"],
        [
            (name, f"{limit(name)} {known.unit}", known.about, variable(name))
            for name, known in LIMITS.items()
        ],
    )
    terminal.table(
        ["isolated attacks are kept from the", "by"],
        [(what, how or "nothing: this system has no means") for what, how in means().items()],
    )
    if not all(core.values()):
        raise typer.Exit(1)


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None

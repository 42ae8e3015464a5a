"""What there is: ``overheard attacks``, ``overheard doctor`` and ``overheard explain``."""

from __future__ import annotations

import inspect
import json
import os
import platform
import re
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Annotated, Any

import typer

import overheard
from overheard import terminal
from overheard.errors import FixConfig

if TYPE_CHECKING:
    from overheard.federation.reading import Key


def attacks(
    name: Annotated[
        str | None, typer.Argument(help="One attack, to be explained; leave out for the list.")
    ] = None,
) -> None:
    """List the attacks, or explain one: what it does, by which equation, what it must know."""
    from overheard.report.html import title

    if name is None:
        every = [_facts(attack) for attack in overheard.all_attacks().values()]
        listed = [(f["name"], f["question"], f["paper"], ", ".join(f["needs"])) for f in every]
        terminal.table(["attack", "question", "paper", "needs"], listed)
        terminal.say("overheard attacks NAME explains one")
        terminal.emit(every)
        return
    attack = type(overheard.attack_named(name))
    facts = _facts(attack)
    terminal.emit(facts)
    terminal.say(f"{facts['name']}: {facts['words']}")
    settings = (inspect.getdoc(attack) or "").partition("Settings:")[2]
    rows = [
        ("question", facts["question"].replace("_", " ")),
        ("paper", title(facts["paper"])),
        ("equation", facts["equation"] or "none: it only guesses"),
        ("needs", ", ".join(facts["needs"])),
        ("uses if granted", ", ".join(facts["uses"]) or "nothing more"),
        ("threat models", ", ".join(facts["threats"]) or "none grants all of it by itself"),
        ("runs", "only with --slow or by name" if facts["slow"] else "in every audit"),
        ("settings", " ".join(settings.split()) or "none"),
        ("try", f"overheard audit RUN --attack {facts['name']} --out DIR"),
    ]
    terminal.table(["", facts["name"]], rows)


def _facts(attack: Any) -> dict[str, Any]:
    from overheard.attacks import is_slow
    from overheard.evaluation.audit import info_of
    from overheard.transcript.threat import who_grants

    threats = [set(who_grants(kind)) for kind in attack.needs]
    uses = sorted(kind.name for kind in getattr(attack, "uses", ()))
    allowed = sorted(set.intersection(*threats)) if threats else []
    more = {"uses": uses, "threats": allowed, "slow": is_slow(attack)}
    return info_of(attack).model_dump(mode="json") | more


def doctor() -> None:
    """Print what is installed, the sources of data and where they are, and the limits on foreign
    files; exit 1 if something needed is missing."""
    from overheard.data.source import sources
    from overheard.foreign.limits import LIMITS, limit, variable

    core, extras = {"overheard": _version("overheard")}, dict[str, dict[str, str | None]]()
    for line in requires("overheard") or ():
        name, _, condition = line.partition(";")
        name = re.split(r"[^\w.-]", name)[0]
        of = re.search(r"extra == .(\w+)", condition)
        (extras.setdefault(of[1], {}) if of else core)[name] = _version(name)
    about = {"python": platform.python_version(), "platform": platform.platform()}
    data = {n: asdict(s) | {"where": s.where} for n, s in sources().items()}
    attacks = len(overheard.all_attacks())
    installed = {"packages": core, "extras": extras, "data": data}
    terminal.emit(about | installed | {"attacks": attacks, "limits": {n: limit(n) for n in LIMITS}})
    rows = [
        ("python", f"{about['python']} ({sys.executable})"),
        ("platform", f"{about['platform']}, {os.cpu_count()} cores"),
        ("attacks", f"{attacks} found"),
        *((name, version or "MISSING") for name, version in core.items()),
    ]
    terminal.table(["this machine", ""], rows)
    states = []
    for extra, there in extras.items():
        state = "installed" if all(there.values()) else f"pip install 'overheard[{extra}]'"
        states.append((extra, state, ", ".join(f"{n} {v or 'missing'}" for n, v in there.items())))
    terminal.table(["extra", "state", "packages"], states)
    heads = ["what", "licence", "origin", "where"]
    listed = [(name, *(about[head] for head in heads)) for name, about in data.items()]
    terminal.table(["source", *heads], listed, wide=True)
    bounds = [(n, f"{limit(n)} {k.unit}", k.about, variable(n)) for n, k in LIMITS.items()]
    terminal.table(["limit on foreign files", "at most", "of", "set by"], bounds)
    if not all(core.values()):
        raise typer.Exit(1)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# What `explain` prints of a federation's keys, and docs/configuration.md, come from its schema.


def explain(
    key: Annotated[str, typer.Argument(help="A key or a table; default: all of them.")] = "",
    schema: Annotated[bool, typer.Option("--schema", help="JSON schema of audit.json.")] = False,
) -> None:
    """Say what a key of a federation's file or of a policy means."""
    from overheard.transcript.threat import nearest

    if schema:
        from overheard.evaluation.record import Audit

        typer.echo(json.dumps(Audit.model_json_schema(), indent=1))
        return
    known = every_key()
    found = [k for k in known if f".{k.path}.".endswith(f".{key}.") or k.path.startswith(f"{key}.")]
    if not found:
        names = {part for k in known for part in (k.path, k.path.rpartition(".")[2])}
        raise FixConfig(f"no key {key!r}; {nearest(key, sorted(names), 0.6)}")
    for k in found:
        facts = [k.values, k.default and f"default {k.default}", only(k)]
        terminal.say(f"{k.path}{kind_of(k)}: {'; '.join(filter(None, facts))}")
        terminal.say(*(f"    {line}" for line in (k.meaning, k.example) if line))
    terminal.emit({"keys": {k.path + kind_of(k): k.meaning for k in found}})


def every_key() -> list[Key]:
    """Every key of a federation's file."""
    from overheard.evaluation.policy import Policy
    from overheard.federation.defences import all_defences
    from overheard.federation.federation import Federation, NetworkSettings
    from overheard.federation.reading import keys
    from overheard.federation.server import RULES
    from overheard.programs.program import families, settings_of

    models = [NetworkSettings, *map(settings_of, families())]
    kinds = {"model": models, "server": RULES.values(), "defence": all_defences().values()}
    return keys(Federation, kinds) + keys(Policy, {}, "policy.")  # type: ignore[arg-type]


def kind_of(key: Key) -> str:
    """Which of several kinds of a table has it."""
    fields = key.table.model_fields
    named = next((fields[n].default for n in ("name", "rule", "block") if n in fields), None)
    return f" ({named})" if isinstance(named, str) else ""


def only(key: Key) -> str:
    from overheard.federation.federation import OF_RECORDINGS, OF_SIMULATIONS

    if key.path in (*OF_SIMULATIONS, *OF_RECORDINGS):
        return f"({'simulations' if key.path in OF_SIMULATIONS else 'recordings'} only)"
    return ""

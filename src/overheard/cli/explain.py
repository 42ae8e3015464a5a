"""``overheard explain``: every key of a federation's file, its values, default and meaning.

What is printed, and docs/configuration.md, come from the schema itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from overheard import terminal
from overheard.errors import FixConfig

if TYPE_CHECKING:
    from overheard.federation.reading import Key


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

"""``overheard explain``: every key of a federation's file, its values, default and meaning.

What is printed, and docs/configuration.md (``--markdown``), come from the schema itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from overheard import terminal
from overheard.errors import FixConfig

if TYPE_CHECKING:
    from overheard.federation.reading import Key

HEAD = """\
# Configuration

The keys of a federation's file, for `overheard simulate`, `preflight`, `sweep` (its `[base]`), and
of `audit.toml`, which `overheard init` writes and `overheard audit --with` reads. A relative path
starts at the folder of the file that names it. A line begins with the key and its default, or with
an *example* where it has none (†: of simulations only, ‡: of recordings only). What several kinds
of a table share stands at the first. `overheard explain KEY` prints the same, with the numbers
allowed; `overheard explain --markdown` prints this page."""


def explain(
    key: Annotated[str, typer.Argument(help="A key or a table; default: all of them.")] = "",
    markdown: Annotated[bool, typer.Option(help="All of them, as a page.")] = False,
) -> None:
    """Say what a key of a federation's file means."""
    from overheard.transcript.threat import nearest

    if markdown:
        typer.echo(page(), nl=False)
        return
    known = every_key()
    found = [k for k in known if f".{k.path}.".endswith(f".{key}.") or k.path.startswith(f"{key}.")]
    if not found:
        names = {part for k in known for part in (k.path, k.path.rpartition(".")[2])}
        raise FixConfig(f"no key {key!r}; {nearest(key, sorted(names), 0.6)}")
    for k in found:
        facts = [k.values, k.default and f"default {k.default}", _only(k)]
        terminal.say(f"{k.path}{_kind(k)}: {'; '.join(filter(None, facts))}")
        terminal.say(*(f"    {line}" for line in (k.meaning, k.example) if line))
    terminal.emit({"keys": {k.path + _kind(k): k.meaning for k in found}})


def every_key() -> list[Key]:
    """Every key of a federation's file."""
    from overheard.federation.defences import all_defences
    from overheard.federation.federation import Federation, NetworkSettings
    from overheard.federation.reading import keys
    from overheard.federation.server import RULES
    from overheard.programs.program import families, settings_of

    models = [NetworkSettings, *map(settings_of, families())]
    kinds = {"model": models, "server": RULES.values(), "defence": all_defences().values()}
    return keys(Federation, kinds)  # type: ignore[arg-type]


def page() -> str:
    """The reference as Markdown: a section a table, a line a key; what several kinds of a table
    have alike stands at the first."""
    lines, title = [HEAD], ""
    there: dict[tuple[str, ...], str] = {}
    for k in every_key():
        at, _, name = k.path.rpartition(".")
        heading = f"## {f'`[{at}]`' if at else 'Top level'}{_kind(k)}"
        if heading != title:
            title, about = heading, " ".join((k.table.__doc__ or "").split())
            lines += ["", title, "", about, ""]
        again = there.setdefault((k.path, k.values, k.default, k.meaning), heading) != heading
        if k.default != f'"{_kind(k)[2:-1]}"' and not again:
            lines.append(_line(k, name))
    return "\n".join(lines).replace("``", "`") + "\n"


def _line(k: Key, name: str) -> str:
    """One line of the page: the key with its default, else with an example; of words, which."""
    if k.default and "required" not in k.default:
        begin = f"`{name} = {k.default}`"
    else:
        begin = f"*`{k.example or name}`*" + (" **required**" if k.default else "")
    words = re.findall(r'"[\w:-]+"', k.values)
    others = [word for word in words if word not in begin and word.strip('"') not in k.meaning]
    more = f" ({'or ' if words[0] in begin else ''}{', '.join(others)})" if others else ""
    mark = {"simulations": "†", "recordings": "‡"}.get(_only(k).strip("(").split(" ")[0], "")
    return f"- {begin}{mark}{more}: {k.meaning}"


def _kind(key: Key) -> str:
    """Which of several kinds of a table has it."""
    fields = key.table.model_fields
    named = next((fields[n].default for n in ("name", "rule", "block") if n in fields), None)
    return f" ({named})" if isinstance(named, str) else ""


def _only(key: Key) -> str:
    from overheard.federation.federation import OF_RECORDINGS, OF_SIMULATIONS

    if key.path in (*OF_SIMULATIONS, *OF_RECORDINGS):
        return f"({'simulations' if key.path in OF_SIMULATIONS else 'recordings'} only)"
    return ""

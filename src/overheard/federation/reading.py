"""How does a TOML file become checked settings, and which keys may stand in it?

Every mistake names the key, what was given and what is allowed; an unknown key names the nearest
one. A relative path starts at the folder of the file that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from overheard.errors import FixConfig, GrantKnowledge
from overheard.foreign.files import inside
from overheard.foreign.shown import short, visible
from overheard.programs.records import Spec
from overheard.transcript.threat import nearest

S = TypeVar("S", bound=Spec)
HELD_OUT = "held out"
"""Not the name of a table: the people whom clients kept for tests."""
PATHS = (
    *(("data", "path"), ("data", "options", "path"), ("data", "options", "folder")),
    *(("audit", "non_members"), ("property", "record"), ("property", "auxiliary")),
)
"""The keys that name a file or a folder; in a sweep they stand in its ``[base]``."""


def checked(spec: type[S], content: Any, name: str = "", at: str = "") -> S:
    """The content as this kind of settings; an error names the first one that is wrong.

    ``name``: of the file, for errors; ``at``: where in it the content stands, such as "model.".
    """
    head = f"{name}: " if name else ""
    try:
        return spec.model_validate(content)
    except FixConfig as error:  # of a table inside, which was checked by itself
        raise FixConfig(f"{head}{error}") from error
    except ValidationError as error:
        found = error.errors()
        first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
        *above, last = first["loc"] or ("top level",)
        where = at + "".join(f"{part}." for part in above)[:200]
        if first["type"] == "extra_forbidden":
            tables = tables_at(spec, above)
            known = [key for table in tables for key in table.model_fields]
            near = nearest(str(last), known, 0.6)
            raise FixConfig(f"{head}unknown key {where}{short(last)}; {near}") from error
        words = str(first["msg"]).removeprefix("Value error, ")
        given = short(first["input"])
        raise FixConfig(f"{head}{where}{last}: {words} (given: {given})") from error


def specs_in(annotation: Any) -> Iterator[type[Spec]]:
    """The kinds of tables that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    for inner in get_args(annotation):
        yield from specs_in(inner)


def tables_at(spec: type[Spec], path: Iterable[Any]) -> list[type[Spec]]:
    """What tables may stand at this path of a schema; indices and the tags of unions count as
    parts of it."""
    found: list[type[Spec]] = [spec]
    for part in path:
        fields = [kind.model_fields[part] for kind in found if part in kind.model_fields]
        tagged = [k for k in found if part in (f.default for f in k.model_fields.values())]
        found = [k for f in fields for k in specs_in(f.annotation)] or tagged or found
    return found


def parse_named(what: str, key: str, known: Mapping[str, type[Spec]], content: Any) -> Any:
    """The table as the kind that ``content[key]`` names, checked; ``what``: of kinds, in errors.

    What is no table is handed on, for who checks the rest of the file.
    """
    if not isinstance(content, Mapping):
        return content
    name = content.get(key)
    if not isinstance(name, str) or name not in known:
        raise FixConfig(f"unknown {what} {short(name)}; {nearest(str(name), known, 0.6)}")
    return checked(known[name], dict(content), f"{what} {name!r}")


def located(content: dict[str, Any], file: Path, confined: bool = False) -> dict[str, Any]:
    """The content of a file with its paths as they are from here.

    ``confined``: the file came with a recording and nobody vouched for it, so that it may name
    files in its own folder only.
    """
    for *above, key in (*PATHS, *(("base", *path) for path in PATHS)):
        table: Any = content
        for part in above:
            table = table.get(part) if isinstance(table, dict) else None
        name = table.get(key) if isinstance(table, dict) else None
        if not isinstance(name, str) or name in ("", HELD_OUT):
            continue
        table[key] = str(file.parent / name)  # an absolute path stays what it is
        if confined and not inside(file.parent, Path(table[key])):
            raise GrantKnowledge(
                f"{file}: names {short(name)}, which is outside of the recording; if you wrote or "
                f"checked that file, say so with --with {file}"
            )
    return content


@dataclass(frozen=True)
class Key:
    """One key of a schema, for who reads about it. ``table``: the kind of table that it is in."""

    path: str
    table: type[Spec]
    values: str
    default: str
    meaning: str
    example: str


def keys(spec: type[Spec], kinds: Mapping[str, Iterable[type[Spec]]], at: str = "") -> list[Key]:
    """Every key of a schema, the keys of its tables after its own. ``kinds``: of a table that says
    by a name which kind it is, those that there are."""
    found: list[Key] = []
    inside: list[Key] = []
    whole = spec.model_json_schema()
    for name, schema in whole["properties"].items():
        path, default = f"{at}{name}", schema.get("default")
        meaning, _, example = " ".join(schema.get("description", "").split()).partition("Example: ")
        usual = "" if default in (None, "", [], {}) or "$ref" in schema else _toml(default)
        example = example.strip("`") or (f"{name} = {usual}" if usual else "")
        if name in whole.get("required", ()):
            usual = "none: it is required"
        found.append(Key(path, spec, _values(schema), usual, meaning.strip(), example))
        for kind in kinds.get(path) or specs_in(spec.model_fields[name].annotation):
            inside += keys(kind, kinds, f"{path}.")
    return found + inside


def _toml(value: Any) -> str:
    """A value of a key, as it stands in TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_entries(value)) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _entries(table: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The lines of a table; of tables inside, with dotted keys."""
    for name, value in table.items():
        key = above + (name if re.fullmatch(r"[A-Za-z0-9_]+", name) else _toml(name))
        if isinstance(value, Mapping) and value:
            yield from _entries(value, f"{key}.")
        else:
            yield f"{key} = {_toml(value)}"


def written(tables: Mapping[str, Mapping[str, Any]], remarks: Iterable[str]) -> bytes:
    """A file of these tables, after remarks as comments."""
    lines = [f"# {visible(line)}" for line in remarks]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_entries(table)]
    return "\n".join([*lines, ""]).encode()


_TYPES = {"integer": "whole number", "number": "number", "string": "text", "object": "table"}
_BOUNDS = {
    **{"minimum": "at least", "exclusiveMinimum": "above"},
    **{"maximum": "at most", "exclusiveMaximum": "below"},
}


def _values(schema: Mapping[str, Any]) -> str:
    """What a key may be, in words, from its JSON schema."""
    if "const" in schema or "enum" in schema:
        return ", ".join(map(_toml, schema.get("enum", [schema.get("const")])))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            words = [_values(one) for one in schema[several] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(words))
    kind = str(schema.get("type", "object"))
    if kind == "boolean":
        return "true or false"
    if kind == "array":
        first = schema["items"] if "items" in schema else schema["prefixItems"][0]
        return f"list of {_values(first)}"
    bounds = [f"{word} {schema[key]:g}" for key, word in _BOUNDS.items() if key in schema]
    return ", ".join([_TYPES[kind], *bounds])

"""What was found, as the TOML file that an audit reads, with what is still open in its comments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from overheard.federation.recorders.description import BESIDE
from overheard.files import write_durably
from overheard.foreign.shown import visible
from overheard.identify.recording import Found


def write_found(run: Path, found: Found) -> Path:
    """Write ``audit.toml`` into the recording's folder; an existing one is kept."""
    file = run / BESIDE
    content = found.description.model_dump(exclude_defaults=True)
    if found.open:
        content.setdefault("audit", {})["also_fits"] = [other.words for other in found.open]
    training = found.description.training
    if training is not None and "optimiser" in content["training"]:
        named = {"name": training.optimiser.name}
        content["training"]["optimiser"] = named | content["training"]["optimiser"]
    lines = [*(f"# {visible(line)}" for line in remarks(found)), "", *_tables(content)]
    write_durably(file, ["\n".join([*lines, ""]).encode()])
    return file


def remarks(found: Found) -> list[str]:
    """What was found and how sure that is, in words."""
    best, checked = found.ranking[0], [r for r in found.fits if r.outcome != "cannot be checked"]
    said = [f"Found by replaying the clients' records: {best.words}."]
    if found.description.clients:
        said.append("Who is who was found by replay, too: see [clients].")
    if found.explained:
        said.append(f"The messages of {len(checked)} clients are what their records lead to so.")
    elif found.unfit:
        said.append(
            f"NONE FITS: of the recipes tried this one comes closest and leaves {best.residual:.2g}"
            f" of the messages' squares; {len(found.unfit)} of {len(checked)} clients did not train"
            " so. Correct what is wrong here: an audit under it is not measured."
        )
    else:
        said.append("No client could be checked under it.")
    if found.open:
        said.append("Still open, as the messages are explained as well by:")
        said += [f"    {other.words}" for other in found.open]
    said.append("Not tried: weight decay, clipped gradients, FedProx, defences, dropout.")
    return said


def _tables(content: Mapping[str, Any]) -> Iterator[str]:
    """Tables of one level; what is deeper stands in its line."""
    for name, table in content.items():
        if isinstance(table, Mapping):
            yield f"[{name}]"
            yield from (f"{_key(key)} = {_value(value)}" for key, value in table.items())
            yield ""


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)

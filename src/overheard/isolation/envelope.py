"""Views and guesses as bytes: JSON for what they are made of, safetensors for the numbers.

Nothing is pickled. A guess comes from a stranger: it is read with the bounds of any stranger's
file, and only into the types that guesses are made of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from overheard import errors
from overheard.errors import AttackFailed, FixConfig, OverheardError
from overheard.foreign.limits import check
from overheard.foreign.notation import parse_json
from overheard.foreign.shown import short
from overheard.programs.records import Records
from overheard.transcript import guess as guesses
from overheard.transcript.kind import Knowledge
from overheard.transcript.knowledge import KINDS
from overheard.transcript.target import Target
from overheard.transcript.view import View

GUESSES: tuple[type[Any], ...] = (
    guesses.LocalModel,
    guesses.OwnModel,
    guesses.AttributeValues,
    guesses.Membership,
    guesses.GroupMeans,
    guesses.LabelValues,
    guesses.ClientProperty,
)
_GIVEN = {kind.__name__: kind for kind in (*KINDS, Records, Target)}
_BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)


def pack(content: Any) -> bytes:
    """A guess as bytes."""
    return _packed(content, _answers(type(content)), free=False)


def _answers(*more: type[Any]) -> dict[str, type[Any]]:
    return {kind.__name__: kind for kind in (*GUESSES, *more)}


def pack_call(attack: Any, view: View, rng: np.random.Generator) -> bytes:
    """An attack, by its module, name and settings, with its view and its random stream."""
    knowledge = tuple(view.know(kind) for kind in sorted(view.kinds, key=attrgetter("__name__")))
    call = (attack, view.client, view.target, view.threat, knowledge, rng.bit_generator.state)
    return _packed(call, _GIVEN, free=True)


def unpack_call(raw: bytes) -> tuple[Any, View, np.random.Generator]:
    """The inverse, in the child: whoever sent this is trusted, and modules are imported."""
    said, arrays = _parts(raw)
    call = _decoded(json.loads(said), arrays, _GIVEN, free=True)
    attack, client, target, threat, knowledge, state = call
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    view = View(client, target, threat, {type(piece): piece for piece in knowledge})
    return attack, view, np.random.Generator(bits)


def pack_failure(error: Exception) -> bytes:
    """What an attack raised, in words."""
    words = {"error": type(error).__name__, "words": str(error)[: errors.LONGEST]}
    raw = json.dumps(words).encode()
    return len(raw).to_bytes(8, "little") + raw


def unpack_guess(raw: bytes, name: str, answers: tuple[type[Any], ...] = ()) -> Any:
    """A guess out of a stranger's bytes, or the error that they tell of.

    ``answers``: the types in which the question is answered, where they are not all ours.
    Of the errors only those that say that an attack did not apply are raised as what they call
    themselves; anything else is `AttackFailed`.
    """
    where = f"the answer of {name!r}"
    try:
        said, arrays = _parts(raw)
        check("json_bytes", len(said), where, AttackFailed)
        content = parse_json(said, where, AttackFailed)
        if isinstance(content, dict) and "error" in content:
            _raise(str(content["error"]), str(content["words"]), name)
        found = _decoded(content, arrays, _answers(*answers), free=False)
    except (*_BROKEN, SafetensorError, RecursionError) as error:
        raise AttackFailed(f"{where} is not a guess ({type(error).__name__}: {error})") from error
    except OverheardError as error:
        if isinstance(error, (AttackFailed, *_APPLY.values())):
            raise
        raise AttackFailed(f"{where} is not a guess: {error}") from error
    if type(found) not in (*GUESSES, *answers):
        raise AttackFailed(f"{where} is {short(found)}, not a guess")
    return found


_APPLY: dict[str, type[OverheardError]] = {
    kind.__name__: kind
    for kind in (
        errors.ChooseAnotherAttack,
        errors.GrantKnowledge,
        errors.DeclareKnowledge,
        errors.ListenLonger,
        errors.FixData,
    )
}


def _raise(kind: str, words: str, name: str) -> None:
    if kind in _APPLY:
        raise _APPLY[kind](words)
    raise AttackFailed(f"attack {name!r} failed: {kind[:100]}: {words}")


def _packed(content: Any, types: Mapping[str, type[Any]], free: bool) -> bytes:
    arrays: dict[str, NDArray[Any]] = {}
    said = json.dumps(_encoded(content, arrays, types, free), allow_nan=False).encode()
    return len(said).to_bytes(8, "little") + said + (save(arrays) if arrays else b"")


def _parts(raw: bytes) -> tuple[bytes, dict[str, NDArray[Any]]]:
    end = 8 + int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or end > len(raw):
        raise ValueError(f"{len(raw)} bytes where {end} are announced")
    arrays = load(raw[end:]) if len(raw) > end else {}
    for array in arrays.values():
        array.flags.writeable = False
    return raw[8:end], arrays


def _encoded(
    value: Any, arrays: dict[str, NDArray[Any]], types: Mapping[str, type[Any]], free: bool
) -> Any:
    def inner(part: Any) -> Any:
        return _encoded(part, arrays, types, free)

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else {"int": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "U" and value.ndim == 1 and free:
            return {"text": value.tolist()}
        arrays[str(len(arrays))] = np.ascontiguousarray(value).reshape(value.shape)
        return {"array": str(len(arrays) - 1)}
    if isinstance(value, tuple | list):
        return {"tuple": [inner(part) for part in value]}
    if isinstance(value, Mapping):
        return {"map": [[inner(key), inner(part)] for key, part in value.items()]}
    kind = type(value)
    if is_dataclass(value) and (types.get(kind.__name__) is kind or free):
        known = types.get(kind.__name__) is kind
        name = kind.__name__ if known else f"{kind.__module__}:{kind.__qualname__}"
        of = {part: inner(content) for part, content in _taken_apart(value).items()}
        return {"kind" if known else "class": name, "of": of}
    raise FixConfig(
        f"a {kind.__name__} cannot be handed to or from an isolated attack; its settings and its "
        "guess are numbers, texts, arrays, tuples, mappings and dataclasses of those"
    )


def _decoded(
    said: Any, arrays: Mapping[str, NDArray[Any]], types: Mapping[str, type[Any]], free: bool
) -> Any:
    def inner(part: Any) -> Any:
        return _decoded(part, arrays, types, free)

    if not isinstance(said, dict):
        if isinstance(said, list):
            raise ValueError("a bare list")
        return said
    match said:
        case {"int": str(text)} if len(text) < 1000:
            return int(text)
        case {"float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"text": list(words)} if free:
            return np.array([str(word) for word in words], dtype=str)
        case {"array": str(name)}:
            return arrays[name]
        case {"tuple": list(parts)}:
            return tuple(inner(part) for part in parts)
        case {"map": list(pairs)}:
            return {inner(key): inner(part) for key, part in pairs}
        case {"kind": str(name), "of": dict(of)}:
            return _made(types[name], {key: inner(part) for key, part in of.items()})
        case {"class": str(name), "of": dict(of)} if free:
            module, _, path = name.partition(":")
            kind = attrgetter(path)(import_module(module))
            return _made(kind, {key: inner(part) for key, part in of.items()})
    raise ValueError(f"{short(said)} is nothing that is known")


def _taken_apart(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Knowledge):
        return value.packed()
    return {f.name: getattr(value, f.name) for f in fields(value) if f.init}


def _made(kind: type[Any], parts: dict[str, Any]) -> Any:
    return kind.unpacked(parts) if issubclass(kind, Knowledge) else kind(**parts)

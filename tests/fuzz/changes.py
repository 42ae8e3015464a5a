"""How an input is changed: a few changes at a time."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

EVIL = "\x1b]0;a\x07\u202e<script>[red]{0}%s$\\"
SCALARS: list[Any] = [
    None, True, False, 0, -1, 1, 2, 1.5, -0.0, 1e308, 5e-324, 1 << 31, 1 << 53, 1 << 63, 10**30,
    "", "a", "s", "y", "north", "attribute.s", "LocalTraining", "../x", "/etc/passwd", EVIL,
    "x" * 3000,
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(SCALARS),
    st.sampled_from([[], {}, [[]], [{}], {"a": 1}, [0] * 40, ["a", "a"], [1, "a", None]]),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)
TOML_VALUES = st.one_of(
    st.sampled_from(
        ["0", "-1", "1", "2", "1e308", "5e-324", "inf", "nan", "9223372036854775807", '""', '"s"',
         "[]", "{}", "[[]]", "[1]", '["s"]', '["s", "s"]', "true", "1979-05-27", "[0.0]",
         '{ a = 1 }', '"\\u001b[31m"', '"../x"', '"file"', '"leaf_synthetic"', "[1000000000]",
         '"x"', '[{ name = "gaussian" }]', '[{ name = "clip", norm = 1 }]', "'a.b'", '"""', "0x7f"]
    ),
    st.integers(-(1 << 40), 1 << 70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
)  # fmt: skip
KEYS = st.sampled_from(["a", "key", "kind", "", EVIL, "layout", "n", "0"])


def changed_json(seed: bytes, draw: Any) -> bytes:
    """One to four nodes of the tree replaced, removed, doubled or renamed."""
    tree = json.loads(seed)
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(tree))
        if not places:
            return json.dumps(draw(VALUES)).encode()
        parent, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.integers(0, 9)):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.insert(key, deepcopy(parent[key]))
            case 2 if isinstance(parent, dict):
                parent[draw(KEYS)] = parent.pop(key)
            case 3:
                other, where = places[draw(st.integers(0, len(places) - 1))]
                parent[key] = deepcopy(other[where])
            case _:
                parent[key] = deepcopy(draw(VALUES))  # or one list could come to hold itself
    return json.dumps(tree, allow_nan=False).encode("utf-8", "replace")


def _places(tree: Any) -> Any:
    level = [tree]
    while level:
        below = []
        for node in level:
            keys = list(node) if isinstance(node, dict) else range(len(node))
            for key in keys:
                yield node, key
                if isinstance(node[key], dict | list):
                    below.append(node[key])
        level = below


def changed_toml(seed: bytes, draw: Any) -> bytes:
    """Lines removed, doubled, moved, given another value, or broken."""
    lines = seed.decode().splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(lines) - 1, 0)))
        if not lines:
            break
        match draw(st.integers(0, 9)):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines.append(lines[at])
            case 3:
                cut = draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:cut] + draw(st.text(max_size=3)) + lines[at][cut:]
            case _ if " = " in lines[at]:
                lines[at] = lines[at].partition(" = ")[0] + " = " + draw(TOML_VALUES)
            case _:
                lines.insert(at + 1, f"{draw(KEYS) or 'a'} = {draw(TOML_VALUES)}")
    return "\n".join(lines).encode("utf-8", "replace")


def changed_bytes(seed: bytes, draw: Any) -> bytes:
    """Bytes flipped, set, cut out, put in, repeated; whole numbers made large."""
    raw = bytearray(seed)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        if not raw:
            return bytes(draw(st.binary(max_size=20)))
        match draw(st.integers(0, 7)):
            case 0:
                raw[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                raw[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x2C, 0x22]))
            case 2:
                del raw[at : at + draw(st.integers(1, 16))]
            case 3:
                raw[at:at] = draw(st.binary(min_size=1, max_size=8))
            case 4:
                raw[at : at + 4] = draw(
                    st.sampled_from(
                        [b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\x80\x80\x01"]
                    )
                )
            case 5:
                raw[at:at] = raw[at : at + draw(st.integers(1, 64))]
            case 6:
                del raw[at:]
            case 7:
                raw[at : at + 8] = draw(st.integers(0, (1 << 64) - 1)).to_bytes(8, "little")
    return bytes(raw)


CHANGES = {"json": changed_json, "toml": changed_toml, "bytes": changed_bytes}


@st.composite
def inputs(draw: Any, like: str, seeds: list[bytes]) -> bytes:
    """A seed of the corpus, changed."""
    seed = seeds[draw(st.integers(0, len(seeds) - 1))]
    return bytes(CHANGES[like](seed, draw))

"""Every defence by its name in a config: ``[[defence]]`` with ``name = "clip"``, ``norm = 1.0``.

A new defence is a file with a config (a `DefenceConfig`) and a line here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from overheard.errors import FixConfig
from overheard.federation.defences.clip import ClipConfig
from overheard.federation.defences.compression import QuantiseConfig, TopKConfig
from overheard.federation.defences.contract import Defence, DefenceConfig, chain
from overheard.federation.defences.dp_sgd import DpSgdConfig
from overheard.federation.defences.drop_column import DropColumnConfig
from overheard.federation.defences.gaussian import GaussianConfig
from overheard.federation.defences.secure_sum import SecureSumConfig

DEFENCES: dict[str, type[DefenceConfig]] = {
    "clip": ClipConfig,
    "dp_sgd": DpSgdConfig,
    "drop_column": DropColumnConfig,
    "gaussian": GaussianConfig,
    "quantise": QuantiseConfig,
    "secure_sum": SecureSumConfig,
    "top_k": TopKConfig,
}


def parse_defence(content: Any) -> Any:
    """The checked settings of one defence, from what a config file says."""
    if not isinstance(content, Mapping):
        return content
    name = content.get("name")
    if not isinstance(name, str) or name not in DEFENCES:
        near = difflib.get_close_matches(str(name), DEFENCES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(DEFENCES)}"
        raise FixConfig(f"unknown defence {name!r}; {hint}")
    fields = DEFENCES[name].model_fields
    for key in content:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields)}"
            raise FixConfig(f"defence {name!r}: unknown key {key!r}; {hint}")
    return DEFENCES[name].model_validate(dict(content))


def build_all(configs: Iterable[DefenceConfig]) -> Defence:
    """The chain of the configured defences, in their order."""
    parts: list[Defence] = []
    for config in configs:
        before = tuple(claim for part in parts for claim in part.claim)
        parts.append(config.build(before))
    return chain(*parts)

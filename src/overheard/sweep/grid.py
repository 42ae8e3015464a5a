"""The sweep's config file: a base federation, what varies, and who listens.

seeds = [0, 1, 2]
threat = "eavesdropper"
attacks = ["max_entropy"]

[base]                       # a simulation's config, as `overheard simulate` reads it
data = { source = "randhie" }
model = { name = "mlp", hidden = [64] }
training = { rounds = 5, learning_rate = 0.1 }

[grid]                       # every combination of these
"training.epochs" = [1, 5]

[[setting]]                  # and each of these
defence = "none"

[[setting]]
defence = "noise"
strength = 0.01
change = { defence = [{ name = "gaussian", sd = 0.01 }] }
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from overheard.errors import FixConfig
from overheard.federation.federation import parse_config, read_config
from overheard.federation.reading import checked, located
from overheard.foreign.files import read_toml
from overheard.foreign.limits import check
from overheard.foreign.shown import command
from overheard.programs.records import Spec
from overheard.recorders.template import BESIDE
from overheard.transcript.store import Recording

NOISE = (0.5, 2.0, 8.0, 32.0)
"""Noise multipliers of the usual settings."""
MOST_ROUNDS = 10
"""Rounds of a recorded federation that a sweep simulates."""


class Setting(Spec):
    """One defence at one strength: what it changes in the base config, by dotted keys.

    ``threat`` and ``attacks``: who listens there, where it is not who listens elsewhere.
    """

    defence: str = "none"
    strength: float = 0.0
    change: dict[str, Any] = {}
    threat: str = ""
    attacks: tuple[str, ...] = ()


class SweepConfig(Spec):
    """A whole sweep. ``holdout``: the share of each client's records kept for the utility.
    ``ladder``: ask also what adversaries learn who know less, and tell them apart as ``rung``."""

    base: dict[str, Any]
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    setting: tuple[Setting, ...] = (Setting(),)
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    threat: str = "eavesdropper"
    attacks: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    holdout: float = Field(default=0.2, gt=0, lt=1)
    ladder: bool = False


@dataclass(frozen=True)
class Cell:
    """One federation to record and audit. ``config``: it; ``varied``: which of the grid's values
    it has, for tables; ``asked``: who listens, and what its result depends on beside the config."""

    config: dict[str, Any]
    varied: dict[str, Any]
    defence: str
    strength: float
    asked: dict[str, Any]

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def key(self) -> str:
        """The cell's address: the same for the same content, whatever the sweep around it."""
        content = {"config": self.config, **self.asked}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def name(self) -> str:
        parts = [f"{key}={value}" for key, value in self.varied.items()]
        return ", ".join([f"{self.defence} {self.strength:g}", *parts, f"seed {self.seed}"])


def read_sweep(path: str | Path) -> SweepConfig:
    """A sweep's file; or the file of a federation, or a recording that says how it was made, which
    are swept over `usual_settings` with three seeds."""
    folder, content = Path(path), dict[str, Any]()
    if folder.is_dir():
        base = dict(Recording.open(folder).about.get("config") or {})
        described = folder / BESIDE
        if not base and described.is_file():  # recorded elsewhere, and described since
            found = read_config(described, recorded=True)
            base = found.model_dump(mode="json", exclude={"clients"}, exclude_defaults=True)
            rounds = min(len(Recording.open(folder).rounds), MOST_ROUNDS)
            base["training"] = base.get("training", {}) | {"rounds": rounds}
        if not base:
            raise FixConfig(
                f"{folder}: does not say how its clients train; `{command('init', folder)}` "
                "writes what is missing, or give the TOML file of the federation"
            )
    else:
        content = read_toml(folder)
        content.pop("policy", None)
        base = located(content.get("base", content), folder)
    if "base" not in content:
        trains = parse_config(base, str(path)).trains()
        content = {"setting": usual_settings(trains), "seeds": [0, 1, 2]}
    return parse_sweep(content | {"base": base}, str(path))


def usual_settings(trains: bool) -> list[dict[str, Any]]:
    """What is tried where nobody says what: no defence; noise with a guarantee; and of networks,
    more local work, which promises nothing."""
    private = "dp_sgd" if trains else "dp_sums"
    found: list[dict[str, Any]] = [{"defence": "none"}]
    for noise in NOISE:
        change = {"defence": [{"name": private, "clip": 1.0, "noise": noise}]}
        found.append({"defence": private, "strength": noise, "change": change})
    if trains:
        blurred = {"training.epochs": 5, "training.batch_size": 16}
        found.append({"defence": "5 epochs in batches of 16", "change": blurred})
    return found


def parse_sweep(content: dict[str, Any], name: str = "sweep") -> SweepConfig:
    """Check a sweep that was read already; every cell's own config is checked by `cells`."""
    return checked(SweepConfig, content, name)


def cells(sweep: SweepConfig) -> list[Cell]:
    """Every combination of grid, setting and seed, checked; equal cells appear once."""
    found: dict[str, Cell] = {}
    wanted = prod(map(len, (sweep.setting, *sweep.grid.values(), sweep.seeds)))
    check("cells", wanted, "the sweep", FixConfig)
    asked = sweep.model_dump(exclude={"base", "grid", "setting", "seeds"})
    for setting, values, seed in product(sweep.setting, product(*sweep.grid.values()), sweep.seeds):
        varied = dict(zip(sweep.grid, values, strict=True))
        config = copy.deepcopy(sweep.base)
        for key, value in (varied | setting.change | {"seed": seed}).items():
            _put(config, key, value)
        federation = parse_config(config, f"{setting.defence} {setting.strength:g}")
        own = {name: value for name in ("threat", "attacks") if (value := getattr(setting, name))}
        name = (setting.defence, setting.strength)
        cell = Cell(federation.model_dump(mode="json"), varied, *name, asked | own)
        found.setdefault(cell.key, cell)
    return list(found.values())


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key; tables on the way are made where missing."""
    *path, last = key.split(".")
    for part in path:
        config = config.setdefault(part, {})
        if not isinstance(config, dict):
            raise FixConfig(f"{key!r}: {part!r} is a value, not a table; correct the key")
    config[last] = value

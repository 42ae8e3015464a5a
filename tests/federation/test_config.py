"""A config with a mistake is refused in words that say which key and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from overheard.errors import FixConfig
from overheard.federation.federation import parse_config, read_config

Settings = Callable[..., dict[str, Any]]
TOML = """
seed = 4
[data]
source = "file"
path = "p.csv"
client = "c"
target = "y"
[model]
name = "mlp"
hidden = [8, 4]
[training]
rounds = 2
learning_rate = 0.1
"""


def test_a_config_is_read_with_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(TOML)
    config = read_config(tmp_path / "c.toml")
    assert config.seed == 4
    assert config.model.hidden == (8, 4)
    assert config.training.participation == 1.0
    assert config.training.wire == "float32"
    assert config.audit.attributes is None


def test_the_demos_config_is_valid() -> None:
    with resources.as_file(resources.files("overheard") / "demo-linear.toml") as path:
        assert read_config(path).data.source == "randhie"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("seed", "sead", r"unknown key 'sead'; did you mean 'seed'\?"),
        ("[training]", "[trainning]", r"unknown key 'trainning'; did you mean 'training'\?"),
        ("rounds", "round", r"unknown key training\.'round'; did you mean 'rounds'\?"),
        ("learning_rate", "learning-rate", r"training\.'learning-rate'; did you mean 'learning_ra"),
        ("hidden", "hiden", r"unknown key model\.'hiden'; did you mean 'hidden'\?"),
        ("path", "zzz", r"unknown key data\.'zzz'; known: source, path, client"),
        ("rounds = 2", "", r"training\.rounds: Field required"),
        (
            "rounds = 2",
            "rounds = 0",
            r"training\.rounds: .*greater than or equal to 1 \(given: 0\)",
        ),
        ("rounds = 2", "rounds = 2.5", r"training\.rounds: .*\(given: 2\.5\)"),
        ("0.1", "-0.1", r"training\.learning_rate: .*greater than 0 \(given: -0\.1\)"),
        ("0.1", "nan", r"training\.learning_rate: .*\(given: nan\)"),
        ("0.1", "inf", r"training\.learning_rate: .*finite.*\(given: inf\)"),
        ('"mlp"', '"tree"', r"model\.name: .*'lenet' or 'module' \(given: 'tree'\)"),
        ("[8, 4]", "[8, 0]", r"model\.hidden\.1: .*greater than 0 \(given: 0\)"),
        ("[8, 4]", "8", r"model\.hidden: .*\(given: 8\)"),
        ("seed = 4", "seed = 'four'", r"seed: .*\(given: 'four'\)"),
        ("seed = 4", "seed = 4\ndata = 3", r"is not TOML"),
        ("[model]", "[model", r"is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in TOML
    (tmp_path / "c.toml").write_text(TOML.replace(old, new, 1))
    with pytest.raises(FixConfig, match=rf"c\.toml: .*{complaint}"):
        read_config(tmp_path / "c.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FixConfig, match=r"none\.toml: cannot be read \(No such file"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(FixConfig, match=r"is not a plain file"):
        read_config(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FixConfig, match="is not TOML"):
        read_config(tmp_path / "binary.toml")


def test_a_section_that_is_no_table_is_named(settings_for: Settings) -> None:
    with pytest.raises(FixConfig, match="config: data: "):
        parse_config({**settings_for(Path("x")), "data": 3})

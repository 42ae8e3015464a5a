"""A config with a mistake is refused in words that say which key and what is allowed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from overheard.cli.catalogue import every_key, explain
from overheard.errors import FixConfig
from overheard.federation.federation import OF_RECORDINGS, OF_SIMULATIONS, Federation, read_config
from overheard.federation.reading import tables_at

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
    assert config.training.precision == "float32"
    assert config.audit.attributes is None
    assert config.data.path == str(tmp_path / "p.csv")  # it starts at the file that names it


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("seed", "sead", r"unknown key 'sead'; did you mean 'seed'\?"),
        ("[training]", "[trainning]", r"unknown key 'trainning'; did you mean 'training'\?"),
        ("rounds", "round", r"unknown key training\.'round'; did you mean 'rounds'\?"),
        ("learning_rate", "learning-rate", r"training\.'learning-rate'; did you mean 'learning_ra"),
        ("hidden", "hiden", r"unknown key model\.'hiden'; did you mean 'hidden'\?"),
        ("path", "zzz", r"unknown key data\.'zzz'; known: source, path, client"),
        ("rounds = 2", "", r"training\.rounds: how many rounds are simulated, at least 1"),
        ("rounds = 2", "rounds = -2", r"training\.rounds: .*or equal to 0 \(given: -2\)"),
        ("rounds = 2", "rounds = 2.5", r"training\.rounds: .*\(given: 2\.5\)"),
        ("0.1", "-0.1", r"training\.learning_rate: .*greater than 0 \(given: -0\.1\)"),
        ("0.1", "nan", r"training\.learning_rate: .*\(given: nan\)"),
        ("0.1", "inf", r"training\.learning_rate: .*finite.*\(given: inf\)"),
        ('"mlp"', '"tree"', r"unknown model 'tree'; known: linear, .*newton, statistics"),
        ('"mlp"', '"newtn"', r"unknown model 'newtn'; did you mean 'newton'\?"),
        ('"mlp"', '"newton"', r"unknown key model\.'hidden'; known: "),
        ("0.1", "0.1\noptimiser = { name = 'adam', momentum = 1 }", r"adam\.'momentum'; known:.*b"),
        ("0.1", "0.1\nshuffle = { sead = 1 }", r"training\.shuffle\.'sead'; did you mean 'seed'"),
        ("0.1", "0.1\n[audit]\nnon_members = 'o.csv'", r"audit\.non_members describes a recording"),
        ("[8, 4]", "[8, 0]", r"model\.hidden\.1: .*greater than 0 \(given: 0\)"),
        ("[8, 4]", "8", r"model\.hidden: .*\(given: 8\)"),
        ("seed = 4", "seed = 'four'", r"seed: .*\(given: 'four'\)"),
        ("seed = 4", "seed = 4\ndata = 3", r"is not TOML"),
        ("seed = 4", "seed = 4\naudit = 3", r"audit: .*\(given: 3\)"),
        ("[model]", "[model", r"is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in TOML
    (tmp_path / "c.toml").write_text(TOML.replace(old, new, 1))
    with pytest.raises(FixConfig, match=rf"c\.toml: .*{complaint}"):
        read_config(tmp_path / "c.toml")


RECORDED = TOML.replace("seed = 4", "").replace("rounds = 2", "")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("learning_rate", "lerning_rate", r"unknown key training\.'lerning_rate'; did you mean"),
        ("path", "pth", r"unknown key data\.'pth'; did you mean 'path'\?"),
        ("[model]", "[modl]", r"unknown key 'modl'; did you mean 'model'\?"),
        ("0.1", "0.1\nrounds = 3", r"training\.rounds is about simulations"),
        ('"mlp"\nhidden = [8, 4]', '"newton"', r"training\.learning_rate is about networks"),
        ("0.1", "0.1\n[[encoding]]\ncolum = 'x'", r"scaled\.'colum'; did you mean 'column'"),
        ("0.1", "0.1\n[property]\nkind = 'ascent'", r"property\.kind is about simulations"),
    ],
)
def test_a_recorded_federation_is_described_in_the_same_words(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    file = tmp_path / "audit.toml"
    file.write_text(RECORDED)
    described = read_config(file, recorded=True)
    assert described.training.rounds == 0
    assert described.data.path == str(tmp_path / "p.csv")  # it starts at the file that names it
    file.write_text(RECORDED.replace(old, new, 1))
    with pytest.raises(FixConfig, match=rf"audit\.toml: .*{complaint}"):
        read_config(file, recorded=True)


@pytest.mark.parametrize("key", [*OF_SIMULATIONS, *OF_RECORDINGS])
def test_keys_of_one_kind_are_keys_of_the_schema(key: str) -> None:
    *above, last = key.split(".")
    (table, *_) = tables_at(Federation, above)
    assert last in table.model_fields


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FixConfig, match=r"none\.toml: cannot be read \(No such file"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(FixConfig, match=r"is not a plain file"):
        read_config(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FixConfig, match="is not TOML"):
        read_config(tmp_path / "binary.toml")


def test_every_key_says_what_it_means_and_has_an_example_that_is_valid() -> None:
    for key in every_key():
        name = key.path.rpartition(".")[2]
        field = key.table.model_fields[name]
        assert key.meaning or name in ("name", "rule"), key.path
        assert key.example or key.values in ("table", '"regression", "classification"'), key.path
        if key.example:
            value = tomllib.loads(key.example)[name]
            TypeAdapter(Annotated[field.annotation, field]).validate_python(value)


@pytest.mark.parametrize(
    ("key", "said"),
    [("epochs", "training.epochs: whole number, at least 1"), ("defence.noise", "(dp_sgd)")],
)
def test_a_key_is_explained(key: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain(key)
    assert said in " ".join(capsys.readouterr().out.split())
    with pytest.raises(FixConfig, match=rf"no key '{key}z'; did you mean"):
        explain(f"{key}z")

from __future__ import annotations

from pathlib import Path

import pytest

from overheard.data import catalogue
from overheard.data.source import Source, sources
from overheard.errors import FixConfig, FixData
from overheard.federation.config import parse_config
from overheard.federation.plan import plan

SOURCE = Source("tables", "some", "none", "here", files=(("a/one", "a/two"), ("b/other",)))


def put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_the_folder_comes_before_the_variable_and_the_cache(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(*(place / "b/other" for place in (nowhere, tmp_path / "named", tmp_path / "folder")))
    assert SOURCE.find() == (nowhere / "b/other",)
    monkeypatch.setenv("OVERHEARD_DATA", str(tmp_path / "named"))
    assert SOURCE.find() == (tmp_path / "named/b/other",)
    assert SOURCE.find(tmp_path / "folder") == (tmp_path / "folder/b/other",)
    assert SOURCE.find(str(tmp_path / "empty")) == (tmp_path / "named/b/other",)


def test_half_a_set_of_files_is_none(nowhere: Path) -> None:
    put(nowhere / "a/one")
    assert SOURCE.find() is None
    put(nowhere / "b/other")
    assert SOURCE.find() == (nowhere / "b/other",)
    put(nowhere / "a/two")
    assert SOURCE.find() == (nowhere / "a/one", nowhere / "a/two")


def test_the_folder_may_be_the_subfolder_itself(nowhere: Path, tmp_path: Path) -> None:
    put(tmp_path / "a/one", tmp_path / "a/two")
    assert SOURCE.find(tmp_path / "a") == (tmp_path / "a/one", tmp_path / "a/two")


@pytest.mark.parametrize("source", ["adult", "flights", "wages"])
def test_a_missing_file_says_in_one_line_what_to_do(nowhere: Path, source: str) -> None:
    with pytest.raises(FixData, match="OVERHEARD_DATA") as error:
        catalogue.load(source)
    assert "\n" not in str(error.value)
    assert str(nowhere) in str(error.value)


def test_unknown_sources_and_options_are_named(nowhere: Path) -> None:
    with pytest.raises(FixConfig, match="did you mean 'adult'"):
        catalogue.load("adlt")
    with pytest.raises(FixConfig, match="unexpected keyword argument 'colour'"):
        catalogue.load("leaf_synthetic", colour="red")
    for source in ("digits", "digits_images"):
        with pytest.raises(FixConfig, match=rf"'{source}': got an unexpected keyword .* 'colour'"):
            catalogue.load(source, colour="red")


@pytest.mark.parametrize("source", sources())
def test_every_source_says_what_it_is(nowhere: Path, source: str) -> None:
    known = catalogue.about(source)
    assert known.what
    assert known.licence
    assert known.origin
    assert bool(known.found) != bool(known.remedy)


def test_options_in_the_config_reach_the_source(nowhere: Path) -> None:
    options = {"seed": 5, "sizes": [30, 40], "features": 3}
    config = parse_config(
        {
            "data": {"source": "leaf_synthetic", "options": options},
            "model": {"name": "logistic"},
            "training": {"rounds": 1, "learning_rate": 0.1},
        }
    )
    ready = plan(config)
    assert [len(r) for r in ready.clients.values()] == [30, 40]
    assert ready.recipe.encoding.width == 3
    direct = catalogue.load("leaf_synthetic", **options)
    assert (ready.dataset.records["x0"] == direct.records["x0"]).all()

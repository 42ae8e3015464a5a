from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.data import adult
from overheard.errors import FixData


def row(
    age: int, education: str, sex: str = "Male", work: str = "Private", income: str = ""
) -> str:
    number = {"Bachelors": 13, "Masters": 14, "Prof-school": 15, "Doctorate": 16}.get(education, 9)
    return (
        f"{age}, {work}, 1000, {education}, {number}, Divorced, Sales, Unmarried, White, {sex}, "
        f"0, 0, 40, United-States, {income or '<=50K'}"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Made-up people in UCI's format."""
    train = [
        row(37, "Doctorate", "Female"),
        row(38, "Doctorate"),
        row(52, "Doctorate", income=">50K"),
        row(53, "Doctorate", work="?"),
        row(30, "HS-grad"),
        *[row(40, "Bachelors") for _ in range(10)],
        *[row(50, "Prof-school") for _ in range(5)],
    ]
    test = [row(70, "Doctorate", income=">50K") + ".", row(30, "Masters") + "."]
    (tmp_path / "adult.data").write_text("\n".join([*train, "", ""]))
    (tmp_path / "adult.test").write_text("\n".join(["|1x3 Cross validator", *test, ""]))
    return tmp_path


def test_doctorates_go_by_age_and_the_rest_evenly(folder: Path) -> None:
    sizes = {c: len(r) for c, r in adult.load(folder).by_client().items()}
    assert list(sizes.values())[:3] == [1, 2, 2]
    rest = list(sizes.values())[3:]
    assert len(rest) == 7
    assert sum(rest) == 16
    assert max(rest) - min(rest) <= 1


def test_columns_and_missing_values(folder: Path) -> None:
    data = adult.load(folder)
    assert len(data.records) == 21
    assert not {"fnlwgt", "education", "native-country"} & set(data.records.columns)
    assert "unknown" in data.records["workclass"]
    assert set(data.records["income"]) == {"<=50K", ">50K"}  # without the test file's full stops
    assert data.records["sex"][0] == 0.0
    assert set(data.records["sex"]) == {0.0, 1.0}


def test_a_wrong_file_is_named(folder: Path) -> None:
    (folder / "adult.test").write_text("<html>not found</html>\n")
    with pytest.raises(FixData, match=r"adult\.test: is not UCI's Adult file"):
        adult.load(folder)


def test_the_real_table(need: Callable[[str], None]) -> None:
    need("adult")
    data = adult.load()
    sizes = [len(r) for r in data.by_client().values()]
    assert sizes[:3] == [127, 281, 186]
    assert set(sizes[3:]) == {1645, 1646}
    assert len(data.records) == 12_110
    guess = np.mean([max(s := r["sex"].mean(), 1 - s) for r in data.by_client().values()])
    assert guess == pytest.approx(0.733, abs=0.002)

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.data import wages
from overheard.errors import FixData

CPS = """earnings,gender,age,region,education
20.0,male,31,South,12
30.0,female,50,West,16
99.0,female,50,West,14
40.0,male,40,Midwest,18
50.0,male,44,Northeast,20
"""
CENSUS = f"""state,puma,educ,lweekinc,exper,expersq
South Carolina,100,12,{np.log(400)},10,100
New York,1,13,{np.log(800)},20,400
Ohio,1,14,{np.log(1200)},30,900
California,1,16,{np.log(1600)},3,9
Texas,1,16,{np.log(90000)},3,9
Texas,1,16,{np.log(1)},3,9
Texas,1,10,{np.log(500)},3,9
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Made-up people in the two tables' formats."""
    (tmp_path / "CPSSW8.csv.gz").write_bytes(gzip.compress(CPS.encode()))
    (tmp_path / "census2000.csv.bz2").write_bytes(bz2.compress(CENSUS.encode()))
    return tmp_path


def test_the_papers_four_groups(folder: Path) -> None:
    data = wages.load(folder)
    groups = data.records["education_group"].tolist()
    assert groups == ["high school", "bachelor", "master", "PhD"]
    assert data.records["earnings"].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert data.records["female"].tolist() == [0, 1, 0, 0]
    assert data.sensitive == ("female",)
    assert sorted(data.by_client()) == ["Midwest", "Northeast", "South", "West"]


def test_the_census_instead(folder: Path) -> None:
    (folder / "CPSSW8.csv.gz").unlink()
    data = wages.load(folder)
    groups = data.records["education_group"].tolist()
    assert groups == ["high school", "some college", "associate", "bachelor"]
    assert data.records["earnings"] == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert data.records["region"].tolist() == ["South", "Northeast", "Midwest", "West"]
    assert data.sensitive == ()
    assert "experience" in data.inputs()


def test_a_wrong_file_is_named(folder: Path) -> None:
    (folder / "CPSSW8.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(FixData, match=r"CPSSW8\.csv\.gz: is not"):
        wages.load(folder)


def test_the_real_table(need: Callable[[str], None]) -> None:
    need("wages")
    data = wages.load()
    assert len(set(data.records["education_group"])) == 4
    assert len(data.by_client()) == 4
    if "female" in data.inputs():
        names, counts = np.unique(data.records["education_group"], return_counts=True)
        found = dict(zip(names.tolist(), counts.tolist(), strict=True))
        assert found == {"high school": 19_989, "bachelor": 12_777, "master": 4_432, "PhD": 755}

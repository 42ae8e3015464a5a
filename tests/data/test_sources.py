"""The papers' data sources: what each reads of its published files, refuses and keeps apart.

The files here are made up, a few records each in the published form; those that are on this machine
are read as well.
"""

from __future__ import annotations

import gzip
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.data import (
    adult,
    cifar10,
    fashion,
    flights,
    hs3d,
    leaf_synthetic,
    location30,
    mnist,
    purchase100,
    salary,
    wages,
)
from overheard.data.source import load
from overheard.errors import FixConfig, FixData

Image = pytest.importorskip("PIL.Image", reason="pip install 'overheard[experiments]'")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 28, 28))
PHOTOGRAPHS = RNG.integers(0, 256, (4, 1024, 3)).astype(np.uint8)
LOCATIONS = "".join(
    f'"{1 + i % location30.CLASSES}",{",".join(row)}\n'
    for i, row in enumerate(RNG.integers(0, 2, (90, location30.COLUMNS)).astype(str))
)
SITES = [
    "Date/Time : 12/12/2001 20.04.53\n\n"
    + "".join(f"AB ( {i},1,2): {''.join(RNG.choice(list('ACGT'), 140))}\n" for i in range(n))
    + "AB ( 9,1,2): ACGTN\n"
    for n in (3, 40)
]
SALARIES = """\ufeffAge,Gender,Education Level,Job Title,Years of Experience,Salary
32,Male,Bachelor's,Engineer,5,90000
40,Female,Bachelor's Degree,Engineer,9,120000
28,Female,phD,Analyst,3,65000
45,Male,,Manager,15,150000
50,Male,High School,Clerk,20,350
51,Other,High School,Clerk,20,35000
33,Male,Master's Degree,Engineer,7,
36,,Master's,Engineer,7,100000
"""
FARES = (
    ",airline,flight,source_city,departure_time,stops,arrival_time,destination_city,class,duration,"
    "days_left,price\n"
)
CPS = """earnings,gender,age,region,education
20.0,male,31,South,12
30.0,female,50,West,16
99.0,female,50,West,14
40.0,male,40,Midwest,18
50.0,male,44,Northeast,20
"""


def person(age: int, education: str, sex: str = "Male", work: str = "Private") -> str:
    number = {"Bachelors": 13, "Masters": 14, "Prof-school": 15, "Doctorate": 16}.get(education, 9)
    return (
        f"{age}, {work}, 1000, {education}, {number}, Divorced, Sales, Unmarried, White, {sex}, "
        f"0, 0, 40, United-States, {'>50K' if age > 51 else '<=50K'}"
    )


def idx(values: np.ndarray) -> bytes:
    # the time would stand in the bytes, and so in the names of tests: workers, which collect them
    # one second apart, would have other tests
    head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return gzip.compress(head + values.astype(np.uint8).tobytes(), mtime=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Made-up files of every source."""
    train = [person(37, "Doctorate", "Female"), person(38, "Doctorate"), person(52, "Doctorate")]
    train += [person(53, "Doctorate", work="?"), person(30, "HS-grad")]
    train += [person(40, "Bachelors")] * 10 + [person(50, "Prof-school")] * 5
    test = [person(70, "Doctorate") + ".", person(30, "Masters") + "."]
    (tmp_path / "adult.data").write_text("\n".join([*train, "", ""]))
    (tmp_path / "adult.test").write_text("\n".join(["|1x3 Cross validator", *test, ""]))
    with zipfile.ZipFile(tmp_path / "Clean_Dataset.csv.zip", "w") as archive:
        stops, classes = ["zero", "one", "two_or_more"], ["Economy", "Business", "Economy"]
        rows = "".join(
            f"{i},{'AB'[i % 2]},X-{i},Delhi,Evening,{stops[i % 3]},Night,Mumbai,"
            f"{classes[i % 4 % 3]},{2 + i}.5,{1 + i},{1000 + i}\n"
            for i in range(12)
        )
        archive.writestr("Clean_Dataset.csv", FARES + rows)
    (tmp_path / "CPSSW8.csv.gz").write_bytes(gzip.compress(CPS.encode()))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "bangkok").write_text(LOCATIONS)
    with tarfile.open(tmp_path / "dataset_location.tgz", "w:gz") as packed:
        packed.add(tmp_path / "plain" / "bangkok", "bangkok")
    for name, member, text in zip(
        ("IE_true", "IE_false_1"), ("IE_true.seq", "IE_false.seq.001"), SITES, strict=True
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr(member, text)
    (tmp_path / "Salary_Data.csv").write_text(SALARIES, "utf-8")
    for name in ("mnist", "fashion_mnist"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train-images-idx3-ubyte.gz").write_bytes(idx(PIXELS))
        (tmp_path / name / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(12) % 10))
    Image.fromarray(PHOTOGRAPHS).save(tmp_path / "data_batch_1.png")
    (tmp_path / "train_lables.json").write_text(json.dumps([3, 1, 4, 1, 5]))
    return tmp_path


FEW: dict[str, Any] = {"clients": 3, "records": 2, "auxiliary": 5}
TWO: dict[str, Any] = {"clients": 2, "records": 1, "auxiliary": 2}


@pytest.mark.parametrize(
    ("source", "file", "content", "words"),
    [
        (adult, "adult.test", b"<html>not found</html>\n", r"adult\.test: is not UCI's Adult"),
        (flights, "Clean_Dataset.csv.zip", b"PK no", r"no Clean_Dataset\.csv can be read"),
        (wages, "CPSSW8.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0), r"CPSSW8\.csv\.gz: is not"),
        (mnist, "mnist/train-images-idx3-ubyte.gz", b"not gzip", r"ubyte\.gz: "),
        (mnist, "mnist/train-images-idx3-ubyte.gz", idx(np.zeros((12, 28, 27))), r"ubyte\.gz: "),
        (mnist, "mnist/train-images-idx3-ubyte.gz", idx(PIXELS)[:-9], r"ubyte\.gz: "),
        (cifar10, "train_lables.json", b"[1, 2]", "2 labels for 4 images; fetch it again"),
        (cifar10, "data_batch_1.png", b"nothing", "is not a PNG file"),
    ],
)
def test_a_wrong_file_is_named(
    source: Any, file: str, content: bytes, words: str, folder: Path
) -> None:
    (folder / file).write_bytes(content)
    with pytest.raises(FixData, match=words):
        source.load(folder)


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (flights, {"drop": ["class"]}, "cannot drop 'class'"),
        (flights, {"limit": -1}, "negative"),
        (hs3d, {"victim": 24, "public": 10}, "cannot be dealt of 33"),
        (purchase100, {"classes": 3}, "neither 2 nor 100"),
        (mnist, {**FEW, "clients": 4}, "cannot be dealt of 12"),
    ],
)
def test_wrong_options_are_named(
    source: Any, options: dict[str, Any], words: str, folder: Path
) -> None:
    with pytest.raises(FixConfig, match=words):
        source.load(folder, **options)


def test_doctorates_go_by_age_and_the_rest_evenly(folder: Path) -> None:
    data = adult.load(folder)
    first, second, third, *rest = [len(r) for r in data.by_client().values()]
    assert [first, second, third, len(rest), sum(rest)] == [1, 2, 2, 7, 16]
    assert max(rest) - min(rest) <= 1
    assert not {"fnlwgt", "education", "native-country"} & set(data.records.columns)
    assert "unknown" in data.records["workclass"]
    assert set(data.records["income"]) == {"<=50K", ">50K"}  # without the test file's full stops
    assert data.records["sex"][0] == 0.0
    assert set(data.records["sex"]) == {0.0, 1.0}


def test_the_secrets_of_fares_are_zero_or_one_and_nothing_else_tells_the_stops(
    folder: Path,
) -> None:
    data = flights.load(folder)
    fares = data.by_client()
    assert [len(r) for r in fares.values()] == [6, 6]
    assert fares["B"]["class"].tolist() == [1, 0, 1, 0, 1, 0]
    assert fares["A"]["direct"].tolist() == [1, 0, 0, 1, 0, 0]
    assert not {"stops", "flight", ""} & set(data.records.columns)
    assert "duration" not in flights.load(folder, drop=["duration"]).records.columns
    draws = [flights.load(folder, seed=s, limit=3).records["price"].tolist() for s in (0, 0, 1)]
    assert len(draws[0]) == 6
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][:3] == sorted(draws[0][:3])
    assert len(flights.load(folder, limit=0).records) == 12


def test_wages_of_the_papers_four_groups(folder: Path) -> None:
    data = wages.load(folder)
    groups = data.records["education_group"].tolist()
    assert groups == ["high school", "bachelor", "master", "PhD"]
    assert data.records["earnings"].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert data.records["female"].tolist() == [0, 1, 0, 0]
    assert data.sensitive == ("female",)
    assert sorted(data.by_client()) == ["Midwest", "Northeast", "South", "West"]


def test_location_reads_the_archive_and_the_bare_table_alike(folder: Path) -> None:
    packed, bare = (location30.load(f, victim=20, public=30) for f in (folder, folder / "plain"))
    assert packed.records["c445"].tolist() == bare.records["c445"].tolist()
    assert set(packed.records["class"].tolist()) <= set(range(1, 31))
    assert packed.sensitive == ("c001", "c069")


def test_genes_are_twenty_numbers_and_ten_false_sites_a_true_one(folder: Path) -> None:
    data = hs3d.load(folder, victim=33, public=0)
    people, numbers = data.records, data.ordinal
    assert numbers == {"c007", "c017"}  # of four values one number, as in equation (2)
    assert np.unique(people["class"], return_counts=True)[1].tolist() == [3, 30]
    first = SITES[0].splitlines()[2].rpartition(" ")[2]
    code = [dict(zip("AGCT", range(1, 5), strict=True))[letter] for letter in first[:20]]
    rows = np.column_stack([people[f"c{j:03d}"] for j in range(20)])
    assert (rows == code).all(axis=1).sum() == 1


def test_salaries_without_gaps_typing_errors_and_spellings(folder: Path) -> None:
    people = salary.load(folder).records
    assert people["salary"].tolist() == [9.0, 12.0, 6.5, 3.5]
    assert people["education_group"].tolist() == ["bachelor", "bachelor", "PhD", "high school"]
    assert set(people.columns) == {
        "job", "education_group", "gender", "age", "experience", "salary"
    }  # fmt: skip


def test_purchases_without_the_file_are_a_labelled_stand_in(nowhere: Path) -> None:
    made = purchase100.load(victim=500)
    assert "generated" in made.name
    assert "generated" in made.origin
    assert "GENERATED" in purchase100.SOURCE.note
    values, labels = purchase100.make()
    assert values.shape[1] == 600
    assert set(labels.tolist()) == set(range(1, 101))
    for column, share in purchase100.SHARES.items():
        assert values[:, column].mean() == pytest.approx(share, abs=0.02)
    assert set(purchase100.load(victim=200, classes=2).records["class"].tolist()) == {1.0, 2.0}
    with pytest.raises(FixData, match="dataset_purchase"):
        purchase100.load(generated=False)


@pytest.mark.parametrize("source", [mnist, fashion])
def test_clients_are_equal_and_nobody_holds_the_auxiliary_images(source: Any, folder: Path) -> None:
    made, again, other = (source.load(folder, seed=seed, **FEW) for seed in (3, 3, 4))
    assert [len(r) for r in made.by_client().values()] == [2, 2, 2]
    assert made.outside["image"].shape == (5, 784)
    held = {r.tobytes() for r in made.records["image"]}
    assert len(held) == 6
    assert not held & {r.tobytes() for r in made.outside["image"]}
    assert made.images == {"image": (1, 28, 28)}
    assert np.array_equal(again.records["image"], made.records["image"])
    assert not np.array_equal(other.records["image"], made.records["image"])


def test_the_fetched_table_is_the_same_data(folder: Path) -> None:
    table = folder / "table"
    table.mkdir()
    lines = [",".join(["label", *(f"p{k}" for k in range(784))])]
    lines += [",".join(map(str, [k % 10, *row])) for k, row in enumerate(PIXELS.reshape(12, -1))]
    (table / "mnist_train.csv").write_text("\n".join(lines))
    one, other = mnist.load(folder, **FEW), mnist.load(table, **FEW)
    assert np.array_equal(one.records["image"], other.records["image"])
    assert np.array_equal(one.records["class"], other.records["class"])
    (table / "mnist_train.csv").write_text("label,a\n1,2")
    with pytest.raises(FixData, match=r"mnist_train\.csv.*fetch it again"):
        mnist.load(table)


def test_photographs_come_channel_by_channel(folder: Path) -> None:
    assert cifar10.load(folder, **TWO).images == {"image": (3, 32, 32)}
    read = cifar10.read_batch(folder / "data_batch_1.png")
    assert np.array_equal(read.reshape(4, 3, 1024), PHOTOGRAPHS.transpose(0, 2, 1))


# --- what is generated -------------------------------------------------------------------------


def inputs(client: Any) -> np.ndarray:
    return np.column_stack([client[f"x{i}"] for i in range(10)])


def test_the_inputs_have_leafs_covariance() -> None:
    """diag(i^-1.2) within a client; clients' centres differ by a variance of 2 per feature."""
    data, again, other = (leaf_synthetic.load(seed=s) for s in (3, 3, 4))
    assert [len(r) for r in data.by_client().values()] == [280, 184, 1536, 256, 208]
    assert set(data.records["label"]) == {0.0, 1.0}
    assert (inputs(data.records) == inputs(again.records)).all()
    assert not np.isclose(data.records["x0"], other.records["x0"]).any()
    large = leaf_synthetic.load(sizes=[200_000])
    covariance = np.cov(inputs(large.records).T)
    assert covariance == pytest.approx(np.diag(np.arange(1, 11) ** -1.2), abs=0.012)
    many = leaf_synthetic.load(sizes=[1] * 4000)
    variances = inputs(many.records).var(axis=0) - np.arange(1, 11) ** -1.2
    assert variances == pytest.approx(np.full(10, 2.0), abs=0.25)
    for wrong in ({"sizes": [3, 0]}, {"sizes": []}, {"labels": "guess"}):
        with pytest.raises(FixConfig, match="leaf_synthetic"):
            leaf_synthetic.load(**wrong)  # type: ignore[arg-type]


def test_the_code_before_2019_evens_out_the_classes() -> None:
    """Its softmax runs over records, not classes: fewer clients have one class only."""

    def rarer(labels: Any) -> float:
        made = (leaf_synthetic.load(seed=seed, labels=labels) for seed in range(10))
        shares = np.array([c["label"].mean() for data in made for c in data.by_client().values()])
        return float(np.minimum(shares, 1 - shares).mean())

    assert rarer("before 2019") > 1.3 * rarer("published")


# --- the published files, where they are on this machine -----------------------------------------


def test_the_real_adults(need: Callable[[str], None]) -> None:
    need("adult")
    data = adult.load()
    sizes = [len(r) for r in data.by_client().values()]
    assert sizes[:3] == [127, 281, 186]
    assert set(sizes[3:]) == {1645, 1646}
    assert len(data.records) == 12_110
    guess = np.mean([max(s := r["sex"].mean(), 1 - s) for r in data.by_client().values()])
    assert guess == pytest.approx(0.733, abs=0.002)


def test_the_published_locations_have_the_papers_variances(need: Callable[[str], None]) -> None:
    need("location30")
    everybody = location30.load(victim=4010).population().records
    assert len(everybody) == 5010
    for column, printed in (("c001", 2.6e6), ("c069", 2070.0)):
        ones = everybody[column].sum()
        assert np.var([ones, 5010 - ones]) == pytest.approx(printed, rel=0.03)


@pytest.mark.parametrize(
    ("source", "rows"), [("mnist", 6000), ("fashion", 6000), ("cifar10", 5000)]
)
def test_the_real_images(need: Callable[[str], None], source: str, rows: int) -> None:
    need(source)
    made = load(source)
    assert len(made.by_client()) == 50
    assert made.outside is not None
    assert len(made.outside) == rows
    # every class is there, and about as common as every other
    assert np.bincount(made.outside["class"].astype(int), minlength=10).min() > 0.08 * rows

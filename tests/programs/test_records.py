"""One function turns records into inputs, for clients and for adversaries alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from overheard.errors import FixData, FixRecording
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import (
    Encoding,
    OneHot,
    Records,
    Scaled,
    as_column,
    encode,
    encode_each,
)

ENCODING = Encoding(
    blocks=(
        Scaled(column="age", shift=40, scale=10),
        OneHot(column="job", values=("cook", "nurse", "smith")),
        Scaled(column="sick"),
    )
)
PEOPLE = Records(
    {
        "sick": np.array([0.0, 1.0]),
        "age": np.array([30.0, 65.0]),
        "job": np.array(["smith", "cook"]),
        "unused": np.array(["a", "b"]),
    }
)


def test_columns_stand_where_the_encoding_puts_them() -> None:
    assert encode(ENCODING, PEOPLE).tolist() == [[-1, 0, 0, 1, 0], [2.5, 1, 0, 0, 1]]
    assert ENCODING.width == 5
    assert ENCODING.columns() == ("age", "job", "sick")
    assert ENCODING.inputs_of(["job"]) == [1, 2, 3]
    assert ENCODING.inputs_of(["sick", "unused", "age"]) == [0, 4]


def test_a_fixed_column_need_not_be_in_the_records() -> None:
    hidden = PEOPLE.without("sick", "job")
    fixed = {"sick": 1.0, "job": "nurse"}
    assert encode(ENCODING, hidden, fixed).tolist() == [[-1, 0, 1, 0, 1], [2.5, 0, 1, 0, 1]]
    assert np.array_equal(encode(ENCODING, hidden, fixed), encode(ENCODING, PEOPLE, fixed))
    with pytest.raises(FixData, match="no column 'sick'; the columns are age, unused"):
        encode(ENCODING, hidden, {"job": "nurse"})


@given(
    st.lists(
        st.tuples(st.floats(-99, 99), st.sampled_from(["cook", "nurse", "smith"]), st.booleans()),
        min_size=1,
    )
)
def test_what_if_agrees_with_what_is(rows: list[tuple[float, str, bool]]) -> None:
    """The row of a record is the row that its own value gives, whatever the others hold."""
    age, job, sick = zip(*rows, strict=True)
    records = Records({"age": np.array(age), "job": np.array(job), "sick": as_column(sick)})
    actual = encode(ENCODING, records)
    for value in ("cook", "nurse", "smith"):
        asked = encode(ENCODING, records.without("job"), {"job": value})
        same = records["job"] == value
        assert np.array_equal(asked[same], actual[same])


@pytest.mark.parametrize(
    ("column", "values", "complaint"),
    [
        (
            "job",
            ["cook", "pope"],
            r"column 'job' has values .* does not know: pope; known are cook",
        ),
        ("job", [1.0, 2.0], r"column 'job' has values .* does not know: 1\.0, 2\.0"),
        ("age", ["30", "old"], r"column 'age' holds text but is encoded as a number; use one_hot"),
    ],
)
def test_values_that_the_schema_does_not_know(column: str, values: Any, complaint: str) -> None:
    records = Records({**PEOPLE.columns, column: np.array(values)})
    with pytest.raises(FixData, match=complaint):
        encode(ENCODING, records)
    with pytest.raises(FixData, match=complaint.replace(r"1\.0, 2\.0", r"2\.0")):
        encode(ENCODING, records, {column: values[1]})


def test_text_where_numbers_are_known() -> None:
    encoding = Encoding(blocks=(OneHot(column="n", values=(0.0, 1.0, 2.0)),))
    assert encode(encoding, Records({"n": np.array([2.0, 0.0])})).tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(FixData, match="column 'n' holds text where numbers"):
        encode(encoding, Records({"n": np.array(["2", "0"])}))


def test_records_are_columns_of_one_length() -> None:
    with pytest.raises(FixData, match="columns differ in length"):
        Records({"a": np.zeros(2), "b": np.zeros(3)})
    assert len(PEOPLE.take(np.array([True, False]))) == 1
    assert list(PEOPLE.only(["job", "age"]).columns) == ["job", "age"]
    assert as_column([True, False]).tolist() == [1.0, 0.0]
    assert as_column(["x", 1]).tolist() == ["x", "1"]


def test_targets_become_what_the_loss_sees() -> None:
    scaled = Target(column="y", shift=1.0, scale=2.0)
    assert scaled.encode(Records({"y": np.array([1.0, 5.0])})).tolist() == [0, 2]
    classes = Target(column="y", classes=("no", "yes"))
    assert classes.encode_values(np.array(["yes", "no", "yes"])).tolist() == [1, 0, 1]
    with pytest.raises(FixRecording, match="target 'y' has a class outside"):
        classes.encode_values(np.array(["maybe"]))
    with pytest.raises(FixRecording, match="target 'y' holds text where numbers"):
        scaled.encode_values(np.array(["many"]))
    for gap in (np.nan, np.inf):  # the value is at fault, not the scale
        with pytest.raises(FixData, match="'y' has a value that is not finite; impute it"):
            scaled.encode_values(np.array([1.0, gap]))
    with pytest.raises(FixData, match=r"becomes 1e.90 with .* these are not the scales"):
        Target(column="y", scale=1e-90).encode_values(np.array([1.0]))


def test_a_recipe_travels_as_json_and_must_fit_together() -> None:
    recipe = Recipe(
        model=Dense(inputs=5, hidden=(3,), sent_names={"layers.0.bias": "b0"}),
        loss="cross_entropy",
        encoding=ENCODING,
        target=Target(column="y", classes=("no", "yes")),
        learning_rate=0.1,
        batch_size=4,
    )
    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
    assert dict(recipe.model.layout())["b0"] == (3,)
    assert recipe.model.size == 5 * 3 + 3 + 3 + 1
    plain = recipe.model_dump()
    for change, complaint in [
        ({"model": {"inputs": 4}}, "takes 4 inputs but the encoding gives 5"),
        ({"model": {"inputs": 5, "outputs": 2}, "loss": "squared_error"}, "one output"),
        ({"model": {"inputs": 5, "outputs": 3}, "loss": "binary_cross_entropy"}, "one output"),
        ({"model": {"inputs": 5, "hidden": (0,)}}, "greater than or equal to 1"),
        ({"model": {"inputs": 5, "sent_names": {"layers.0.bias": "layers.0.weight"}}}, "one name"),
        ({"target": {"column": "y", "scale": 0.0}}, "scale must not be 0"),
        ({"learning_rate": 0.0}, "greater than 0"),
        ({"learning_rate": float("inf")}, "finite"),
        ({"momentum": 0.9}, "Extra inputs"),
    ]:
        with pytest.raises(ValidationError, match=complaint):
            Recipe.model_validate({**plain, **change})


def test_encode_each_is_encode_for_each_value(rng: np.random.Generator) -> None:
    encoding = Encoding(
        blocks=(
            Scaled(column="age", shift=3.0, scale=2.0),
            OneHot(column="job", values=("a", "b", "c")),
            Scaled(column="height"),
        )
    )
    table = {"age": rng.normal(size=9), "height": rng.normal(size=9)}
    for column, values in (("job", ("a", "b", "c")), ("elsewhere", (1.0, 2.0))):
        records = Records(table | ({} if column == "job" else {"job": np.repeat("b", 9)}))
        settings = [{column: value} for value in values]
        each = [encode(encoding, records, setting) for setting in settings]
        assert encode_each(encoding, records, settings).tobytes() == np.stack(each).tobytes()
    both = [{"job": job, "height": height} for job in "abc" for height in (1.0, 2.0)]
    records = Records({"age": table["age"]})
    each = [encode(encoding, records, setting) for setting in both]
    assert encode_each(encoding, records, both).tobytes() == np.stack(each).tobytes()

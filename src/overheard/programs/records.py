"""Records and how they become the numbers a model sees.

`Records` is a table of named columns (float64 or text). An `Encoding` says, as data, how
each column turns into inputs; the one function `encode` serves clients and adversaries
alike, so a decoder that asks "what if this column were v?" cannot disagree with the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from overheard.errors import FixData
from overheard.foreign.limits import check

Value = float | str
LARGEST = 1e60
"""Of an input or label as the model sees it: its fourth power times any count is a number."""


@dataclass(frozen=True)
class Records:
    """Columns of equal length. Numeric columns are float64, all others are text.

    A column of images has two dimensions: records, and the numbers of one image.
    """

    columns: Mapping[str, NDArray[Any]]

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise FixData(f"columns differ in length: {lengths}; every column needs one row each")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise FixData(f"no column {name!r}; the columns are {', '.join(self.columns)}")
        return self.columns[name]

    def take(self, rows: NDArray[Any]) -> Records:
        """The rows at these positions (or where this mask is true)."""
        return Records({name: values[rows] for name, values in self.columns.items()})

    def without(self, *names: str) -> Records:
        """All columns but these."""
        return Records({n: v for n, v in self.columns.items() if n not in names})

    def only(self, names: Iterable[str]) -> Records:
        """These columns, in this order."""
        return Records({name: self[name] for name in names})


def as_column(values: Any) -> NDArray[Any]:
    """Numbers and truth values as float64, everything else as text."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind == "O":  # texts of any length, of which one may be long
        texts = [str(value) for value in array.tolist()]
        longest = max(map(len, texts), default=0)
        check("table_bytes", len(texts) * longest * 4, "a column of text", FixData)
        return np.asarray(texts, dtype=str)
    return array.astype(str)


def positions(column: NDArray[Any], values: tuple[Value, ...]) -> NDArray[np.int64]:
    """Which of the values each record has; of numbers, the nearest (the bin it falls into)."""
    domain = np.asarray(values)
    if column.dtype.kind == "f" and domain.dtype.kind in "iuf":
        return np.asarray(np.abs(column[:, None] - domain[None, :]).argmin(axis=1))
    return np.asarray((column[:, None] == domain[None, :]).argmax(axis=1))


def alike(columns: Iterable[NDArray[Any]]) -> NDArray[np.intp]:
    """A number per record, equal where all columns agree: numbers, texts, or images (n, pixels)."""
    codes = [np.unique(each, axis=0, return_inverse=True)[1].ravel() for each in columns]
    return np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)[1].ravel()


class Spec(BaseModel, use_attribute_docstrings=True):
    """A frozen piece of description that travels as JSON; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _not_zero(scale: float) -> float:
    if scale == 0:
        raise ValueError("scale must not be 0")
    return scale


Scale = Annotated[float, AfterValidator(_not_zero)]
"""What a number is divided by."""


class _Block(Spec):
    """How one column becomes inputs."""

    @property
    def width(self) -> int:
        """How many of them."""
        return 1


class Scaled(_Block):
    """One input: ``(value - shift) / scale``."""

    block: Literal["scaled"] = "scaled"
    """One input: (value - shift) / scale."""
    column: str
    """The column. Example: `column = "age"`"""
    shift: float = 0.0
    """Taken from the value."""
    scale: Scale = 1.0
    """What it is divided by then."""


class OneHot(_Block):
    """One input per value, 1 where the record has it."""

    block: Literal["one_hot"] = "one_hot"
    """One input for each value, 1 where the record has it."""
    column: str
    """The column. Example: `column = "region"`"""
    values: tuple[Value, ...]
    """The values, in the order of the inputs. Example: `values = ["north", "south"]`"""

    @property
    def width(self) -> int:
        return len(self.values)


class Codes(_Block):
    """One input: the place of the value among the values, ``(place - shift) / scale``. A value that
    is none of them stands between its neighbours."""

    block: Literal["codes"] = "codes"
    """One input: the place of the value among the values, (place - shift) / scale."""
    column: str
    """The column. Example: `column = "region"`"""
    values: tuple[str, ...]
    """The values in their order. Example: `values = ["north", "south"]`"""
    shift: float = 0.0
    """Taken from the place."""
    scale: Scale = 1.0
    """What it is divided by then."""

    def places(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The values' places, without shift and scale."""
        known, texts = np.asarray(self.values), values.astype(str)
        result = np.searchsorted(known, texts)
        hit = known[np.minimum(result, len(known) - 1)] == texts
        return np.asarray(result - np.where(hit, 0.0, 0.5), dtype=np.float64)


class Pixels(_Block):
    """An image: a column with so many numbers a record, each ``(value - shift) / scale``."""

    block: Literal["pixels"] = "pixels"
    """An image, each of its numbers (value - shift) / scale."""
    column: str
    """The column. Example: `column = "image"`"""
    shape: tuple[int, int, int]
    """Channels, height and width. Example: `shape = [1, 28, 28]`"""
    shift: float = 0.0
    """Taken from each number."""
    scale: Scale = 1.0
    """What it is divided by then."""

    @property
    def width(self) -> int:
        return int(np.prod(self.shape))


AnyBlock = Scaled | OneHot | Codes | Pixels
Block = Annotated[AnyBlock, Field(discriminator="block")]


class Encoding(Spec):
    """The blocks in the order in which they stand in the model's input."""

    blocks: tuple[Block, ...]

    @property
    def width(self) -> int:
        return sum(block.width for block in self.blocks)

    def columns(self) -> tuple[str, ...]:
        return tuple(block.column for block in self.blocks)

    def inputs_of(self, columns: Iterable[str]) -> list[int]:
        """Where the inputs stand of those of the columns that are inputs."""
        seen = [inside for block, inside in self.placed if block.column in columns]
        return [place for inside in seen for place in range(inside.start, inside.stop)]

    @property
    def placed(self) -> list[tuple[AnyBlock, slice]]:
        """The blocks, and where the inputs of each stand."""
        ends = accumulate(block.width for block in self.blocks)
        placed = zip(self.blocks, ends, strict=True)
        return [(block, slice(end - block.width, end)) for block, end in placed]


def encode(
    encoding: Encoding, records: Records, fixed: Mapping[str, Value] | None = None
) -> NDArray[np.float64]:
    """Inputs (m, width) of the records, with the columns in ``fixed`` set to one value for all.

    A fixed column need not exist in the records: this is how an adversary who lacks the
    sensitive column asks for the inputs under each candidate value.
    """
    fixed = fixed or {}
    inputs = np.empty((len(records), encoding.width))
    for block, inside in encoding.placed:
        known = block.column not in fixed
        values = records[block.column] if known else np.full(len(records), fixed[block.column])
        inputs[:, inside] = _encode_block(block, values)
    return inputs


def encode_each(
    encoding: Encoding, records: Records, settings: Sequence[Mapping[str, Value]]
) -> NDArray[np.float64]:
    """Inputs (K, m, width) of the records under each of K settings of some columns.

    The same as `encode` for each setting, but what these columns do not touch is encoded once.
    """
    size, columns = len(settings) * len(records) * encoding.width * 8, tuple(settings[0])
    check("candidate_bytes", size, f"{columns} of {len(records)} records", FixData)
    made = np.repeat(encode(encoding, records, settings[0])[None], len(settings), axis=0)
    for block, inside in encoding.placed:
        if block.column in columns:
            for inputs, setting in zip(made[1:], settings[1:], strict=True):
                inputs[:, inside] = _encode_block(block, np.full(1, setting[block.column]))
    return made


def scaled(values: NDArray[Any], shift: float, scale: float, column: str) -> NDArray[np.float64]:
    """``(values - shift) / scale``, refused where solvers could not square and sum it."""
    numbers = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.asarray((numbers - shift) / scale)
    largest = float(np.abs(made).max(initial=0.0))
    if not largest <= LARGEST:
        if not np.isfinite(numbers).all():
            raise FixData(
                f"column {column!r} has a value that is not finite; impute it or drop the row"
            )
        raise FixData(
            f"column {column!r} becomes {largest:.3g} with shift {shift:g} and scale {scale:g}, "
            f"beyond {LARGEST:g}; these are not the scales of its values: correct them"
        )
    return made


def _encode_block(block: AnyBlock, values: NDArray[Any]) -> NDArray[np.float64]:
    if isinstance(block, OneHot):
        return _indicators(block, values)
    if isinstance(block, Codes):
        values = block.places(values)
    elif isinstance(block, Pixels) and (values.ndim != 2 or values.shape[1] != block.width):
        raise FixData(
            f"column {block.column!r} has shape {values.shape}; an image of {block.shape} "
            f"needs {block.width} numbers a record"
        )
    elif values.dtype.kind not in "biuf":
        raise FixData(f"column {block.column!r} holds text but is encoded as a number; use one_hot")
    made = scaled(values, block.shift, block.scale, block.column)
    return made.reshape(len(values), block.width)


def _indicators(block: OneHot, values: NDArray[Any]) -> NDArray[np.float64]:
    domain = np.asarray(block.values)
    if domain.dtype.kind in "biuf" and values.dtype.kind not in "biuf":
        raise FixData(f"column {block.column!r} holds text where numbers {block.values} are known")
    hits = np.asarray(values[:, None] == domain[None, :], dtype=np.float64)
    if not hits.any(axis=1).all():
        unseen = sorted({str(v) for v in values[~hits.any(axis=1)]})[:3]
        raise FixData(
            f"column {block.column!r} has values that its schema does not know: "
            f"{', '.join(unseen)}; known are {', '.join(map(str, block.values))}"
        )
    return hits

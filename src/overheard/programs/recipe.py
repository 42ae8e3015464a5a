"""What a client does with a model it receives, as data.

A `Recipe` holds what the papers' adversary is assumed to know of the training: the model's
structure, the loss, the encoding of records, and the local update rule (xu2021 Algorithm 2).
It contains no record and no secret. This module does not import torch.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from overheard.errors import FixConfig, FixRecording
from overheard.programs.records import Encoding, Records, Scale, Spec, Value, scaled

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes of the parameters, in the order of the flat vector."""


def pieces(layout: Layout, flat: Any) -> list[Any]:
    """The parameters of a flat vector (..., P), numpy's or torch's, in their shapes, as views."""
    ends = np.cumsum([0, *(int(np.prod(shape)) for _, shape in layout)]).tolist()
    return [
        flat[..., begin:end].reshape((*flat.shape[:-1], *shape))
        for begin, end, (_, shape) in zip(ends, ends[1:], layout, strict=False)
    ]


def named(layout: Layout, flat: Any) -> dict[str, Any]:
    """The same by their names: the arrays of a message."""
    return dict(zip((name for name, _ in layout), pieces(layout, flat), strict=True))


def _known(loss: str) -> str:
    from overheard.programs.losses import loss_named  # scipy: who only looks at this does without

    try:
        return loss_named(loss).name
    except FixConfig as error:
        raise ValueError(str(error)) from error


Loss = Annotated[str, AfterValidator(_known)]
"""The name of a value in `overheard.programs.losses`, or of one that a package announces."""


def _within_squares(rate: float) -> float:
    if rate < 1e-30:
        raise ValueError("below 1e-30, where its square leaves float64")
    return rate


LearningRate = Annotated[float, Field(gt=0, le=1e30), AfterValidator(_within_squares)]
"""Positive, and such that its square stays within float64."""


Epochs = Annotated[int, Field(ge=1, le=1_000_000)]
"""Local passes, or steps: as many as anybody trains, not as many as fit a number."""


Width = Annotated[int, Field(ge=1)]
"""Units of a layer, filters, pixels or channels."""
Beta = Annotated[float, Field(ge=0, lt=1)]


class Network(Spec):
    """What every architecture has. ``sent_names``: our name of a parameter to its name in the
    messages."""

    sent_names: dict[str, str] = {}

    @abstractmethod
    def own_layout(self) -> Layout:
        """Our names and shapes of the parameters, layer by layer, weight before bias."""

    def layout(self) -> Layout:
        """The same by their names in the messages."""
        return tuple((self.sent_names.get(name, name), shape) for name, shape in self.own_layout())

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(int(np.prod(shape)) for _, shape in self.own_layout())

    @property
    def reuse(self) -> int:
        """How often a pass uses a weight, in time: those of convolutions move."""
        return 30 if any(len(shape) > 2 for _, shape in self.own_layout()) else 1

    @property
    def linear(self) -> bool:
        """Are the outputs linear in the inputs?"""
        return False


class Dense(Network):
    """Dense layers with one activation between them. No hidden layer: a linear model."""

    architecture: Literal["dense"] = "dense"
    idle: ClassVar[tuple[str, ...]] = ()
    dropout: ClassVar[float] = 0.0
    inputs: int = Field(ge=1)
    hidden: tuple[Width, ...] = ()
    outputs: int = Field(default=1, ge=1)
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"
    bias: bool = True

    @model_validator(mode="after")
    def _distinct(self) -> Dense:
        names = [name for name, _ in self.layout()]
        if len(set(names)) < len(names):
            raise ValueError(f"sent_names give two parameters one name: {', '.join(names)}")
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.inputs, *self.hidden, self.outputs)

    @property
    def linear(self) -> bool:
        return not self.hidden

    def own_layout(self) -> Layout:
        named: list[tuple[str, tuple[int, ...]]] = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(self.sizes)):
            named.append((f"layers.{layer}.weight", (fan_out, fan_in)))
            if self.bias:
                named.append((f"layers.{layer}.bias", (fan_out,)))
        return tuple(named)


class LeNet(Network):
    """Two 5x5 convolutions, each followed by ReLU and 2x2 max pooling; then dense layers with ReLU.

    ``dropout`` stands before the first dense layer and between the dense layers (0: none). The
    input is an image (channels, height, width), flattened row by row; no padding.
    """

    architecture: Literal["lenet"] = "lenet"
    activation: ClassVar[str] = "relu"
    bias: ClassVar[bool] = True
    idle: ClassVar[tuple[str, ...]] = ()
    image: tuple[Width, Width, Width]
    filters: tuple[Width, Width] = (10, 20)
    hidden: tuple[Width, ...] = (50,)
    outputs: int = Field(default=10, ge=2)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _large_enough(self) -> LeNet:
        if min(self.image[1:]) < 16:
            raise ValueError(f"an image of {self.image} is too small for two 5x5 convolutions")
        return self

    @property
    def inputs(self) -> int:
        return int(np.prod(self.image))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of the dense layers."""
        height, width = (((side - 4) // 2 - 4) // 2 for side in self.image[1:])
        return (self.filters[1] * height * width, *self.hidden, self.outputs)

    def own_layout(self) -> Layout:
        named: list[tuple[str, tuple[int, ...]]] = []
        channels = (self.image[0], *self.filters)
        for number, (before, after) in enumerate(pairwise(channels), 1):
            named.append((f"conv{number}.weight", (after, before, 5, 5)))
            named.append((f"conv{number}.bias", (after,)))
        for number, (before, after) in enumerate(pairwise(self.sizes), 1):
            named += [(f"fc{number}.weight", (after, before)), (f"fc{number}.bias", (after,))]
        return tuple(named)


class Module(Network):
    """Any torch module, made by trusted code: ``factory`` is "package.module:function".

    ``parameters``: names and shapes of those that are trained, in the module's order; ``idle``:
    arrays in the messages that are not (a frozen backbone, running means). ``shape``: what a
    record's inputs are reshaped to before the module sees them (empty: left flat). Reading this
    runs nothing.
    """

    architecture: Literal["module"] = "module"
    factory: str
    inputs: int = Field(ge=1)
    outputs: int = Field(default=1, ge=1)
    parameters: Layout
    shape: tuple[int, ...] = ()
    idle: tuple[str, ...] = ()

    def own_layout(self) -> Layout:
        return self.parameters

    @property
    def bias(self) -> bool:
        return any(name.endswith("bias") for name, _ in self.parameters)


def _architecture(model: Any) -> str | None:
    """Which of them is meant; None for what is none (a file may say anything)."""
    if isinstance(model, dict):
        return str(model.get("architecture", "dense"))
    return getattr(model, "architecture", None)


Architecture = Annotated[
    Annotated[Dense, Tag("dense")]
    | Annotated[LeNet, Tag("lenet")]
    | Annotated[Module, Tag("module")],
    Discriminator(
        _architecture,
        custom_error_type="architecture",
        custom_error_message="a model is a table with architecture dense, lenet or module",
    ),
]


class Target(Spec):
    """What the model predicts: a scaled number, or one of several classes."""

    column: str
    classes: tuple[Value, ...] = ()
    shift: float = 0.0
    scale: Scale = 1.0

    def encode(self, records: Records) -> NDArray[np.float64]:
        """The labels as the loss sees them: scaled numbers, or class indices."""
        return self.encode_values(records[self.column])

    def decode_values(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Numbers as the loss sees them, back in the column's own units."""
        return values * self.scale + self.shift

    def encode_values(self, values: NDArray[np.generic]) -> NDArray[np.float64]:
        """`encode` for the bare column."""
        if not self.classes and values.dtype.kind not in "biuf":
            raise FixRecording(f"target {self.column!r} holds text where numbers are expected")
        if not self.classes:
            return scaled(values, self.shift, self.scale, self.column)
        hits = values[:, None] == np.asarray(self.classes)[None, :]
        if not hits.any(axis=1).all():
            raise FixRecording(f"target {self.column!r} has a class outside {self.classes}")
        return np.asarray(hits.argmax(axis=1), dtype=np.float64)


class PrivateSteps(Spec):
    """DP-SGD: each record's gradient is clipped to ``clip``; every step adds Gaussian noise whose
    standard deviation on the sum is ``noise`` times ``clip``."""

    clip: float = Field(gt=0)
    noise: float = Field(ge=0)


class Sgd(Spec):
    """Stochastic gradient descent, torch's."""

    name: Literal["sgd"] = "sgd"
    """Stochastic gradient descent, torch's."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """How much of the last step goes into the next one."""
    dampening: float = Field(default=0.0, ge=0, le=1)
    """How much less the gradient goes into the momentum."""
    nesterov: bool = False
    """Nesterov's momentum."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Times the parameters, added to the gradient."""


class Adam(Spec):
    """Adam, and AdamW."""

    name: Literal["adam"] = "adam"
    """Adam, and AdamW."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """Of the running means of the gradient and of its square."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the latter."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Times the parameters, added to the gradient."""
    decoupled: bool = False
    """Weight decay is that of AdamW: taken from the parameters, not added to the gradient."""


def _or_none(count: Any) -> Any:
    return None if count == 0 else count


Optimiser = Annotated[Sgd | Adam, Field(discriminator="name")]


class LocalUpdate(Spec):
    """What a client does with the model that it is sent, in a federation or a recipe."""

    algorithm: Literal["fedavg", "fedsgd", "fedprox"] = "fedavg"
    """A client returns the model that it trained ("fedavg"; "fedprox": pulled back to the model
    that it was sent), or one full-batch gradient ("fedsgd")."""
    learning_rate: LearningRate | None = None
    """The step size; a network needs one. Example: `learning_rate = 0.1`"""
    epochs: Epochs = 1
    """Passes over a client's records in a round."""
    batch_size: Annotated[int | None, BeforeValidator(_or_none)] = Field(default=None, ge=1)
    """Records a step; 0 or left out is the full batch. Example: `batch_size = 32`"""
    steps: Annotated[Epochs | None, BeforeValidator(_or_none)] = None
    """Mini-batches of a round, in place of epochs. Example: `steps = 10`"""
    proximal: float = Field(default=0.0, ge=0)
    """FedProx's mu: how strongly a client is pulled back to the model that it was sent."""
    optimiser: Optimiser = Sgd()
    """A client's own steps; "adam" in place of "sgd". Example: `optimiser = { name = "adam",
    weight_decay = 0.01 }`"""
    clip_norm: float | None = Field(default=None, gt=0)
    """The norm to which each gradient of a client's steps is clipped. Example: `clip_norm = 1.0`"""
    drop_last: bool = False
    """A last batch that is smaller is left out, as by DataLoader."""

    @property
    def sends_gradient(self) -> bool:
        """Does a client send a gradient, and not the model that it trained?"""
        return self.algorithm == "fedsgd"

    @property
    def payload(self) -> str:
        """What a client returns, in a word: "gradient" or "model"."""
        return "gradient" if self.sends_gradient else "model"


class Recipe(LocalUpdate):
    """Model, loss and local update rule."""

    learning_rate: LearningRate
    model: Architecture
    loss: Loss
    encoding: Encoding
    target: Target
    private: PrivateSteps | None = None
    precision: Literal["float32", "float64"] = "float32"
    own: dict[str, Encoding] = {}
    """Clients' own encodings, where each scaled and coded its records by itself."""

    def of(self, client: str) -> Recipe:
        """What one client does: with its own encoding, and without the others'."""
        if not self.own:
            return self
        return self.model_copy(update={"encoding": self.own.get(client, self.encoding), "own": {}})

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        for encoding in (self.encoding, *self.own.values()):
            if self.model.inputs != encoding.width:
                raise ValueError(
                    f"the model takes {self.model.inputs} inputs but the encoding gives "
                    f"{encoding.width}"
                )
        if self.steps is not None and (self.batch_size is None or self.epochs != 1):
            raise ValueError("steps counts mini-batches instead of epochs: it needs a batch_size")
        if self.drop_last and self.batch_size is None:
            raise ValueError("drop_last leaves out a last batch that is smaller: set batch_size")
        from overheard.programs.losses import loss_named

        if loss_named(self.loss).single and self.model.outputs != 1:
            raise ValueError(f"{self.loss} needs a model with one output")
        return self

    def columns(self) -> tuple[str, ...]:
        """The columns that the network and its loss look at."""
        return (*self.encoding.columns(), self.target.column)

    @property
    def full_batch(self) -> bool:
        return self.batch_size is None

    @property
    def plain(self) -> bool:
        """Are local steps plain gradient descent, so that an update is a sum of gradients?"""
        return self.optimiser == Sgd() and self.clip_norm is None

    @property
    def pull(self) -> float:
        """How strongly local steps are pulled back to the model that was sent (FedProx)."""
        return self.proximal if self.algorithm == "fedprox" else 0.0

    @property
    def one_step(self) -> bool:
        """Is what a client sends one full-batch gradient, as it is or times the rate?"""
        return self.full_batch and self.plain and (self.sends_gradient or self.epochs == 1)

    @property
    def rate(self) -> float:
        """What the gradient is multiplied by in what a client sends."""
        return 1.0 if self.sends_gradient else self.learning_rate

    def local_steps(self, records: int) -> int:
        """Gradient steps that a client with this many records takes in a round."""
        if self.sends_gradient:
            return 1
        if self.steps is not None:
            return self.steps
        return self.epochs * int(self.batches(np.array([records]))[0])

    def batches(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Batches in one pass over so many records."""
        if self.batch_size is None:
            return np.ones_like(records)
        extra = 0 if self.drop_last else self.batch_size - 1
        return np.asarray((records + extra) // self.batch_size)

    @property
    def linear_least_squares(self) -> bool:
        """Squared error on a model without hidden layers."""
        return self.loss == "squared_error" and self.model.linear

    @property
    def logistic_regression(self) -> bool:
        """Cross-entropy of two classes on a model without hidden layers."""
        return self.loss == "cross_entropy" and self.model.linear and self.model.outputs == 1

"""One description of a federation: what is simulated, checked before it runs, swept or audited.

The same keys describe a federation that is to be simulated and one that was recorded elsewhere
(``audit.toml``): the latter has no rounds, because its messages show them, and may say which client
of the recording is which one of the table. `overheard explain` prints what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializeAsAny,
    model_validator,
)

from overheard.data.dataset import MOST_VALUES, Data
from overheard.errors import FixConfig
from overheard.federation.defences import parse_defence
from overheard.federation.defences.contract import Defence
from overheard.federation.reading import checked, located
from overheard.federation.server import Mean, ServerRule, parse_rule
from overheard.foreign.files import read_toml
from overheard.foreign.shown import short
from overheard.programs.orders import Shuffle
from overheard.programs.program import Settings, families, family_named, settings_of
from overheard.programs.recipe import LocalUpdate, Loss
from overheard.programs.records import Block, Scale, Spec, Value
from overheard.transcript.target import JOINT
from overheard.transcript.threat import nearest

OF_SIMULATIONS = (
    *("seed", "server", "model.filters", "model.dropout", "model.initial"),
    *("training.rounds", "training.participation", "training.weighting", "training.precision"),
    *("training.isolate", "audit.auxiliary", "audit.membership", "audit.coverage"),
    *("property.kind", "property.targets", "property.ride"),
)
"""Keys that say what a recording shows by itself, or what only a simulation can do."""
OF_RECORDINGS = (
    *("clients", "model.sent_names", "audit.rounds", "audit.non_members", "audit.also_fits"),
    *("property.shard_size", "property.record", "property.behaviour", "property.auxiliary"),
)
"""Keys that a simulation settles by itself."""
ROUNDS = frozenset({"rounds", "participation"})
"""What [training] says of a program that trains no network."""


class NetworkSettings(Spec):
    """A network, by its name and sizes or as the torch module that ``factory`` makes."""

    name: Literal["linear", "logistic", "mlp", "lenet", "module"]
    """``linear`` (a number), ``logistic`` (a class), ``mlp`` (by the task), ``lenet`` (images), or
    ``module``, which may be left out where there is a ``factory``. Example: `name = "mlp"`"""
    factory: str = ""
    """A function without parameters that makes a torch module: trusted code, imported only with
    ``--trust`` or ``--trust-code``. Example: `factory = "hospital.net:make"`"""
    shape: tuple[PositiveInt, ...] = ()
    """What a record's inputs are reshaped to before a torch module sees them. Example: `shape = [1,
    28, 28]`"""
    hidden: tuple[PositiveInt, ...] = ()
    """Widths of the hidden layers; of a LeNet those of kerkouche2023 if left out. Example: `hidden
    = [64, 32]`"""
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"
    """What stands between the layers."""
    filters: tuple[PositiveInt, PositiveInt] | None = None
    """Of a LeNet: filters of its two convolutions. Example: `filters = [6, 16]`"""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Of a LeNet: the share of units left out in training. Example: `dropout = 0.5`"""
    initial: Literal["uniform", "zeros"] = "uniform"
    """The first model."""
    sent_names: dict[str, str] = {}
    """Our name of a parameter to its name in the messages; left out, parameters are taken in the
    order of the messages. Example: `sent_names = { "layers.0.weight" = "fc1.weight" }`"""

    def code(self) -> tuple[str, ...]:
        """The code that it names, which must be trusted."""
        return (self.factory,) if self.factory else ()

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if (self.name == "module") != bool(self.factory):
            raise ValueError(
                "give either a name (linear, logistic, mlp, lenet) or a factory "
                '("package.module:function"), which belongs to name = "module"'
            )
        if self.name in ("linear", "logistic") and self.hidden:
            raise ValueError(f"model {self.name!r} has no hidden layers; use name = 'mlp'")
        if self.name == "mlp" and not self.hidden:
            raise ValueError("model 'mlp' needs hidden layers, for example hidden = [64]")
        if self.name != "lenet" and (self.filters is not None or self.dropout is not None):
            raise ValueError("filters and dropout belong to name = 'lenet'")
        return self


class Training(LocalUpdate):
    """What a client does in a round; of a program that trains no network ``rounds`` and
    ``participation`` alone."""

    loss: Loss | None = None
    """"squared_error", "cross_entropy", "binary_cross_entropy" (of a model that ends in a sigmoid),
    "huber", "poisson", or one that a package announces. Left out: squared error of a number,
    cross-entropy of a class. Example: `loss = "huber"`"""
    shuffle: Shuffle | None = None
    """Clients fix the seed of their batches, all of them the same; left out, their orders are drawn
    anew. Example: `shuffle = { seed = 42 }`"""
    rounds: int = Field(default=0, ge=0)
    """How many rounds are simulated. Example: `rounds = 100`"""
    participation: float = Field(default=1.0, gt=0, le=1)
    """The share of the clients that take part in a round."""
    weighting: Literal["size", "equal"] = "size"
    """How clients count in the mean: by their records, or all the same."""
    precision: Literal["float32", "float64"] = "float32"
    """The precision of the messages."""
    isolate: str = ""
    """A client that is sent its own returned model in place of the global one, which is made
    without it (lyu2021's isolate = 1). Example: `isolate = "hospital 3"`"""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.steps and (not self.batch_size or self.epochs != 1):
            raise ValueError("steps counts mini-batches: set batch_size and leave epochs out")
        if self.sends_gradient and (self.epochs != 1 or self.batch_size):
            raise ValueError(
                "fedsgd sends one full-batch gradient; leave epochs and batch_size out"
            )
        if self.shuffle is not None and not self.batch_size:
            raise ValueError("shuffle is about the order of mini-batches: set batch_size")
        return self

    def weights(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much each client counts in the mean; together 1."""
        counts = sizes if self.weighting == "size" else np.ones(len(sizes))
        return np.asarray(counts / counts.sum())


class TargetTerms(Spec):
    """How the label enters the loss: ``(value - shift) / scale``, or the index of its class; left
    out, scaled as ``data.scale`` says, or the index among the sorted classes."""

    shift: float = 0.0
    """Taken from a number."""
    scale: Scale = 1.0
    """What a number is divided by then."""
    classes: tuple[Value, ...] = ()
    """The classes in the order of the model's outputs. Example: `classes = ["no", "yes"]`"""


def _distinct(secret: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if not isinstance(secret, str) and (len({*secret}) < 2 or any(JOINT in c for c in secret)):
        raise ValueError(
            f"several columns that are one secret are two or more, without a {JOINT!r} in a name"
        )
    return secret


Attribute = Annotated[str | tuple[str, ...], AfterValidator(_distinct)]
"""A secret: one column, or several that are asked about at once."""


class Secrets(Spec):
    """The secrets to ask about, and what the adversary knows."""

    attributes: tuple[Attribute, ...] | None = None
    """Sensitive columns, or lists of columns whose values are one secret together (about which no
    pool asks); left out, the source's own. Example: `attributes = ["sex", "ill"]`"""
    bins: int | None = Field(default=None, ge=2, le=MOST_VALUES)
    """Into how many ranges those are cut that are numbers with more values than that; left out,
    numbers with more than 32 values are cut into 4. Example: `bins = 8`"""
    label: bool = False
    """Ask about the labels too (classes: as about an attribute)."""
    group: str = ""
    """The column whose groups' mean labels are asked for. Example: `group = "sex"`"""
    auxiliary: int = Field(default=0, ge=0)
    """How many records are kept out of every client and given, with their labels, to the adversary
    who asks about labels."""
    membership: int = Field(default=0, ge=0)
    """How many records are kept out of every client and mixed, as outsiders, into each client's
    candidate pool."""
    coverage: float = Field(default=1.0, gt=0, le=1)
    """The share of each client's records that the adversary who asks about an attribute knows."""
    rounds: int = Field(default=0, ge=0)
    """Only so many of the first rounds are audited, where the description is not that of later ones
    (momentum that goes on from round to round is none in the first); 0: all."""
    non_members: str = ""
    """A table of people who are no client's, or "held out": those whom the clients kept for tests.
    Membership inference then asks who is the client's. Example: `non_members = "others.csv"`"""
    also_fits: tuple[str, ...] = ()
    """Other descriptions, in words, that explain the messages as well; the report notes them.
    Example: `also_fits = ["adam, rate 0.01"]`"""


class SoughtProperty(Spec):
    """What some of the clients have or do, and the adversary asks of each (kerkouche2023)."""

    kind: Literal["membership", "inversion", "ascent", "free-rider"] | None = None
    """They hold a target record ("membership"), send their update negated ("inversion"), ascend the
    loss ("ascent") or do not train ("free-rider"). Example: `kind = "membership"`"""
    positives: NonNegativeInt | tuple[str, ...] | None = None
    """Simulated: how many clients have it, by default 5. Recorded: their names, where they are
    known and to be scored. Example: `positives = 3`"""
    targets: int = Field(default=1, ge=1)
    """How many target records there are, each with holders of its own."""
    ride: Literal["unchanged", "noise"] = "unchanged"
    """What free-riders send."""
    shard_size: int | None = Field(default=None, ge=1)
    """How many records each client holds. Example: `shard_size = 100`"""
    record: str = ""
    """A table whose rows are the records whose holders are looked for. Example: `record =
    "wanted.csv"`"""
    behaviour: Literal["", "inversion", "ascent", "free-rider"] = ""
    """What dishonest clients are thought to do. Example: `behaviour = "inversion"`"""
    auxiliary: str = ""
    """A table of records like the clients'; left out, those of [data], if that names no client
    column. Example: `auxiliary = "like_them.csv"`"""


def _model(content: Any) -> Any:
    """A ``[model]`` as what it is about: a network, or by its name a program of some family."""
    if not isinstance(content, Mapping):
        return content
    content = {"name": "module", **content}  # which needs a factory, and says so
    name = content["name"]
    known = (*get_args(NetworkSettings.model_fields["name"].annotation), *families())
    if name not in known:
        raise FixConfig(f"model.name: unknown model {short(name)}; {nearest(str(name), known)}")
    kind = settings_of(name) if name in families() else NetworkSettings
    return checked(kind, content, at="model.")


def _blocks(blocks: Any) -> Any:
    """A block that lists values is one-hot, any other one scaled: TOML need not say so."""
    if not isinstance(blocks, list):
        return blocks
    return [
        {"block": "one_hot" if "values" in b else "scaled", **b} if isinstance(b, dict) else b
        for b in blocks
    ]


AnyModel = Annotated[NetworkSettings | SerializeAsAny[Settings], BeforeValidator(_model)]
AnyRule = Annotated[SerializeAsAny[ServerRule], BeforeValidator(parse_rule)]
AnyDefence = Annotated[SerializeAsAny[Defence], BeforeValidator(parse_defence)]


class Federation(Spec):
    """A whole federation: programs, server rule, defences, participation, and what is asked."""

    seed: int = 0
    """Of everything that is random in a simulation: the same seed gives the same bits."""
    data: Data
    """The clients' records."""
    clients: dict[str, str] = {}
    """A client's name in the messages to its name in the table, where they differ. Example:
    `clients = { "1234567" = "Charité" }`"""
    model: AnyModel
    """A network, or by its name a program that trains none."""
    training: Training = Training()
    """What a client does in a round, and how the rounds go."""
    encoding: Annotated[tuple[Block, ...], BeforeValidator(_blocks)] = ()
    """How a record becomes the model's inputs, in order; left out, as [data] says. Example:
    `encoding = [{ column = "age", shift = 40.0,
    scale = 12.0 }]`"""
    target: TargetTerms | None = None
    """How the label enters the loss."""
    server: AnyRule = Mean()
    """How the next global model is made of the clients' mean, in which they count as
    ``training.weighting`` says. Example: `server = { rule = "momentum" }`"""
    audit: Secrets = Secrets()
    """The secrets to ask about."""
    property: SoughtProperty | None = None
    """What is asked of each client as a whole."""
    defence: tuple[AnyDefence, ...] = ()
    """What clients and server do to the updates, in this order; of a recording, as they announced
    it. Example: `defence = [{ name = "clip", norm = 1.0 }]`"""

    def trains(self) -> bool:
        """Whether clients train a network, so that their messages are models or gradients."""
        network = isinstance(self.model, NetworkSettings)
        return network or family_named(str(self.model.name)).trains

    def network(self) -> NetworkSettings:
        """The model, for who can deal with networks only."""
        if not isinstance(self.model, NetworkSettings):
            raise FixConfig(
                f"model {self.model.name!r} is a program that trains no network; this works on "
                "networks only: simulate, record and audit it instead"
            )
        return self.model

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        network = isinstance(self.model, NetworkSettings)
        if network and self.training.learning_rate is None:
            raise ValueError("training.learning_rate: a network needs one, for example 0.1")
        given = {key for key, value in self.training if value != getattr(Training(), key)}
        of_networks = {
            'data.scale = "clients"': self.data.scale == "clients",
            "training." + " and training.".join(sorted(given - ROUNDS)): given - ROUNDS,
            "[server]": self.server != Mean(),
            "[property]": self.property,
        }
        if wrong := [key for key, there in of_networks.items() if there and not network]:
            raise ValueError(
                f"{wrong[0]} is about networks, and model {self.model.name!r} trains none: leave "
                "it out"
            )
        return self


def read_config(path: str | Path, recorded: bool = False, confined: bool = False) -> Federation:
    """Read and check a file, of a federation that is simulated or was ``recorded``; ``confined``:
    as `located` has it."""
    content = read_toml(path)
    content.pop("policy", None)  # what is allowed is asked of an audit: evaluation.policy
    return parse_config(located(content, Path(path), confined), str(path), recorded)


def parse_config(
    content: dict[str, Any], name: str = "config", recorded: bool = False
) -> Federation:
    """Check a federation that was read already."""
    made = checked(Federation, content, name)
    for key in OF_SIMULATIONS if recorded else OF_RECORDINGS:
        *above, last = key.split(".")
        table: Any = getattr(made, above[0]) if above else made
        field = type(table).model_fields.get(last) if table is not None else None
        if field is not None and getattr(table, last) != field.default:
            why = "is about simulations, and the messages were recorded"
            other = "describes a recording, and this is to be simulated"
            raise FixConfig(f"{name}: {key} {why if recorded else other}: leave it out")
    if not recorded and not made.training.rounds:
        raise FixConfig(f"{name}: training.rounds: how many rounds are simulated, at least 1")
    return made

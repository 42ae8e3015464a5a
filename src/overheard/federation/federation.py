"""The simulation's config file: TOML, checked, and unknown keys are named with the nearest one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from overheard.data.dataset import MOST_VALUES, HeldOut
from overheard.errors import FixConfig
from overheard.federation.defences.catalogue import parse_defence
from overheard.federation.defences.contract import Defence
from overheard.federation.server import Mean, ServerRule, WeightedMean, parse_rule
from overheard.foreign.files import read_toml
from overheard.foreign.shown import short
from overheard.programs.orders import Shuffle
from overheard.programs.program import Settings, families, settings_of
from overheard.programs.recipe import LocalUpdate
from overheard.programs.records import Spec
from overheard.transcript.target import JOINT
from overheard.transcript.threat import nearest


def _several(value: Any) -> Any:
    """One text, or a list of them."""
    return (value,) if isinstance(value, str) else value


class DataConfig(Spec):
    """Where records come from: a named source, or ``source = "file"`` with its columns' roles.

    ``scale``: numbers are measured from the mean of all clients' records in units of their standard
    deviation, which the recipe then publishes (of a description: all clients of the table; with
    "recorded" those alone whom the recording knows); with "clients" from each client's own mean in
    its own units, which the adversary is told of its client; or, with "none", taken as they stand.
    Columns of zeros and ones, and secrets of two numbers, stay as they are unless ``every``.
    ``text``: a text is an input a value, or by "codes" one input, its place among the values in
    their order (with "clients": among its client's own). ``held_out``: what no client trained on.

    Of a file: ``categories`` are columns read as text even where they look like numbers. Of CSV
    also: ``missing``, what stands for no value (rows that hold it are left out, and the report says
    how many), ``encoding`` (UTF-8 if left out, or UTF-16 that says so) and ``separator`` (looked
    for in the first line if left out).
    """

    source: str
    path: str = ""
    client: str = ""
    target: str = ""
    task: Literal["regression", "classification"] | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: Annotated[tuple[str, ...], BeforeValidator(_several)] = ()
    encoding: str = ""
    separator: str = Field(default="", max_length=1)
    scale: Literal["records", "recorded", "clients", "none"] = "records"
    every: bool = False
    text: Literal["one_hot", "codes"] = "one_hot"
    held_out: HeldOut | None = None
    options: dict[str, Any] = {}


class NetworkSettings(Spec):
    """A network, to be simulated or described: sizes, or a torch module that ``factory``
    ("package.module:function", trusted code) makes, fed a record's inputs, reshaped to ``shape``
    where that is given."""

    factory: str = ""
    shape: tuple[PositiveInt, ...] = ()
    hidden: tuple[PositiveInt, ...] = ()
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"


class ModelConfig(NetworkSettings):
    """``linear`` (squared error), ``logistic`` (cross-entropy), ``mlp`` (by the task), ``lenet``,
    or ``module``: any torch module that ``factory`` makes.

    ``filters``, ``hidden`` and ``dropout`` of a LeNet are by default kerkouche2023's for grey and
    for colour images.
    """

    name: Literal["linear", "logistic", "mlp", "lenet", "module"]
    filters: tuple[PositiveInt, PositiveInt] | None = None
    dropout: float | None = Field(default=None, ge=0, lt=1)
    initial: Literal["uniform", "zeros"] = "uniform"


class ClientTraining(LocalUpdate):
    """What a client does in a round, to be simulated or described: what no message shows.

    ``shuffle``: clients fix their seed, all of them the same, see `overheard.programs.orders`; if
    it is left out their orders are drawn anew.
    """

    shuffle: Shuffle | None = None


class TrainingConfig(ClientTraining):
    """A simulated federation's training: the clients', and what its messages will show.

    Of a program that trains no network: ``rounds`` and ``participation``, and nothing else.

    ``isolate`` names a client to which the server sends its own returned model in place of the
    global one, which is made without it (lyu2021's isolate = 1).
    """

    rounds: int = Field(ge=1)
    participation: float = Field(default=1.0, gt=0, le=1)
    weighting: Literal["size", "equal"] = "size"
    wire: Literal["float32", "float64"] = "float32"
    isolate: str = ""


def _distinct(secret: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if not isinstance(secret, str) and (len({*secret}) < 2 or any(JOINT in c for c in secret)):
        raise ValueError(
            f"several columns that are one secret are two or more, without a {JOINT!r} in a name"
        )
    return secret


Attribute = Annotated[str | tuple[str, ...], AfterValidator(_distinct)]
"""A secret: one column, or several that are asked about at once."""


class Secrets(Spec):
    """The secrets to ask about; by default the source's own sensitive columns.

    ``attributes``: a column, or a list of columns whose values are one secret together (about
    which no pool asks).

    ``bins``: into how many ranges those are cut that are numbers with more values than that. If it
    is left out, numbers with more than 32 values are cut into 4.

    ``label`` asks about the labels too (of a program's classes: as about an attribute). ``group``
    names the column whose groups' mean labels are asked for.
    """

    attributes: tuple[Attribute, ...] | None = None
    bins: int | None = Field(default=None, ge=2, le=MOST_VALUES)
    label: bool = False
    group: str = ""


class AuditConfig(Secrets):
    """``auxiliary``: how many records are kept out of every client and given, with their labels, to
    the adversary who asks about labels.

    ``membership``: how many records are kept out of every client and mixed, as strangers, into the
    pool of candidates of each client. ``coverage``: the share of each client's records that the
    adversary who asks about an attribute knows.
    """

    auxiliary: int = Field(default=0, ge=0)
    membership: int = Field(default=0, ge=0)
    coverage: float = Field(default=1.0, gt=0, le=1)


class PropertyConfig(Spec):
    """What some of the clients have or do, and the adversary asks of each (kerkouche2023).

    ``kind``: they hold a target record (``membership``), send their update negated
    (``inversion``), climb the loss (``ascent``) or do not train (``free-rider``; ``ride`` says what
    they send then). ``positives``: how many of them there are. ``targets``: how many target
    records, each with holders of its own.
    """

    kind: Literal["membership", "inversion", "ascent", "free-rider"]
    positives: int = Field(default=5, ge=0)
    targets: int = Field(default=1, ge=1)
    ride: Literal["unchanged", "noise"] = "unchanged"


S = TypeVar("S", bound=Spec)
AnyDefence = Annotated[SerializeAsAny[Defence], BeforeValidator(parse_defence)]
AnyRule = Annotated[SerializeAsAny[ServerRule], BeforeValidator(parse_rule)]


def kind_of_model(content: Any, network: type[Spec]) -> type[Spec]:
    """What a ``[model]`` is about: a network, or by its name a program of some family."""
    name = content.get("name") if isinstance(content, Mapping) else None
    return settings_of(name) if isinstance(name, str) and name in families() else network


def model_or(network: type[Spec]) -> BeforeValidator:
    """A ``[model]`` as what it is about."""

    def read(content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        return kind_of_model(content, network).model_validate(dict(content))

    return BeforeValidator(read)


AnyModel = Annotated[ModelConfig | SerializeAsAny[Settings], model_or(ModelConfig)]


class Federation(Spec):
    """A whole simulation. ``model``: a network, or the settings of a program that trains none.
    ``server``: how the next global model is made, by default the mean of the clients that
    ``training.weighting`` says. ``defence``: what clients and server do, in this order."""

    seed: int = 0
    data: DataConfig
    model: AnyModel
    training: TrainingConfig
    server: AnyRule | None = None
    audit: AuditConfig = AuditConfig()
    property: PropertyConfig | None = None
    defence: tuple[AnyDefence, ...] = ()

    def server_rule(self) -> ServerRule:
        """How the server makes the next global model."""
        return self.server or (WeightedMean() if self.training.weighting == "size" else Mean())

    def network(self) -> ModelConfig:
        """The model, for who can deal with networks only."""
        if not isinstance(self.model, ModelConfig):
            raise FixConfig(
                f"model {self.model.name!r} is a program that trains no network; this works on "
                "networks only: simulate, record and audit it instead"
            )
        return self.model

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if isinstance(self.model, ModelConfig) and self.training.learning_rate is None:
            raise ValueError("training.learning_rate: a network needs one, for example 0.1")
        return self

    @model_validator(mode="after")
    def _one_weighting(self) -> Self:
        if self.server is not None and self.training.weighting != "size":
            raise ValueError("[server] says how clients weigh; leave training.weighting out")
        return self


def read_config(path: str | Path) -> Federation:
    """Read and check a config file."""
    return parse_config(read_toml(path), str(path))


def parse_config(content: dict[str, Any], name: str = "config") -> Federation:
    """Check a config that was read already."""
    _refuse_unknown_keys(content, Federation, name, "")
    return checked(Federation, content, name)


def checked(spec: type[S], content: dict[str, Any], name: str) -> S:
    """The content as this kind of settings; an error names the first one that is wrong."""
    try:
        return spec.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))[:200] or "top level"
        given = short(first["input"])
        raise FixConfig(f"{name}: {where}: {first['msg']} (given: {given})") from error


def _refuse_unknown_keys(content: dict[str, Any], spec: type[Spec], name: str, at: str) -> None:
    for key, value in content.items():
        if key not in spec.model_fields:
            raise FixConfig(f"{name}: unknown key {at}{key!r}; {nearest(key, spec.model_fields)}")
        annotation = spec.model_fields[key].annotation
        kinds = [
            inner
            for inner in get_args(annotation) or (annotation,)
            if isinstance(inner, type) and issubclass(inner, Spec)
        ]
        if kinds and issubclass(kinds[0], ModelConfig):
            kinds = [kind_of_model(value, ModelConfig)]
        # of several kinds the table's own name says which, and the check of types comes later
        if isinstance(value, dict) and len(kinds) == 1:
            _refuse_unknown_keys(value, kinds[0], name, f"{at}{key}.")

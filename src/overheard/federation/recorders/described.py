"""The tables of the TOML file that describes a recording: what each may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from overheard.federation.config import (
    AnyDefence,
    ClientTraining,
    DataConfig,
    NetworkSettings,
    Secrets,
)
from overheard.programs.program import Program, Settings, families, family_named, settings_of
from overheard.programs.recipe import Loss
from overheard.programs.records import Block, Scale, Spec, Value


class DescribedModel(NetworkSettings):
    """A model by name and sizes, or a ``factory`` (needs --trust-code). ``shape`` left out: square
    images where the messages hold a convolution.

    ``wire_names``: our name of a parameter (``layers.0.weight``) to its name in the messages; left
    out, the parameters are taken in the order of the messages.
    """

    name: Literal["linear", "logistic", "mlp"] | None = None
    wire_names: dict[str, str] = {}


class DescribedTraining(ClientTraining):
    """A client's own training, in the words of a simulation's config. ``loss``: by default squared
    error of a number and cross-entropy of a class ("binary_cross_entropy": of a model that ends in
    a sigmoid)."""

    loss: Loss | None = None


class DescribedTarget(Spec):
    """How the label enters the loss: ``(value - shift) / scale``, or the index of its class."""

    shift: float = 0.0
    scale: Scale = 1.0
    classes: tuple[Value, ...] = ()


class DescribedAudit(Secrets):
    """``strangers``: a table of people who are no client's, or "held out": those whom the clients
    kept for tests. Each client's records are mixed with them, and asked is who is the client's.
    ``also_fits``: other descriptions, in words, that explain the messages as well; the report notes
    them.
    """

    strangers: str = ""
    also_fits: tuple[str, ...] = ()


class DescribedProperty(Spec):
    """What is looked for among the clients (kerkouche2023), and what its adversary holds.

    ``record``: a table whose rows are the records whose holders are looked for; ``behaviour``: what
    dishonest clients are thought to do. ``auxiliary``: a table of records like the clients' (by
    default those of [data], if that has no client column). ``shard_size``: how many records each
    client holds. ``positives``: who has the property, where that is known and to be scored.
    """

    shard_size: int = Field(ge=1)
    record: str = ""
    behaviour: Literal["", "inversion", "ascent", "free-rider"] = ""
    auxiliary: str = ""
    positives: tuple[str, ...] | None = None


def _described(content: Any) -> Any:
    """A network, or by its name the settings of a program that trains none."""
    name = content.get("name") if isinstance(content, Mapping) else None
    if isinstance(name, str) and name in families():
        return settings_of(name).model_validate(dict(content))
    return content


AnyDescribed = Annotated[DescribedModel | SerializeAsAny[Settings], BeforeValidator(_described)]


class Description(Spec):
    """The whole file. ``clients``: a client's name in the messages to its name in the table.
    ``training`` is about networks; of other programs [model] says all. ``defence``: what clients
    and server did to the updates, in this order, as they announced it.
    """

    data: DataConfig
    clients: dict[str, str] = {}
    model: AnyDescribed
    training: DescribedTraining | None = None
    encoding: tuple[Block, ...] = ()
    target: DescribedTarget | None = None
    audit: DescribedAudit = DescribedAudit()
    property: DescribedProperty | None = None
    defence: tuple[AnyDefence, ...] = ()

    def factory(self) -> str:
        """The code that the model names, if it names any."""
        return self.model.factory if isinstance(self.model, DescribedModel) else ""

    def program(self) -> type[Program]:
        """The family of programs that the model names, where it is no network."""
        return family_named(str(self.model.name))

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        network = isinstance(self.model, DescribedModel)
        if network and (self.training is None or self.training.learning_rate is None):
            raise ValueError("training: a network needs this table, with its learning_rate")
        if not network and (self.training is not None or self.property):
            raise ValueError(
                f"model {self.model.name!r} trains no network: leave [training] and [property] out"
            )
        return self

    @field_validator("encoding", mode="before")
    @classmethod
    def _blocks(cls, blocks: Any) -> Any:
        """A block that lists values is one-hot, any other one scaled: TOML need not say so."""
        if not isinstance(blocks, list):
            return blocks
        return [
            {"block": "one_hot" if "values" in b else "scaled", **b} if isinstance(b, dict) else b
            for b in blocks
        ]

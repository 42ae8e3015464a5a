"""What an audit needs and no listener hears, in one TOML file beside the recording.

The records of the clients (or of some), how they become the model's inputs, the model, the local
update rule, the secrets to ask about. With it, a recording of any federation becomes one that can
be audited: `describe` writes its side knowledge and truth, and leaves the messages where they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from overheard.data.dataset import Dataset
from overheard.data.file import NOBODYS, Reading, read_table
from overheard.errors import FixConfig, GrantKnowledge
from overheard.federation.defences.contract import chain, told
from overheard.federation.disclosure import write_knowledge
from overheard.federation.federation import (
    AnyDefence,
    ClientTraining,
    DataConfig,
    Federation,
    NetworkSettings,
    Secrets,
    checked,
    model_or,
    parse_config,
)
from overheard.federation.plan import Plan, load_data, plan
from overheard.federation.pool import apart, together
from overheard.federation.properties import Properties, holding, misbehaving
from overheard.federation.simulate import client_shards, trained_on
from overheard.foreign.files import inside, read_toml
from overheard.foreign.shown import short, visible
from overheard.programs.program import Program, Settings, family_named
from overheard.programs.recipe import Dense, Layout, Loss, Module, Recipe, Target
from overheard.programs.records import Block, Encoding, OneHot, Records, Scale, Spec, Value
from overheard.programs.trusted import granted, trust
from overheard.recorders.factory import image_of, layout_words, model_of
from overheard.transcript.kind import write
from overheard.transcript.knowledge import InTheClear
from overheard.transcript.messages import releases_arrays
from overheard.transcript.side import SideHeader, SideWriter
from overheard.transcript.store import Recording
from overheard.transcript.view import in_the_clear

BESIDE = "audit.toml"
HELD_OUT = "held out"
"""Not the name of a table: the people whom clients kept for tests."""
Model = Dense | Module


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


AnyDescribed = Annotated[DescribedModel | SerializeAsAny[Settings], model_or(DescribedModel)]


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


def read_description(path: str | Path, confined: bool = False) -> Description:
    """Read and check a description; a relative path starts at the file's own folder.

    ``confined``: it came with a recording and nobody vouched for it, so that it may name files in
    its own folder only.
    """
    file = Path(path)
    read = checked(Description, read_toml(file), str(file))
    asked = read.property or DescribedProperty(shard_size=1)
    others = "" if read.audit.strangers == HELD_OUT else read.audit.strangers
    named = [read.data.path, asked.record, asked.auxiliary, others]
    named += [v for k, v in read.data.options.items() if k in ("folder", "path")]
    for name in named if confined else ():
        if name and not inside(file.parent, file.parent / str(name)):
            raise GrantKnowledge(
                f"{file}: names {short(name)}, which is outside of the recording; if you wrote or "
                f"checked that file, say so with --with {file}"
            )

    def found(name: str) -> str:
        return str(file.parent / name) if name else ""  # an absolute path stays what it is

    return read.model_copy(
        update={
            "data": read.data.model_copy(update={"path": found(read.data.path)}),
            "audit": read.audit.model_copy(
                update={"strangers": found(others) or read.audit.strangers}
            ),
            "property": read.property
            and asked.model_copy(
                update={"record": found(asked.record), "auxiliary": found(asked.auxiliary)}
            ),
        }
    )


def written(description: Description, remarks: Iterable[str]) -> bytes:
    """The description as `read_description` reads it, after remarks as comments."""

    def entries(table: Mapping[str, Any], above: str = "") -> Iterator[str]:
        for name, value in table.items():
            key = above + (name if re.fullmatch(r"[A-Za-z0-9_]+", name) else json.dumps(name))
            if isinstance(value, Mapping):
                yield from entries(value, f"{key}.")
            else:
                yield f"{key} = {json.dumps(value, ensure_ascii=False)}"

    content = description.model_dump(exclude_defaults=True)
    if description.training is not None and "optimiser" in content["training"]:
        # all of it, as its name is the default of its kind
        content["training"]["optimiser"] = description.training.optimiser.model_dump()
    lines = [f"# {visible(line)}" for line in remarks]
    for name, table in content.items():
        lines += ["", f"[{name}]", *entries(table)]
    return "\n".join([*lines, ""]).encode()


def describe(
    recording: Recording, description: Description, out: str | Path, trust_code: bool = False
) -> tuple[str, ...]:
    """Write what the description says to ``out``, as ``side/`` and ``truth/`` of the recording,
    which is read together with them (`Recording.described_in`) and not written to. Clients get the
    names that the table has. Returns what the auditor should know, which is among the notes too."""
    if recording.describes_itself:
        raise FixConfig(f"{recording.path}: describes itself already; audit it without a TOML file")
    if not recording.rounds:
        raise FixConfig(f"{recording.path}: no round was recorded; there is nothing to describe")
    trains = isinstance(description.model, DescribedModel) or description.program().trains
    if trains == releases_arrays(recording.payload):
        holds = "releases of a program that trains no network" if trains else "models of a network"
        raise FixConfig(
            f"{recording.path}: holds {holds}, and [model] describes the other kind: name the "
            "program (such as xgboost), or record with the payload that it is"
        )
    if (code := description.factory()) and not trust_code:
        granted(code, "the model is made by")  # said before anything is read
    dataset = table_of(description)
    names, ready = settled(recording, description, dataset, trust_code)
    if names:
        ready = _recorded(ready, set(names.values()))
    if isinstance(ready.told, Recipe):
        client_shards(ready.recipe, trained_on(ready))  # what does not fit the encoding is said
    if (asked := description.property) is not None:
        ready = replace(ready, properties=_properties(recording, description, asked, ready, names))
    if not names:
        ready = replace(ready, clients={}, attributes={})
    elif description.audit.strangers:
        among = _only(dataset, set(names.values()))
        ready = replace(ready, strangers=_strangers(description, among, ready))
    about = {
        **{key: value for key, value in recording.about.items() if key != "seed"},
        "data": dataset.name,
        "origin": dataset.origin,
        "clients": [names.get(c, c) for c in recording.clients],
    }
    claims = chain(*description.defence).claims
    remarks = (*_silent(recording, names), *_own_scales(ready))
    if others := description.audit.also_fits:
        remarks = (*remarks, f"These descriptions fit as well: {'; '.join(others)}.")
    with SideWriter(Path(out), SideHeader(recording.digest, names, about)) as writer:
        write_knowledge(writer, ready)
        if (seed := recording.seed) is not None:
            writer.seed(seed)
        if claims:
            write(writer, told(claims))
        write(writer, _clear(recording, names, remarks))
    return remarks


def table_of(description: Description) -> Dataset:
    """The records that the description names."""
    return load_data(_config(description, "regression"), description.property is not None)


def settled(
    recording: Recording, description: Description, dataset: Dataset, trust_code: bool = False
) -> tuple[dict[str, str], Plan]:
    """The table's name of each recorded client that is in it, and the federation as it is
    described, with all clients of the table."""
    given = None
    if factory := description.factory():
        given = model_of(factory, wire_layout(recording), trust_code)
    if isinstance(description.model, Settings) and trust_code:
        for name in description.model.code():
            trust(name)
    names, trained = _who_trained(recording, description, dataset)
    # clients that were never recorded have a part in the scales that all of them share
    shared = trained if description.data.scale == "recorded" else dataset
    ready = plan(_config(description, dataset.task), shared)
    if isinstance(ready.told, Program):
        encoding, target = _own_terms(description, ready.told)
        content = {**dict(ready.told), "encoding": encoding, "target": target}
        return names, replace(ready, told=family_named(ready.told.family).checked(content))
    return names, replace(ready, told=_recipe(recording, description, given, ready))


def _own_terms(description: Description, planned: Recipe | Program) -> tuple[Encoding, Target]:
    """Encoding and target of the federation itself: the plan's, unless the file gives others."""
    encoding, target = planned.encoding, planned.target
    if description.encoding:
        encoding = Encoding(blocks=description.encoding)
    if description.target is not None:
        target = Target(column=target.column, **description.target.model_dump())
    return encoding, target


def _config(description: Description, task: str) -> Federation:
    network = isinstance(description.model, DescribedModel)
    if network and bool(description.factory()) == (description.model.name is not None):
        raise FixConfig(
            "model: give either a name (linear, logistic, mlp) or a factory "
            '("package.module:function")'
        )
    unused = {"factory", "shape", "wire_names"} if network else set()
    model: dict[str, Any] = description.model.model_dump(exclude=unused)
    training = description.training
    how = {} if training is None else training.model_dump(exclude={"loss"})
    if description.factory():
        # the task decides the loss; the model itself is put in later, by `_recipe`
        model = {"name": "logistic" if task == "classification" else "linear"}
    return parse_config(
        {
            "data": description.data.model_dump(),
            "model": model,
            "training": {**how, "rounds": 1},
            "audit": description.audit.model_dump(exclude={"strangers", "also_fits"}),
            "defence": [defence.model_dump() for defence in description.defence],
        },
        "description",
    )


def _who_trained(
    recording: Recording, description: Description, dataset: Dataset
) -> tuple[dict[str, str], Dataset]:
    """The clients of whom there are records, by their names, and these records. Records that are
    nobody's tell how the model sees such records, and nothing about a client."""
    if dataset.client != NOBODYS:
        names = _names(recording, description, dataset)
        return names, _only(dataset, set(names.values()))
    if description.audit.attributes or description.audit.label or description.clients:
        raise FixConfig(
            "[data] names no client column, so nothing is known of a client's records: leave "
            "[clients], audit.attributes and audit.label out, or say whose records they are"
        )
    return {}, dataset


def _strangers(description: Description, dataset: Dataset, ready: Plan) -> Records:
    """People who are no client's, and whom what is public tells from everybody."""
    held = description.data.held_out
    columns = tuple(next(iter(ready.clients.values())).columns)
    if description.audit.strangers != HELD_OUT:
        found = _table(description, description.audit.strangers, columns)
    elif held is None:
        raise FixConfig('audit.strangers = "held out", but data.held_out does not say who that is')
    else:
        found = dataset.tested(held).only(columns)
    alone = [c for c, domain in ready.attributes.items() if not domain.parts]
    left = apart(found, ready.clients.values(), alone)
    if not len(left):
        raise FixConfig(
            f"audit.strangers: each of the {len(found)} agrees with somebody else in everything "
            "public; name a table of other people"
        )
    return left


def _table(description: Description, path: str, columns: tuple[str, ...]) -> Records:
    """These columns of a table that is written like that of the clients' records."""
    how = Reading(**{f.name: getattr(description.data, f.name) for f in fields(Reading)})
    return read_table(path, how, wanted=columns)[0].only(columns)


def _properties(
    recording: Recording,
    description: Description,
    asked: DescribedProperty,
    ready: Plan,
    names: Mapping[str, str],
) -> Properties:
    """What is looked for among the clients, as the simulator has it of its own."""
    if not asked.record and not asked.behaviour:
        raise FixConfig("[property]: give a record whose holders are looked for, or a behaviour")
    needed = (*ready.recipe.encoding.columns(), ready.recipe.target.column)
    auxiliary = ready.auxiliary if names else ready.dataset.records.only(needed)
    if asked.auxiliary:
        auxiliary = _table(description, asked.auxiliary, needed)
    if auxiliary is None:
        raise FixConfig("property.auxiliary: name a table of records like the clients'")
    for client in asked.positives or ():
        if client not in recording.clients:
            raise FixConfig(
                f"property.positives: {client!r} is not in the recording; it has "
                f"{', '.join(recording.clients)}"
            )
    positives = None if asked.positives is None else tuple(names.get(c, c) for c in asked.positives)
    wanted = _table(description, asked.record, needed) if asked.record else Records({})
    secrets = [holding(wanted.take(np.array([k])), k, positives) for k in range(len(wanted))]
    if asked.behaviour:
        secrets.append(misbehaving(asked.behaviour, positives))
    clients = tuple(names.get(c, c) for c in recording.clients)
    return Properties(clients, tuple(secrets), auxiliary, asked.shard_size)


def _names(recording: Recording, description: Description, dataset: Dataset) -> dict[str, str]:
    """The table's name of each recorded client of whom there are records."""
    there = dataset.by_client()
    for heard, name in description.clients.items():
        if heard not in recording.clients:
            raise FixConfig(
                f"clients: {heard!r} is not in the recording; it has {', '.join(recording.clients)}"
            )
        if name not in there:
            raise FixConfig(
                f"clients: {name!r} is not in column {dataset.client!r} of the table; it has "
                f"{', '.join(there)}"
            )
    names = {c: description.clients.get(c, c) for c in recording.clients}
    names = {c: name for c, name in names.items() if name in there}
    if not names:
        raise FixConfig(
            f"no client of the recording ({', '.join(recording.clients)}) is in column "
            f"{dataset.client!r} of the table ({', '.join(there)}); say in [clients] who is who"
        )
    if len(set(names.values())) < len(names):
        raise FixConfig("clients: two clients of the recording have one name in the table")
    return names


def _only(dataset: Dataset, names: set[str]) -> Dataset:
    """The records of these clients; those of others were not trained on."""
    kept = {name: records for name, records in dataset.by_client().items() if name in names}
    columns = together(*kept.values()).columns
    who = np.concatenate([np.full(len(records), name) for name, records in kept.items()])
    return replace(dataset, records=Records({**columns, dataset.client: who}))


def _recorded(ready: Plan, names: set[str]) -> Plan:
    """The federation without those of its clients that were never recorded."""
    ready = replace(ready, clients={c: r for c, r in ready.clients.items() if c in names})
    if isinstance(ready.told, Recipe):
        own = {c: encoding for c, encoding in ready.told.own.items() if c in names}
        ready = replace(ready, told=ready.told.model_copy(update={"own": own}))
    return ready


def wire_layout(recording: Recording) -> Layout:
    """Names and shapes of the arrays in the messages."""
    return tuple((name, tuple(shape)) for name, _, shape in recording.rounds[0].layout)


def _recipe(
    recording: Recording, description: Description, given: Model | None, ready: Plan
) -> Recipe:
    """The plan's recipe with the encoding, target and names of the federation itself."""
    base, training, described = ready.recipe, description.training, description.model
    assert training is not None  # both checked by the description
    assert isinstance(described, DescribedModel)
    encoding, target = _own_terms(description, base)
    outputs = base.dense.outputs
    if target.classes:
        outputs = 1 if len(target.classes) == 2 else len(target.classes)
    layout = wire_layout(recording)
    model: dict[str, Any] = (given or base.dense).model_dump()
    model |= {"inputs": encoding.width, "outputs": outputs}
    if "shape" in model:
        model["shape"] = described.shape or image_of(layout, encoding.width)
        if model["shape"] and np.prod(model["shape"]) != encoding.width:
            raise FixConfig(f"model.shape {described.shape} does not hold {encoding.width} inputs")
    idle = model.get("idle", ())
    wires = {dtype for name, dtype, _ in recording.rounds[0].layout if name not in idle}
    if not wires <= {"F16", "F32", "F64"}:
        raise FixConfig(
            f"the messages hold arrays of {', '.join(sorted(wires))}; only float16, float32 "
            "and float64 models (and bfloat16, which is recorded as float32) can be audited"
        )
    try:
        if given is None:
            model["bias"] = any(len(shape) == 1 for _, shape in layout)
            plain = Dense.model_validate(model)
            model["wire_names"] = described.wire_names or _in_order(plain, layout)
        return Recipe.model_validate(
            {
                **base.model_dump(),
                "model": model,
                "loss": training.loss or base.loss,
                "encoding": encoding.model_dump(),
                "own": {} if description.encoding else dict(base.own),
                "target": target.model_dump(),
                "wire": "float64" if wires == {"F64"} else "float32",
            }
        )
    except ValidationError as error:
        raise FixConfig(f"description: {error.errors()[0]['msg']}") from error


def _in_order(model: Dense, layout: Layout) -> dict[str, str]:
    """Our parameters to the messages' arrays: weights in order, biases in order, as shapes allow.

    Files sort their arrays by name, so a layer's bias may stand before its weight.
    """
    wanted = model.layout()
    names: dict[str, str] = {}
    for sides in (2, 1):
        ours, theirs = (
            [(name, shape) for name, shape in arrays if len(shape) == sides]
            for arrays in (wanted, layout)
        )
        if [shape for _, shape in ours] != [shape for _, shape in theirs]:
            break
        names |= {own: other for (own, _), (other, _) in zip(ours, theirs, strict=True)}
    if len(names) == len(layout):
        return names
    raise FixConfig(
        f"the model described has {layout_words(wanted)}; the messages hold "
        f"{layout_words(layout)}: mend the encoding (columns, or values of a one-hot block) or "
        "hidden, or name the arrays in model.wire_names"
    )


def _silent(recording: Recording, names: Mapping[str, str]) -> tuple[str, ...]:
    silent = [c for c in recording.clients if c not in names]
    if not silent or not names:  # nothing is scored, and nobody expects it
        return ()
    return (
        f"No records were given of {len(silent)} of {len(recording.clients)} clients, so nothing "
        f"is scored for them: {', '.join(silent)}.",
    )


def _own_scales(ready: Plan) -> tuple[str, ...]:
    """What clients that scale their secrets by themselves tell of them."""
    own = ready.told.own.values() if isinstance(ready.told, Recipe) else ()
    blocks = [b for encoding in own for b in encoding.blocks if not isinstance(b, OneHot)]
    scaled = {b.column for b in blocks if (b.shift, b.scale) != (0.0, 1.0)}
    secrets = [c for domain in ready.attributes.values() for c in domain.columns if c in scaled]
    if not secrets:
        return ()
    return (
        f"Each client scaled {', '.join(dict.fromkeys(secrets))} by its own mean and deviation, of "
        "which the adversary is told as of the rest of the training: they say how common each "
        "value is among its records.",
    )


def _clear(recording: Recording, names: Mapping[str, str], remarks: tuple[str, ...]) -> InTheClear:
    """What was sent in the clear, by the new names, and our own remarks."""
    said = in_the_clear(recording)
    values = {
        what: {names.get(c, c): told for c, told in clients.items()}
        for what, clients in said.values.items()
    }
    return InTheClear((*said.notes, *remarks), values)

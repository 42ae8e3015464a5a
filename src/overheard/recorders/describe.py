"""With what no listener hears, a recording of any federation becomes one that can be audited.

The records of the clients (or of some), how they become the model's inputs, the model, the local
update rule, the secrets to ask about stand in one TOML file beside the recording. `describe` writes
the side knowledge and truth that follow from it, and leaves the messages where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from overheard.data.dataset import Dataset, together
from overheard.data.file import NOBODYS, read_table
from overheard.errors import FixConfig
from overheard.federation.federation import Federation, NetworkSettings, SoughtProperty
from overheard.federation.plan import Plan, load_data, plan, write_knowledge
from overheard.federation.reading import HELD_OUT, written
from overheard.federation.secrets import Properties, PropertySecret, apart
from overheard.federation.simulate import client_shards, trained_on
from overheard.programs.recipe import Recipe
from overheard.programs.records import OneHot, Records
from overheard.programs.trusted import granted, trust
from overheard.recorders.template import recorded_model, sent_layout, undescribed
from overheard.transcript.kind import write
from overheard.transcript.messages import releases_arrays
from overheard.transcript.store import Recording, SideHeader, SideWriter
from overheard.transcript.view import InTheClear, in_the_clear


def as_file(description: Federation, remarks: Iterable[str]) -> bytes:
    """The description as `read_config` reads it, after remarks as comments."""
    content = description.model_dump(exclude_defaults=True)
    content["model"] = {"name": description.model.name, **content["model"]}
    if "optimiser" in content.get("training", ()):  # whole: its name is the default of its kind
        content["training"]["optimiser"] = description.training.optimiser.model_dump()
    return written(content, remarks)


def describe(
    recording: Recording, description: Federation, out: str | Path, trust_code: bool = False
) -> tuple[str, ...]:
    """Write what the description says to ``out``, as ``side/`` and ``truth/`` of the recording,
    which is read together with them (`Recording.described_in`) and not written to. Clients get the
    names that the table has. Returns what the auditor should know, which is among the notes too."""
    undescribed(recording)
    if description.trains() == releases_arrays(recording.payload):
        releases = "releases of a program that trains no network"
        holds = releases if description.trains() else "models of a network"
        raise FixConfig(
            f"{recording.path}: holds {holds}, and [model] describes the other kind: name the "
            "program (such as xgboost), or record with the payload that it is"
        )
    for code in description.model.code() if not trust_code else ():
        granted(code, "the model is made by")  # refused before anything is read
    dataset = load_data(description)
    names, ready = settled(recording, description, dataset, trust_code)
    if names:
        ready = _recorded(ready, set(names.values()))
    if isinstance(ready.program, Recipe):
        client_shards(ready.recipe, trained_on(ready))  # what does not fit the encoding is refused
    if (asked := description.property) is not None:
        ready = replace(ready, properties=_properties(recording, asked, ready, names))
    if not names:
        ready = replace(ready, clients={}, attributes={})
    elif description.audit.non_members:
        among = _only(dataset, set(names.values()))
        ready = replace(ready, outsiders=_outsiders(among, ready))
    clients = [names.get(c, c) for c in recording.clients]
    about = {**recording.about, "data": dataset.name, "origin": dataset.origin, "clients": clients}
    remarks = _remarks(recording, names, ready)
    if first := description.audit.rounds:
        remarks = (*remarks, f"Only the first rounds are audited ({first}): audit.rounds says so.")
    header = SideHeader(messages=recording.digest, names=names, about=about)
    with SideWriter(Path(out), header) as writer:
        write_knowledge(writer, ready)
        if (seed := recording.seed) is not None:
            writer.seed(seed)
        write(writer, _clear(recording, names, remarks))
    return remarks


def covered(recording: Recording, description: Federation) -> Recording:
    """What is described of it: all rounds, or the first."""
    return replace(recording, rounds=recording.rounds[: description.audit.rounds or None])


def settled(
    recording: Recording, description: Federation, dataset: Dataset, trust_code: bool = False
) -> tuple[dict[str, str], Plan]:
    """The table's name of each recorded client that is in it, and the federation as it is
    described, with all clients of the table."""
    for code in description.model.code() if trust_code else ():
        trust(code)
    names, trained = _who_trained(recording, description, dataset)
    # clients that were never recorded have a part in the scales that all of them share
    shared = trained if description.data.scale == "recorded" else dataset
    # a number is one input, as it was before anybody asked about it
    shared = replace(shared, ordinal=frozenset(shared.records.columns))
    asked, layout = description.model, recording.rounds[0].layout
    if not isinstance(asked, NetworkSettings):
        return names, plan(description, shared)
    ready = plan(
        description, shared, lambda *how: recorded_model(asked, sent_layout(recording), *how)
    )
    types = {dtype for name, dtype, _ in layout if name not in ready.recipe.model.idle}
    if not types <= {"F16", "F32", "F64"}:
        raise FixConfig(
            f"the messages hold arrays of {', '.join(sorted(types))}; only float16, float32 "
            "and float64 models (and bfloat16, which is recorded as float32) can be audited"
        )
    precision = "float64" if types == {"F64"} else "float32"
    return names, replace(ready, program=ready.recipe.model_copy(update={"precision": precision}))


def _who_trained(
    recording: Recording, description: Federation, dataset: Dataset
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


def _outsiders(dataset: Dataset, ready: Plan) -> Records:
    """People who are no client's, and whom what is public tells from everybody."""
    config, held = ready.config, ready.config.data.held_out
    columns = tuple(next(iter(ready.clients.values())).columns)
    if config.audit.non_members != HELD_OUT:
        found = _table(config, config.audit.non_members, columns)
    elif held is None:
        raise FixConfig('audit.non_members = "held out": data.held_out does not say who that is')
    else:
        found = dataset.split(held)[1].only(columns)
    alone = [c for c, domain in ready.attributes.items() if not domain.parts]
    left = apart(found, ready.clients.values(), alone)
    if not len(left):
        raise FixConfig(
            f"audit.non_members: each of the {len(found)} agrees with somebody else in everything "
            "public; name a table of other people"
        )
    return left


def _table(description: Federation, path: str, columns: tuple[str, ...]) -> Records:
    """These columns of a table that is written like that of the clients' records."""
    return read_table(description.data, path, columns)[0].only(columns)


def _properties(
    recording: Recording, asked: SoughtProperty, ready: Plan, names: Mapping[str, str]
) -> Properties:
    """What is looked for among the clients, as the simulator has it of its own."""
    if not asked.record and not asked.behaviour:
        raise FixConfig("[property]: give a record whose holders are looked for, or a behaviour")
    if asked.shard_size is None or isinstance(asked.positives, int):
        raise FixConfig(
            "[property]: give shard_size, how many records each client holds, and as positives the "
            "names of clients, if they are known"
        )
    needed = (*ready.recipe.encoding.columns(), ready.recipe.target.column)
    auxiliary = ready.auxiliary if names else ready.dataset.records.only(needed)
    if asked.auxiliary:
        auxiliary = _table(ready.config, asked.auxiliary, needed)
    if auxiliary is None:
        raise FixConfig("property.auxiliary: name a table of records like the clients'")
    _refuse_absent("property.positives", asked.positives or (), recording.clients, "the recording")
    positives = None if asked.positives is None else tuple(names.get(c, c) for c in asked.positives)
    wanted = _table(ready.config, asked.record, needed) if asked.record else Records({})
    records = [wanted.take(np.array([k])) for k in range(len(wanted))]
    secrets = [PropertySecret(positives, "", one, k) for k, one in enumerate(records)]
    if asked.behaviour:
        secrets.append(PropertySecret(positives, asked.behaviour))
    clients = tuple(names.get(c, c) for c in recording.clients)
    return Properties(clients, tuple(secrets), auxiliary, asked.shard_size)


def _names(recording: Recording, description: Federation, dataset: Dataset) -> dict[str, str]:
    """The table's name of each recorded client of whom there are records."""
    there = dataset.by_client()
    given = description.clients
    _refuse_absent("clients", given, recording.clients, "the recording")
    where = f"column {dataset.client!r} of the table"
    _refuse_absent("clients", given.values(), there, where)
    names = {c: given.get(c, c) for c in recording.clients}
    names = {c: name for c, name in names.items() if name in there}
    if not names:
        raise FixConfig(
            f"no client of the recording ({', '.join(recording.clients)}) is in {where} "
            f"({', '.join(there)}); say in [clients] who is who"
        )
    if len(set(names.values())) < len(names):
        raise FixConfig("clients: two clients of the recording have one name in the table")
    return names


def _refuse_absent(key: str, given: Iterable[str], there: Iterable[str], where: str) -> None:
    for name in given:
        if name not in there:
            raise FixConfig(f"{key}: {name!r} is not in {where}; it has {', '.join(there)}")


def _only(dataset: Dataset, names: set[str]) -> Dataset:
    """The records of these clients; those of others were not trained on."""
    kept = {name: records for name, records in dataset.by_client().items() if name in names}
    columns = together(*kept.values()).columns
    who = np.concatenate([np.full(len(records), name) for name, records in kept.items()])
    return replace(dataset, records=Records({**columns, dataset.client: who}))


def _recorded(ready: Plan, names: set[str]) -> Plan:
    """The federation without those of its clients that were never recorded."""
    ready = replace(ready, clients={c: r for c, r in ready.clients.items() if c in names})
    if isinstance(ready.program, Recipe):
        own = {c: encoding for c, encoding in ready.program.own.items() if c in names}
        ready = replace(ready, program=ready.program.model_copy(update={"own": own}))
    return ready


def _remarks(recording: Recording, names: Mapping[str, str], ready: Plan) -> tuple[str, ...]:
    """What the auditor should know of the description."""
    found: list[str] = []
    silent = [c for c in recording.clients if c not in names]
    if silent and names:  # without any nothing is scored, and nobody expects it
        found.append(
            f"No records were given of {len(silent)} of {len(recording.clients)} clients, so "
            f"nothing is scored for them: {', '.join(silent)}."
        )
    own = ready.program.own.values() if isinstance(ready.program, Recipe) else ()
    blocks = [b for encoding in own for b in encoding.blocks if not isinstance(b, OneHot)]
    scaled = {b.column for b in blocks if (b.shift, b.scale) != (0.0, 1.0)}
    secrets = [c for domain in ready.attributes.values() for c in domain.columns if c in scaled]
    if secrets:
        found.append(
            f"Each client scaled {', '.join(dict.fromkeys(secrets))} by its own mean and "
            "deviation, of which the adversary is told as of the rest of the training: they say "
            "how common each value is among its records."
        )
    if others := ready.config.audit.also_fits:
        found.append(f"These descriptions fit as well: {'; '.join(others)}.")
    return tuple(found)


def _clear(recording: Recording, names: Mapping[str, str], remarks: tuple[str, ...]) -> InTheClear:
    """What was sent in the clear, by the new names, and our own remarks."""
    clear = in_the_clear(recording)
    values = {
        what: {names.get(c, c): one for c, one in clients.items()}
        for what, clients in clear.values.items()
    }
    return InTheClear((*clear.notes, *remarks), values)

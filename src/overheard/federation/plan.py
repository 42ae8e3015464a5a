"""A federation that is ready to run: its clients' records, what they do, and what may be known.

`plan` settles encoding, model and secrets from a description and its data; `write_knowledge` writes
down, for every target of the audit, what may be known of it: for each there is a `Disclosure`, out
of which every kind of knowledge makes its own piece. The secrets themselves go to ``truth/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data import source
from overheard.data.dataset import OF_FILES, Data, Dataset, domain_of
from overheard.errors import FixConfig, FixData
from overheard.federation import secrets
from overheard.federation.defences.contract import Chain, applied, chain
from overheard.federation.federation import Federation, NetworkSettings
from overheard.federation.reading import checked
from overheard.federation.secrets import Properties
from overheard.foreign.limits import check
from overheard.programs.program import Program, Settings, family_named
from overheard.programs.recipe import Dense, LeNet, LocalUpdate, Module, Recipe, Target
from overheard.programs.records import Codes, Encoding, OneHot, Pixels, Records, Scaled, Value
from overheard.randomness import stream
from overheard.transcript import knowledge
from overheard.transcript.kind import Disclosure, Piece, kinds, write
from overheard.transcript.messages import check_client
from overheard.transcript.store import MEMBER_COLUMN, SideWriter
from overheard.transcript.target import LABEL, attribute, client_property, membership

Network = Dense | LeNet | Module
Architect = Callable[[Encoding, int], Network]
"""Makes the network of so many outputs."""


@dataclass(frozen=True)
class Plan:
    """A federation that is ready to run. ``attributes``: what each secret is called, to its values.

    ``label``: what who asks about labels is given, if anybody does: groups, and records from
    elsewhere. ``auxiliary``: records that no client holds, for who asks about an attribute.
    ``properties``: what is asked of each client as a whole, and who has it.
    """

    config: Federation
    dataset: Dataset
    program: Recipe | Program
    clients: dict[str, Records]
    attributes: dict[str, knowledge.AttributeDomain]
    label: tuple[Piece, ...] | None = None
    outsiders: Records | None = None
    auxiliary: Records | None = None
    properties: Properties | None = None

    @property
    def recipe(self) -> Recipe:
        """The recipe, for who can deal with networks only."""
        self.config.network()  # or refuse
        assert isinstance(self.program, Recipe)
        return self.program


def plan(
    config: Federation, dataset: Dataset | None = None, architect: Architect | None = None
) -> Plan:
    """Load the data (or take the given dataset) and settle encoding, model and recipe.

    Scales are those of the pooled records, unless ``data.scale`` says otherwise. Columns of
    zeros and ones stay as they are, text columns become one-hot blocks. ``architect``: makes the
    network in place of the one that the settings name.
    """
    check("rounds", config.training.rounds, "training.rounds", FixConfig)
    dataset = dataset or load_data(config)
    wanted = config.audit.attributes
    asked = dataset.sensitive if wanted is None else wanted
    for column in secrets.columns_of(asked):
        if column not in dataset.inputs():
            raise FixConfig(
                f"attribute {column!r} is not an input; choose from {', '.join(dataset.inputs())}"
            )
    whole = dataset
    if config.data.held_out is not None:
        dataset, _ = dataset.split(config.data.held_out)
    label, trained = _label_secret(config, dataset)
    alone = [secret for secret in asked if isinstance(secret, str)]
    others, trained = secrets.outsiders_of(trained, alone, config.audit.membership, config.seed)
    clients = secrets.known_first(trained.by_client(), config.audit.coverage, config.seed)
    check("clients", len(clients), "the data", FixConfig)
    check("participations", len(clients) * config.training.rounds, "the federation", FixConfig)
    for client in clients:
        check_client(client)
    auxiliary, dataset = dataset.outside, dataset.population()
    properties = None
    if config.property is not None and config.training.rounds:
        properties, clients = secrets.settle(config.property, clients, auxiliary, config.seed)
    if _class_asked(config, dataset):
        asked = (*asked, dataset.target)
    attributes = secrets.domains(dataset.records, asked, config.audit.bins)
    values = {
        column: domain_of(dataset.records, column)
        for column in secrets.columns_of(asked)
        if column not in attributes or not attributes[column].spread
    }
    seen = _seen(chain(*config.defence), dataset, config.seed)
    usual = encoding_for(seen, values, config.data, seen.records, whole.records)
    for domain in attributes.values():
        secrets.refuse_function_of_public(seen, usual, domain)
    target = _target(dataset, config.data.scale != "none")
    program: Recipe | Program
    if isinstance(config.model, Settings):
        program = _program(config, config.model, usual, target, seen.records)
    else:
        own = {}
        if config.data.scale == "clients" and not config.encoding:
            every, mine = whole.by_client(), seen.by_client()
            own = {c: encoding_for(seen, values, config.data, mine[c], every[c]) for c in clients}
        program = _recipe(config, *_own_terms(config, usual, target), architect, own)
        if config.training.isolate and config.training.isolate not in clients:
            raise FixConfig(
                f"training.isolate names {config.training.isolate!r}; the clients are "
                f"{', '.join(clients)}"
            )
    listed = {block.column for block in program.encoding.blocks if isinstance(block, OneHot)}
    if binned := [c for c in listed if c in attributes and attributes[c].spread]:
        raise FixConfig(
            f"attribute {binned[0]!r} is cut into bins, but the encoding lists its values one by "
            "one; give it as one scaled number, or leave audit.bins out if it has few values"
        )
    return Plan(config, dataset, program, clients, attributes, label, others, auxiliary, properties)


def _class_asked(config: Federation, dataset: Dataset) -> bool:
    """Whether a label is asked about that is one of several classes: that is an attribute."""
    return config.audit.label and dataset.task == "classification"


def _own_terms(config: Federation, encoding: Encoding, target: Target) -> tuple[Encoding, Target]:
    """Encoding and target: the usual ones, unless the description gives others."""
    if config.encoding:
        encoding = Encoding(blocks=config.encoding)
    if (given := config.target) is not None:
        classes = given.classes or target.classes
        target = Target(column=target.column, classes=classes, shift=given.shift, scale=given.scale)
    return encoding, target


def _program(
    config: Federation, asked: Settings, encoding: Encoding, target: Target, records: Records
) -> Program:
    """What clients do that train no network."""
    defence = chain(*config.defence)
    if asked.labels_as_they_are:
        target = target.model_copy(update={"shift": 0.0, "scale": 1.0})
    terms = _own_terms(config, encoding, target)
    made = family_named(asked.name).planned(defence.program(asked), *terms, records)
    if defence.summing is not None:
        made.summed(1)  # or refuse
    return made


def _recipe(
    config: Federation,
    encoding: Encoding,
    target: Target,
    architect: Architect | None,
    own: dict[str, Encoding],
) -> Recipe:
    """How the clients train a network."""
    training, defence, wanted = config.training, chain(*config.defence), config.network()
    for part in defence.parts:
        if part.hooks() == ("program",):
            raise FixConfig(
                f"defence {part.name!r} is about programs that train no network, and model "
                f"{wanted.name!r} is one: leave it out"
            )
    if wanted.name == "linear" and target.classes:
        raise FixConfig("model 'linear' predicts a number but the target is a class; use logistic")
    if wanted.name == "logistic" and not target.classes:
        raise FixConfig(
            f"model 'logistic' predicts a class but the target {target.column!r} is a number; if "
            'its values are classes (0 and 1, say), set task = "classification" in [data]; for a '
            "number use linear"
        )
    loss = training.loss or ("cross_entropy" if target.classes else "squared_error")
    outputs = len(target.classes) if len(target.classes) > 2 else 1
    model = (architect or partial(_network, wanted))(encoding, outputs)
    check("parameters", model.size, "the model", FixConfig)
    private = defence.step(len(target.classes)).private
    parts = {"model": model, "loss": loss, "encoding": encoding, "target": target, "own": own}
    local = {name: getattr(training, name) for name in (*LocalUpdate.model_fields, "precision")}
    recipe = checked(Recipe, {**local, **parts, "private": private})
    if recipe.proximal and not recipe.pull:
        raise FixConfig("training.proximal belongs to algorithm = 'fedprox'")
    if not recipe.plain and (recipe.sends_gradient or recipe.private is not None):
        raise FixConfig(
            "training.optimiser and training.clip_norm are about a client's own steps; leave them "
            "out where clients send one gradient (fedsgd) or take private steps (dp_sgd)"
        )
    return recipe


def _seen(defence: Chain, dataset: Dataset, seed: int) -> Dataset:
    """The dataset as the model sees it, once the defences have changed the records."""
    records = dataset.records.without(dataset.client)
    left = defence.records(records, stream(seed, "records")).columns
    if dataset.target not in left:
        raise FixConfig(f"the defences take the target {dataset.target!r} away; leave it there")
    if len(left) == 1:
        raise FixConfig("the defences leave the model nothing to see; keep a column")
    clients = {dataset.client: dataset.records[dataset.client]}
    return replace(dataset, records=Records({**clients, **left}))


def _network(wanted: NetworkSettings, encoding: Encoding, outputs: int) -> Network:
    """The architecture; a LeNet's sizes are those of kerkouche2023 unless they are given."""
    if wanted.factory:
        from overheard.programs.layers import described  # torch: only where it is needed

        return described(wanted.factory, encoding.width, outputs, wanted.shape)
    if wanted.name != "lenet":
        return Dense(
            inputs=encoding.width,
            hidden=wanted.hidden,
            outputs=outputs,
            activation=wanted.activation,
        )
    match encoding.blocks:
        case (Pixels(shape=shape),) if min(shape[1:]) >= 16:
            grey = shape[0] == 1
        case _:
            raise FixConfig(
                "model 'lenet' takes one image of at least 16 x 16 pixels; this source gives "
                f"{', '.join(encoding.columns())}: use a source of images, such as digits_images"
            )
    if outputs < 2:
        raise FixConfig("model 'lenet' tells classes apart, at least three of them")
    return LeNet(
        image=shape,
        filters=wanted.filters or ((10, 20) if grey else (6, 16)),
        hidden=wanted.hidden or ((50,) if grey else (120, 84)),
        dropout=(0.5 if grey else 0.0) if wanted.dropout is None else wanted.dropout,
        outputs=outputs,
    )


def _label_secret(config: Federation, dataset: Dataset) -> tuple[tuple[Piece, ...] | None, Dataset]:
    """What is asked about labels, and the dataset without the records kept for the adversary."""
    asked = config.audit
    if not asked.label or (_class_asked(config, dataset) and not asked.group):
        if asked.group or asked.auxiliary:
            raise FixConfig("audit.group and audit.auxiliary belong to audit.label = true")
        return None, dataset
    if dataset.task == "classification":
        raise FixConfig(
            f"audit.label asks about numbers and {dataset.target!r} is a class; leave it out"
        )
    if asked.group and asked.group not in dataset.inputs():
        known = ", ".join(dataset.inputs())
        raise FixConfig(f"audit.group {asked.group!r} is not an input; choose from {known}")
    groups: tuple[Piece, ...] = ()
    if asked.group:
        groups = (knowledge.Groups(asked.group, domain_of(dataset.records, asked.group)),)
    if not asked.auxiliary:
        return groups, dataset
    count = asked.auxiliary
    order = stream(config.seed, "auxiliary").permutation(len(dataset.records))
    auxiliary, kept = secrets.kept_out(dataset, order[:count], "audit.auxiliary", count)
    return (*_auxiliary(auxiliary, dataset.target), *groups), kept


def load_data(config: Federation) -> Dataset:
    """The dataset that is named. A table need not say whose records it has where a recording is
    asked about a property alone."""
    data, options = config.data, config.data.options
    nobodys = config.property is not None and not config.training.rounds
    if data.source == "file":
        if not (data.path and data.target and (data.client or nobodys)):
            raise FixConfig("data source 'file' needs path, client and target in [data]")
        sensitive = secrets.columns_of(config.audit.attributes or ())
        options = {**options, "how": data, "sensitive": sensitive}
    elif data.source in source.sources() and (given := [k for k in OF_FILES if getattr(data, k)]):
        raise FixConfig(
            f"data.{given[0]} belongs to source = 'file'; {data.source!r} settles it by itself"
        )
    return source.load(data.source, **options)


def encoding_for(
    dataset: Dataset, asked: dict[str, tuple[Value, ...]], how: Data, fit: Records, listed: Records
) -> Encoding:
    """The usual encoding of a table; attributes under audit with two numbers stay one input, and so
    do those of more that the dataset calls ordinal.

    ``asked``: those whose values are known one by one; numbers cut into bins are none of them.
    Everybody's or one client's are ``fit``, the records by which numbers are scaled, and
    ``listed``, those whose texts are given codes.
    """

    def spread(values: NDArray[Any], few: bool = False) -> dict[str, Any]:
        if how.scale == "none" or (few and not how.every):
            return {}
        return dict(zip(("shift", "scale"), _spread(values), strict=True))

    blocks: list[Pixels | Codes | OneHot | Scaled] = []
    for column in dataset.inputs():
        values, domain = dataset.records[column], asked.get(column, ())
        if column in dataset.images:
            shape = dataset.images[column]
            blocks.append(Pixels(column=column, shape=shape, **spread(fit[column])))
        elif values.dtype.kind != "f" and how.text == "codes":
            known = Codes(column=column, values=tuple(sorted(set(listed[column].tolist()))))
            blocks.append(known.model_copy(update=spread(known.places(fit[column]), few=True)))
        elif values.dtype.kind != "f" or (len(domain) > 2 and column not in dataset.ordinal):
            one_hot = domain or tuple(sorted(set(values.tolist())))
            blocks.append(OneHot(column=column, values=one_hot))
        else:
            few = 0 < len(domain) <= 2 or bool(np.isin(values, (0.0, 1.0)).all())
            blocks.append(Scaled(column=column, **spread(fit[column], few)))
    return Encoding(blocks=tuple(blocks))


def _spread(values: NDArray[Any]) -> tuple[float, float]:
    """Mean and standard deviation, the latter 1 for a column that does not vary."""
    if not values.min() < values.max():
        return float(values[:1].mean()), 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        shift, scale = float(values.mean()), float(values.std())
    if np.isfinite(scale) and scale > 0:
        return shift, scale
    # squares of such numbers leave the range of float64: measured in units of the largest
    unit = float(np.abs(values).max())
    shares = values / unit
    return float(shares.mean() * unit), float(max(shares.std() * unit, np.spacing(0.0)))


def _target(dataset: Dataset, scaled: bool = True) -> Target:
    values = dataset.records[dataset.target]
    if len(set(values.tolist())) < 2:
        raise FixData(
            f"target {dataset.target!r} is constant ({values[0]}): there is nothing to learn; "
            "choose another target"
        )
    if dataset.task == "classification":
        return Target(column=dataset.target, classes=tuple(sorted(set(values.tolist()))))
    if values.dtype.kind not in "biuf":
        raise FixConfig(f"target {dataset.target!r} holds text; use task = 'classification' for it")
    shift, scale = _spread(values) if scaled else (0.0, 1.0)
    return Target(column=dataset.target, shift=shift, scale=scale)


def write_knowledge(writer: SideWriter, plan: Plan) -> None:
    """Write truth and, for every target of the audit, the side knowledge that leaves it out."""
    if plan.clients:
        writer.truth(plan.clients)
    write(writer, knowledge.ClientProgram(plan.program))
    if (how := plan.config.training.shuffle) is not None:
        order = knowledge.BatchOrder((how.seed,), (how.convention,))
        write(writer, dict.fromkeys(plan.clients, order))
    for world, answers in _disclosures(plan):
        for kind in kinds().values():
            if (piece := kind.disclosed(world)) is not None:
                write(writer, piece, world.target.key)
        if answers:
            writer.truth(answers, world.target.asked.truth, world.target.key)
    if claims := chain(*plan.config.defence).claims:
        write(writer, applied(claims))


def _disclosures(plan: Plan) -> Iterator[tuple[Disclosure, Mapping[str, Records]]]:
    """What can be disclosed to whoever asks each target of the plan; and, for evaluation only, the
    answers that are not in the clients' records."""
    label, seed, share = plan.program.target.column, plan.config.seed, plan.config.audit.coverage
    base = Disclosure(LABEL, plan.program, plan.clients, plan.dataset.records)
    counts = {c: secrets.known_count(len(r), share) for c, r in plan.clients.items()}
    known = {c: r.take(np.arange(counts[c])) for c, r in plan.clients.items()}
    for domain in plan.attributes.values():
        target, hidden = attribute(*domain.columns), frozenset(domain.columns)
        given = (domain, *_auxiliary(plan.auxiliary, label))
        yield replace(base, target=target, known=known, hidden=hidden, given=given), {}
    if (others := plan.outsiders) is not None:
        pools = {c: secrets.pool_of(r, others, c, seed) for c, r in plan.clients.items()}
        alone = [c for c, d in plan.attributes.items() if not d.parts and c != label]
        for column in alone or [""]:
            unknown = (column,) * bool(column)
            candidates = {
                c: knowledge.CandidatePool.split(pool.without(MEMBER_COLUMN, *unknown), label)
                for c, pool in pools.items()
            }
            given = (candidates, *(plan.attributes[name] for name in unknown))
            answers = {c: pool.only((MEMBER_COLUMN, *unknown)) for c, pool in pools.items()}
            yield replace(base, target=membership(column), given=given), answers
    if plan.label is not None:
        hidden = frozenset({label})
        yield replace(base, known=plan.clients, hidden=hidden, given=plan.label), {}
    if (sought := plan.properties) is not None:
        common = (*_auxiliary(sought.auxiliary, label), knowledge.ShardSize(sought.shard))
        for secret in sought.secrets:
            if secret.record is not None:
                looked_for: Piece = knowledge.TargetRecord.split(secret.record, label)
            else:
                looked_for = knowledge.SuspectedBehaviour(secret.behaviour)
            target, given = client_property(secret.column), (*common, looked_for)
            yield replace(base, target=target, given=given), sought.holders(secret)


def _auxiliary(records: Records | None, label: str) -> tuple[Piece, ...]:
    return () if records is None else (knowledge.AuxiliaryData.split(records, label),)

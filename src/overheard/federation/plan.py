"""From a config to everything a simulation needs: recipe, clients, secrets to ask about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data import source
from overheard.data.dataset import Dataset, domain_of
from overheard.errors import FixConfig, FixData
from overheard.federation.attributes import columns_of, domains, refuse_function_of_public
from overheard.federation.defences.contract import Chain, chain
from overheard.federation.federation import DataConfig, Federation, ModelConfig
from overheard.federation.pool import kept_out, known_first, strangers
from overheard.federation.properties import Properties, settle
from overheard.foreign.limits import check
from overheard.programs.program import Program, Settings, family_named
from overheard.programs.recipe import Dense, LeNet, LocalUpdate, Loss, Module, Recipe, Target
from overheard.programs.records import (
    AnyBlock,
    Codes,
    Encoding,
    OneHot,
    Pixels,
    Records,
    Scaled,
    Value,
)
from overheard.randomness import stream
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.messages import check_client


@dataclass(frozen=True)
class LabelSecret:
    """What the adversary who asks about labels is given: groups and records from elsewhere."""

    group: str
    values: tuple[Value, ...]
    auxiliary: Records | None


@dataclass(frozen=True)
class Plan:
    """A federation that is ready to run. ``attributes``: what each secret is called, to its values.

    ``auxiliary``: records that no client holds, for who asks about an attribute.
    ``properties``: what is asked of each client as a whole, and who has it.
    """

    config: Federation
    dataset: Dataset
    told: Recipe | Program
    clients: dict[str, Records]
    attributes: dict[str, AttributeDomain]
    label: LabelSecret | None = None
    strangers: Records | None = None
    auxiliary: Records | None = None
    properties: Properties | None = None

    @property
    def recipe(self) -> Recipe:
        """The recipe, for who can deal with networks only."""
        self.config.network()  # or refuse
        assert isinstance(self.told, Recipe)
        return self.told


def plan(config: Federation, dataset: Dataset | None = None) -> Plan:
    """Load the data (or take the given dataset) and settle encoding, model and recipe.

    Scales are those of the pooled records, unless ``data.scale`` says otherwise. Columns of
    zeros and ones stay as they are, text columns become one-hot blocks.
    """
    check("rounds", config.training.rounds, "training.rounds", FixConfig)
    dataset = dataset or load_data(config)
    wanted = config.audit.attributes
    secrets = dataset.sensitive if wanted is None else wanted
    for column in columns_of(secrets):
        if column not in dataset.inputs():
            raise FixConfig(
                f"attribute {column!r} is not an input; choose from {', '.join(dataset.inputs())}"
            )
    whole = dataset
    if config.data.held_out is not None:
        dataset = dataset.trained(config.data.held_out)
    label, trained = _label_secret(config, dataset)
    alone = [secret for secret in secrets if isinstance(secret, str)]
    outsiders, trained = strangers(trained, alone, config.audit.membership, config.seed)
    clients = known_first(trained.by_client(), config.audit.coverage, config.seed)
    check("clients", len(clients), "the data", FixConfig)
    check("participations", len(clients) * config.training.rounds, "the federation", FixConfig)
    for client in clients:
        check_client(client)
    auxiliary, dataset = dataset.outside, dataset.population()
    properties = None
    if config.property is not None:
        properties, clients = settle(config.property, clients, auxiliary, config.seed)
    if _class_asked(config, dataset):
        secrets = (*secrets, dataset.target)
    attributes = domains(dataset.records, secrets, config.audit.bins)
    listed = [c for c in columns_of(secrets) if c not in attributes or not attributes[c].spread]
    values = {c: domain_of(dataset.records, c) for c in listed}
    seen = _seen(chain(*config.defence), dataset, config.seed)
    encoding = encoding_for(seen, values, config.data, seen.records, whole.records)
    for domain in attributes.values():
        refuse_function_of_public(seen, encoding, domain)
    target = _target(dataset, config.data.scale != "none")
    told: Recipe | Program
    if isinstance(config.model, Settings):
        told = _program(config, config.model, encoding, target, seen.records)
    else:
        told = _recipe(config, encoding, target, tuple(clients))
    if isinstance(told, Recipe) and config.data.scale == "clients":
        every = whole.by_client()
        own = {
            c: encoding_for(seen, values, config.data, mine, every[c])
            for c, mine in seen.by_client().items()
            if c in clients
        }
        told = told.model_copy(update={"own": own})
    return Plan(config, dataset, told, clients, attributes, label, outsiders, auxiliary, properties)


def _class_asked(config: Federation, dataset: Dataset) -> bool:
    """Whether a label is asked about that is one of a program's classes: that is an attribute."""
    program = isinstance(config.model, Settings)
    return config.audit.label and dataset.task == "classification" and program


def _program(
    config: Federation, asked: Settings, encoding: Encoding, target: Target, records: Records
) -> Program:
    """What clients do that train no network; refuses settings that only networks have."""
    usual = {name: field.default for name, field in type(config.training).model_fields.items()}
    said = {name for name, value in config.training if value != usual[name]}
    given = said - {"rounds", "participation"}
    others = {
        'data.scale = "clients"': config.data.scale == "clients",
        "training." + " and training.".join(sorted(given)): given,
        "[server]": config.server,
        "[property]": config.property,
    }
    if wrong := [name for name, setting in others.items() if setting]:
        raise FixConfig(
            f"{wrong[0]} is about networks, and model {asked.name!r} trains none: leave it out"
        )
    defence = chain(*config.defence)
    made = family_named(asked.name).planned(defence.program(asked), encoding, target, records)
    if defence.summing is not None:
        made.summed(1)  # or refuse
    return made


def _recipe(
    config: Federation, encoding: Encoding, target: Target, clients: tuple[str, ...]
) -> Recipe:
    """How the clients train a network."""
    training, defence = config.training, chain(*config.defence)
    for part in defence.parts:
        if part.hooks() == ("program",):
            raise FixConfig(
                f"defence {part.name!r} is about programs that train no network, and model "
                f"{config.model.name!r} is one: leave it out"
            )
    assert training.learning_rate is not None  # checked by the config
    loss, outputs = _loss(config, target)
    if training.steps and (not training.batch_size or training.epochs != 1):
        raise FixConfig("steps counts mini-batches: set batch_size and leave epochs out")
    if training.isolate and training.isolate not in clients:
        raise FixConfig(
            f"training.isolate names {training.isolate!r}; the clients are {', '.join(clients)}"
        )
    model = _model(config.network(), encoding, outputs)
    check("parameters", model.size, "the model", FixConfig)
    recipe = Recipe(
        model=model,
        loss=loss,
        encoding=encoding,
        target=target,
        private=defence.step(len(target.classes)).private,
        wire=training.wire,
        **{name: getattr(training, name) for name in LocalUpdate.model_fields},
    )
    if recipe.sends_gradient and (recipe.epochs != 1 or recipe.batch_size):
        raise FixConfig("fedsgd sends one full-batch gradient; leave epochs and batch_size out")
    if training.shuffle is not None and recipe.full_batch:
        raise FixConfig("training.shuffle is about the order of mini-batches: set batch_size")
    if recipe.proximal and not recipe.pull:
        raise FixConfig("proximal belongs to algorithm = 'fedprox'")
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


def _model(wanted: ModelConfig, encoding: Encoding, outputs: int) -> Dense | LeNet | Module:
    """The architecture; a LeNet's sizes are those of kerkouche2023 unless they are given."""
    if wanted.name not in ("mlp", "lenet") and wanted.hidden:
        raise FixConfig(f"model {wanted.name!r} has no hidden layers; use name = 'mlp'")
    if wanted.name == "mlp" and not wanted.hidden:
        raise FixConfig("model 'mlp' needs hidden layers, for example hidden = [64]")
    if (wanted.name == "module") != bool(wanted.factory):
        raise FixConfig('model.factory ("package.module:function") belongs to name = "module"')
    if wanted.name != "lenet" and (wanted.filters is not None or wanted.dropout is not None):
        raise FixConfig("model.filters and model.dropout belong to name = 'lenet'")
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


def _label_secret(config: Federation, dataset: Dataset) -> tuple[LabelSecret | None, Dataset]:
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
    values = domain_of(dataset.records, asked.group) if asked.group else ()
    if not asked.auxiliary:
        return LabelSecret(asked.group, values, None), dataset
    count = asked.auxiliary
    order = stream(config.seed, "auxiliary").permutation(len(dataset.records))
    auxiliary, kept = kept_out(dataset, order[:count], "audit.auxiliary", count)
    return LabelSecret(asked.group, values, auxiliary), kept


FILE_ONLY = tuple("path client target task drop categories missing encoding separator".split())
"""Settings of ``[data]`` that are about a table of the user's own."""


def load_data(config: Federation, nobodys: bool = False) -> Dataset:
    """The dataset that the config names; ``nobodys``: a table need not say whose records it has."""
    data = config.data
    options = dict(data.options)
    if data.source == "file":
        if not (data.path and data.target and (data.client or nobodys)):
            raise FixConfig("data source 'file' needs path, client and target in [data]")
        options |= {key: getattr(data, key) for key in FILE_ONLY}
        options["sensitive"] = columns_of(config.audit.attributes or ())
    elif data.source in source.sources():
        for key in FILE_ONLY:
            if getattr(data, key):
                raise FixConfig(
                    f"data.{key} belongs to source = 'file'; {data.source!r} settles it by itself"
                )
    return source.load(data.source, **options)


def encoding_for(
    dataset: Dataset,
    attributes: dict[str, tuple[Value, ...]],
    how: DataConfig,
    fit: Records,
    listed: Records,
) -> Encoding:
    """The usual encoding of a table; attributes under audit with two numbers stay one input, and so
    do those of more that the dataset calls ordinal.

    ``attributes``: those whose values are known one by one; numbers cut into bins are none of them.
    Everybody's or one client's are ``fit``, the records by which numbers are scaled, and
    ``listed``, those whose texts are given codes.
    """

    def spread(values: NDArray[Any], few: bool = False) -> dict[str, Any]:
        if how.scale == "none" or (few and not how.every):
            return {}
        return dict(zip(("shift", "scale"), _spread(values), strict=True))

    blocks: list[AnyBlock] = []
    for column in dataset.inputs():
        values, domain = dataset.records[column], attributes.get(column, ())
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


def _loss(config: Federation, target: Target) -> tuple[Loss, int]:
    name = config.network().name
    if name == "linear" and target.classes:
        raise FixConfig("model 'linear' predicts a number but the target is a class; use logistic")
    if name == "logistic" and not target.classes:
        raise FixConfig(
            f"model 'logistic' predicts a class but the target {target.column!r} is a number; if "
            'its values are classes (0 and 1, say), set task = "classification" in [data]; for a '
            "number use linear"
        )
    if not target.classes:
        return "squared_error", 1
    return "cross_entropy", 1 if len(target.classes) == 2 else len(target.classes)

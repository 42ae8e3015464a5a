"""What does a recording show of its description? The model, and a file to fill in.

A network is known by the names and shapes of its arrays in the messages. A torch module of the
user's own that is dense layers one after the other becomes our network, which is quick: with the
same parameters both must give the same outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from itertools import pairwise, product
from math import isqrt
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from overheard.errors import FixConfig
from overheard.federation.federation import Federation, NetworkSettings
from overheard.federation.reading import checked
from overheard.files import write_durably
from overheard.foreign.shown import command, visible
from overheard.programs import trusted
from overheard.programs.families.newton import FAMILIES
from overheard.programs.networks import DenseNetwork
from overheard.programs.recipe import Dense, Layout, Module
from overheard.programs.records import Encoding
from overheard.programs.trees import read_model
from overheard.transcript.messages import releases_arrays, returns_gradients
from overheard.transcript.store import Recording

BESIDE = "audit.toml"
_ACTIVATIONS = ("relu", "tanh", "sigmoid")


def write_template(run: str | Path) -> Path:
    """Write ``audit.toml`` into the recording's folder; an existing one is kept."""
    recording = undescribed(Recording.open(run))
    layout, file = sent_layout(recording), recording.path / BESIDE
    network = not releases_arrays(recording.payload)
    dense = dense_of([shape for _, shape in layout]) if network else None
    source = (resources.files(__package__) / "audit.toml.j2").read_text("utf-8")
    template = jinja2.Template(source, trim_blocks=True, keep_trailing_newline=True)
    known = {"run": str(run), "file": str(file), "layout": layout, "recording": recording}
    text = template.render(known, network=network, dense=dense, visible=visible)
    write_durably(file, [text.encode()])
    return file


def undescribed(recording: Recording) -> Recording:
    """The recording, if there is something to describe."""
    if recording.side("ClientProgram"):
        raise FixConfig(
            f"{recording.path}: describes itself already; audit it without a TOML file: "
            f"`{command('audit', recording.path, '--out', f'{recording.path}-audit')}`"
        )
    if not recording.rounds:
        raise FixConfig(f"{recording.path}: no round was recorded; there is nothing to describe")
    return recording


def sent_layout(recording: Recording) -> Layout:
    """Names and shapes of the arrays in the messages."""
    return tuple((name, tuple(shape)) for name, _, shape in recording.rounds[0].layout)


def recorded_model(
    described: NetworkSettings, layout: Layout, encoding: Encoding, outputs: int
) -> Dense | Module:
    """The network that is described, with its names in the messages of this layout."""
    if not described.factory:
        if described.name == "lenet":
            raise FixConfig("model 'lenet' is simulated; give a recorded one as a factory")
        sizes = {"inputs": encoding.width, "hidden": described.hidden, "outputs": outputs}
        bias = any(len(shape) == 1 for _, shape in layout)
        how = {**sizes, "activation": described.activation, "bias": bias}
        names = described.sent_names or _in_order(Dense.model_validate(how), layout)
        return checked(Dense, {**how, "sent_names": names}, at="model.")
    made = model_of(described.factory, layout)
    if isinstance(made, Dense):
        return made
    from overheard.programs.layers import described as tried  # torch: only where it is needed

    shape = described.shape or image_of(layout, encoding.width)
    module = tried(described.factory, encoding.width, outputs, shape)
    return module.model_copy(update={name: getattr(made, name) for name in ("sent_names", "idle")})


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
        "hidden, or name the arrays in model.sent_names"
    )


def model_of(factory: str, layout: Layout) -> Dense | Module:
    """The model that ``package.module:function`` makes, with its names in the messages.

    Dense layers one after the other are known by their sizes, and quick; any other module is used
    as it is. ``layout``: the arrays in the messages, which must be the module's. To import a module
    is to run it: nothing is imported that is not trusted.
    """
    module = trusted.made_by(factory)
    parameters = trusted.trained(module)
    own, state, theirs = [name for name, _ in parameters], list(module.state_dict()), dict(layout)
    named = {name: name for name in own}
    if not set(own) <= set(theirs) <= {*own, *state}:
        # lists without names: all of the module's state in its order, or what is trained of it
        listed = state if len(state) == len(layout) else own
        named = dict(zip(listed, theirs, strict=False)) if len(listed) == len(layout) else {}
    sent = [named[name] for name in own if name in named]
    if [theirs[name] for name in sent] != [shape for _, shape in parameters]:
        raise FixConfig(
            f"model.factory {factory!r} makes {layout_words(parameters)}, but the messages hold "
            f"{layout_words(layout)}: this is not the model that was trained"
        )
    plain = _dense(module, parameters)
    if plain is None:
        idle = tuple(name for name in theirs if name not in sent)
        return Module(
            factory=factory, inputs=1, parameters=parameters, idle=idle,
            sent_names=dict(zip(own, sent, strict=True)),
        )  # fmt: skip
    names = {ours: name for (ours, _), name in zip(plain.layout(), sent, strict=True)}
    return plain.model_copy(update={"sent_names": names})


def image_of(layout: Layout, inputs: int) -> tuple[int, ...]:
    """The square image that so many inputs are to a model that has a convolution; else nothing."""
    channels = next((shape[1] for _, shape in layout if len(shape) == 4), 0)
    side = isqrt(inputs // channels) if channels else 0
    return (channels, side, side) if channels and channels * side**2 == inputs else ()


def _dense(module: Any, parameters: Layout) -> Dense | None:
    """Dense layers that give what the module gives, with the activation by which they do, where
    there are such."""
    shapes = [shape for _, shape in parameters]
    plain = dense_of(shapes)
    frozen = len(shapes) < len(list(module.parameters()))
    if plain is None or frozen or [s for _, s in plain.layout()] != shapes:
        return None
    import torch

    module = module.double().eval()
    inputs = np.random.default_rng(0).normal(size=(32, plain.inputs))
    try:
        with torch.no_grad():
            outputs = np.asarray(module(torch.as_tensor(inputs))).reshape(len(inputs), -1)
    except (RuntimeError, TypeError, ValueError):
        return None  # it takes something else than rows of numbers
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    theta = np.asarray(flat.numpy(), dtype=np.float64)
    for name in _ACTIVATIONS:
        model = plain.model_copy(update={"activation": name})
        ours = DenseNetwork(model, "squared_error").predict(theta, inputs)
        if ours.shape == outputs.shape and np.allclose(ours, outputs, rtol=1e-8, atol=1e-10):
            return model
    return None


def dense_of(shapes: list[tuple[int, ...]]) -> Dense | None:
    """Dense layers one after the other with arrays of these shapes, whatever their order within a
    layer; None if they are not that."""
    weights = [shape for shape in shapes if len(shape) == 2]
    biases = [shape for shape in shapes if len(shape) == 1]
    chained = all(a[0] == b[1] for a, b in pairwise(weights))
    whole = len(weights) + len(biases) == len(shapes)
    if not weights or not chained or not whole or biases not in ([], [(w[0],) for w in weights]):
        return None
    sizes = (weights[0][1], *(w[0] for w in weights))
    if min(sizes) < 1:
        return None
    return Dense(inputs=sizes[0], hidden=sizes[1:-1], outputs=sizes[-1], bias=bool(biases))


def layout_words(layout: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """Names and shapes, for an error."""
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in layout)


def possible(recording: Recording, given: Mapping[str, Any]) -> Iterator[tuple[str, Federation]]:
    """Descriptions that a recording may have, each in words: the program, where no network is
    trained, how texts may be coded and columns scaled, whether the label is a class, how it is
    scaled, loss and activation. ``given``: what is known."""
    layout, data = sent_layout(recording), given["data"]
    training: dict[str, Any] = {"learning_rate": 1e-3}
    models: dict[str, dict[str, Any]] = {"": {}}
    scales: tuple[str, ...] = ("records", "recorded", "clients", "none")
    if releases_arrays(recording.payload):
        training, models, scales = {}, dict(_programs(recording)), ("none", *scales[:2])
    elif "model" not in given:
        dense = dense_of([shape for _, shape in layout])
        if dense is None or dense.hidden:
            mlp = {"name": "mlp", "hidden": dense and dense.hidden}
            models = {one: {**mlp, "activation": one} for one in _ACTIVATIONS if dense}
    if not models:
        raise FixConfig(
            f"the messages hold {layout_words(layout)}, which nothing tried sends: give --model "
            '"package.module:function", or fill in what `overheard init` writes without --data'
        )
    if returns_gradients(recording.payload):
        training = {"learning_rate": 1.0, "algorithm": "fedsgd"}
    tasks = (data["task"],) if data.get("task") else ("classification", "regression")
    both = (False, True)
    ways = product(models.items(), tasks, scales, both, ("one_hot", "codes"), both, both)
    for (name, model), task, scale, every, text, plain, other in ways:
        number = bool(training) and task == "regression"
        odd = other and not number and "model" not in given  # modules alone end in a sigmoid
        if odd or (plain and not number) or (every and scale == "none"):
            continue
        loss = ("huber" if number else "binary_cross_entropy") if other else None
        how = {"task": task, "scale": scale, "every": every, "text": text}
        model = model or {"name": "linear" if task == "regression" else "logistic"}
        content = {"model": model, **given, "data": {**data, **how}}
        content["training"] = {**training, "loss": loss} if training else {}
        content |= {"target": {"shift": 0.0, "scale": 1.0}} if plain else {}
        how |= {"target": plain and "as it is", "loss": loss or False}
        how["model"] = name or model["name"]
        about = ", ".join(f"{k} = {v}" for k, v in how.items() if v not in (False, "one_hot"))
        yield about, Federation.model_validate(content)


def _programs(recording: Recording) -> Iterator[tuple[str, dict[str, Any]]]:
    """The [model] of programs that send what the recording holds, by their arrays; in words."""
    observed = [(s, b) for c in recording.clients for _, s, b in recording.releases(c)]
    arrays = {name: array for _, returned in observed for name, array in returned.items()}
    if {"gradient", "hessian"} <= arrays.keys():
        names = {"coefficients": next(iter(observed[0][0]))}
        for likelihood, place in product(FAMILIES, ("first", True, False)):
            one = {"likelihood": likelihood, "intercept": place, "sent_names": names}
            yield f"newton ({likelihood}, intercept {place})", {"name": "newton", **one}
    elif all(array.dtype == np.uint8 for array in arrays.values()):
        models = [read_model(next(iter(b.values())).tobytes(), "a model") for _, b in observed]
        grown = min(models, key=lambda model: len(model.trees))
        count = len(grown.trees) // (grown.groups * grown.parallel)
        whole = any(len(model.trees) > len(grown.trees) for model in models)
        one = {"aggregation": "cyclic" if whole else "bagging", "objective": grown.objective,
               "max_depth": max(t.depth for m in models for t in m.trees),
               "num_parallel_tree": grown.parallel, "local_rounds": count}  # fmt: skip
        for eta in (0.3, 0.1, 0.05, 0.01, 0.2, 0.5, 1.0):
            yield f"xgboost ({eta = })", {"name": "xgboost", "eta": eta, **one}
    else:  # FLARE's: statistic/data set/column
        parts = [(*name.split("/"), name) for name in arrays if name.count("/") == 2]
        for group in dict.fromkeys(of for kind, of, *_ in parts if kind in ("sum", "histogram")):
            counts = {p: arrays[p[3]].sum() for p in parts if p[:2] == ("histogram", group)}
            tables, names, edges = [], {}, {}
            # a range of counts that leaves values out is not described
            full = [p for p, count in counts.items() if count == max(counts.values())]
            own = (p for p in parts if p[:2] == ("sum", group) or p in full)
            for place, (kind, _, column, name) in enumerate(own):
                total = kind == "sum"
                tables.append({"kind": "sum", "of": column} if total else {"by": [column]})
                names[f"{place}.{'numbers' if total else 'counts'}"] = name
                if f"{name}/edges" in arrays:
                    edges[column] = arrays[f"{name}/edges"][1:-1].tolist()
            one = {"tables": tables, "sent_names": names, "bins": edges}
            yield f"statistics of {group!r}", {"name": "statistics", "decimals": 4, **one}

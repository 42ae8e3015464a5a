"""A user's own torch module as data: which names its parameters have in the messages.

And whether it is dense layers one after the other, which are quick: our network with the same
parameters must then give the same outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import isqrt
from typing import Any

import numpy as np

from overheard.errors import FixConfig
from overheard.programs import trusted
from overheard.programs.networks import DenseNetwork
from overheard.programs.recipe import Dense, Layout, Module

_ACTIVATIONS = ("relu", "tanh", "sigmoid")


def model_of(factory: str, layout: Layout, trust_code: bool) -> Dense | Module:
    """The model that ``package.module:function`` makes, with its names in the messages.

    Dense layers one after the other are known by their sizes, and quick; any other module is used
    as it is. ``layout``: the arrays in the messages, which must be the module's. Nothing is
    imported unless ``trust_code``: to import a module is to run it.
    """
    if trust_code:
        trusted.trust(factory)
    module = trusted.made_by(factory)
    parameters = trusted.trained(module)
    own, state, theirs = [name for name, _ in parameters], list(module.state_dict()), dict(layout)
    named = {name: name for name in own}
    if not set(own) <= set(theirs) <= {*own, *state}:
        # lists without names: all of the module's state in its order, or what is trained of it
        listed = state if len(state) == len(layout) else own
        named = dict(zip(listed, theirs, strict=False)) if len(listed) == len(layout) else {}
    wire = [named[name] for name in own if name in named]
    if [theirs[name] for name in wire] != [shape for _, shape in parameters]:
        raise FixConfig(
            f"model.factory {factory!r} makes {layout_words(parameters)}, but the messages hold "
            f"{layout_words(layout)}: this is not the model that was trained"
        )
    plain = _dense(module, parameters)
    if plain is None:
        idle = tuple(name for name in theirs if name not in wire)
        return Module(
            factory=factory, inputs=1, parameters=parameters, idle=idle,
            wire_names=dict(zip(own, wire, strict=True)),
        )  # fmt: skip
    names = {ours: name for (ours, _), name in zip(plain.layout(), wire, strict=True)}
    return plain.model_copy(update={"wire_names": names})


def image_of(layout: Layout, inputs: int) -> tuple[int, ...]:
    """The square image that so many inputs are to a model that has a convolution; else nothing."""
    channels = next((shape[1] for _, shape in layout if len(shape) == 4), 0)
    side = isqrt(inputs // channels) if channels else 0
    return (channels, side, side) if channels and channels * side**2 == inputs else ()


def _dense(module: Any, parameters: Layout) -> Dense | None:
    """Dense layers that give what the module gives, where there are such."""
    shapes = [shape for _, shape in parameters]
    plain = dense_of(shapes)
    frozen = len(shapes) < len(list(module.parameters()))
    if plain is None or frozen or [s for _, s in plain.layout()] != shapes:
        return None
    return _activated(module, plain)


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


def _activated(module: Any, plain: Dense) -> Dense | None:
    """Our network with the activation by which it gives what the module gives."""
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


def layout_words(layout: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """Names and shapes, for an error."""
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in layout)

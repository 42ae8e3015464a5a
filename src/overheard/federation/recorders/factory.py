"""A user's own torch module as data: which dense layers, which activation, which names.

Attacks know dense networks by sizes and activation, so the module is asked once what it is, and the
answer is checked: our network with the same parameters must give the same outputs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from overheard.errors import FixConfig, GrantKnowledge
from overheard.learning.dense import predict
from overheard.learning.recipe import Dense, Layout
from overheard.programs.trusted import imported, module_of

_ACTIVATIONS = ("relu", "tanh", "sigmoid")


def dense_of(factory: str, layout: Layout, trust_code: bool) -> Dense:
    """The dense network that ``package.module:function`` makes, with its names in the messages.

    ``layout``: the arrays in the messages, which must be the module's. Nothing is imported unless
    ``trust_code``: to import a module is to run it.
    """
    if not trust_code:
        raise GrantKnowledge(
            f"model.factory {factory!r} is code, and importing it runs it; say --trust-code if "
            "you trust whoever wrote it, or describe the model by name and sizes"
        )
    module = module_of(factory, imported(factory))
    parameters = [(n, tuple(p.shape)) for n, p in module.named_parameters()]
    theirs = dict(layout)
    if {name for name, _ in parameters} == set(theirs):
        wire = [name for name, _ in parameters]
    elif len(parameters) == len(layout):
        wire = [name for name, _ in layout]  # lists without names: in the module's order
    else:
        wire = []
    shapes = [shape for _, shape in parameters]
    if not wire or [theirs[name] for name in wire] != shapes:
        raise FixConfig(
            f"model.factory {factory!r} makes {_words(parameters)}, but the messages hold "
            f"{_words(list(layout))}: this is not the model that was trained"
        )
    sizes = _sizes(factory, parameters)
    bias = len(parameters) == 2 * (len(sizes) - 1)
    plain = Dense(inputs=sizes[0], hidden=sizes[1:-1], outputs=sizes[-1], bias=bias)
    names = {ours: name for (ours, _), name in zip(plain.layout(), wire, strict=True)}
    activation = _activation(factory, module, plain)
    return plain.model_copy(update={"wire_names": names, "activation": activation})


def _sizes(factory: str, parameters: list[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """Inputs, hidden widths and outputs, if the parameters are those of dense layers."""
    weights = [shape for _, shape in parameters if len(shape) == 2]
    biases = [shape for _, shape in parameters if len(shape) == 1]
    chained = all(a[0] == b[1] for a, b in pairwise(weights))
    expected = [s for w in weights for s in ((w, (w[0],)) if biases else (w,))]
    if not weights or not chained or expected != [shape for _, shape in parameters]:
        raise FixConfig(
            f"model.factory {factory!r} makes {_words(parameters)}; only dense layers one after "
            "the other, weight before bias, are understood so far"
        )
    return (weights[0][1], *(w[0] for w in weights))


def _activation(factory: str, module: Any, plain: Dense) -> str:
    """The activation with which our network gives what the module gives."""
    import torch

    from overheard.learning.torch_model import flat_parameters

    module = module.double().eval()
    inputs = np.random.default_rng(0).normal(size=(32, plain.inputs))
    try:
        with torch.no_grad():
            outputs = np.asarray(module(torch.as_tensor(inputs))).reshape(len(inputs), -1)
    except (RuntimeError, TypeError, ValueError) as error:
        raise FixConfig(
            f"model.factory {factory!r}: the module does not take {plain.inputs} numbers a record: "
            f"{error}"
        ) from error
    theta = flat_parameters(module)
    for name in _ACTIVATIONS:
        model = plain.model_copy(update={"activation": name})
        ours = predict(model, theta, inputs)
        if ours.shape == outputs.shape and np.allclose(ours, outputs, rtol=1e-8, atol=1e-10):
            return name
    raise FixConfig(
        f"model.factory {factory!r}: the module's outputs are not those of dense layers with "
        f"{', '.join(_ACTIVATIONS)} between them and nothing after the last (logits, not "
        "probabilities); other modules are not understood so far"
    )


def _words(layout: list[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in layout)

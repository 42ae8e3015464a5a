"""Any torch module: gradients by autograd, record by record by vmap over grad.

The general kernel, of which the others are fast paths. A module that treats the records of a batch
together (batch normalisation in training mode) has no gradient of one record; it says so in
``mixes``, and decoders then ask what swapping a record does to the whole training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from overheard.errors import FixConfig
from overheard.programs.gradient_rows import GradientRows, Written
from overheard.programs.losses import loss_named
from overheard.programs.networks import Gradient, clipped, each, searched
from overheard.programs.recipe import Module, named
from overheard.programs.trusted import made_by, trained
from overheard.randomness import stream

Array = NDArray[np.floating[Any]]
CHUNK = 64
"""Records that are differentiated in one call of vmap: more is slower and takes more memory."""
_MIXING = (nn.modules.batchnorm._BatchNorm,)
_DRAWING = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)


class ModuleNetwork:
    """See `overheard.programs.networks.Network`."""

    factored = False

    def __init__(self, model: Module, loss: str) -> None:
        self.model, self.loss = model, loss_named(loss)
        self.module = made_by(model.factory)
        parts = [*self.module.named_parameters(), *self.module.named_buffers()]
        self.still = [(n, part.detach()) for n, part in parts if n not in dict(model.parameters)]
        drawing = [m for m in self.module.modules() if isinstance(m, _DRAWING)]
        self.chance = any(getattr(m, "p", 0) or getattr(m, "dropout", 0) for m in drawing)
        self.mixes = any(isinstance(m, _MIXING) for m in self.module.modules())

    def initial(self, seed: int, scheme: str) -> NDArray[np.float64]:
        """The module's own start (``uniform``), or zeros."""
        if scheme == "zeros":
            return np.zeros(self.model.size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(stream(seed, "initial model").integers(2**63)))
            fresh = made_by(self.model.factory)
        start = dict(fresh.named_parameters())
        flat = torch.cat([start[name].detach().reshape(-1) for name, _ in self.model.parameters])
        return np.asarray(flat.double().numpy())

    def predict(self, theta: Array, inputs: Array) -> Array:
        def one(flat: Array, records: Array) -> Array:
            self.module.eval()
            with torch.no_grad():
                made = self.outputs(tensor(flat), tensor(records, flat.dtype))
            return np.asarray(made.numpy())

        return each(one, theta, inputs)

    def gradient(
        self, theta: Array, rng: np.random.Generator, clip: float | None = None
    ) -> Gradient:
        if clip is not None:
            return clipped(self, theta, rng, clip)

        def at(inputs: Array, labels: Array, weights: Array) -> Array:
            self.module.train()
            made = np.empty_like(theta)
            for client, one in enumerate(theta):
                used = np.flatnonzero(weights[client])
                if not len(used):
                    made[client] = 0
                    continue
                flat = tensor(one).requires_grad_()
                x, y = tensor(inputs[client][used], theta.dtype), tensor(labels[client][used])
                with self._drawn(rng):
                    losses = self.loss.of_tensors(self.outputs(flat, x), y)
                total = (losses * tensor(weights[client][used], theta.dtype)).sum()
                made[client] = torch.autograd.grad(total, flat)[0].numpy()
            return made

        return at

    def rows(
        self, theta: Array, inputs: Array, labels: Array, rng: np.random.Generator | None = None
    ) -> GradientRows:
        self.module.train(rng is not None and not self.mixes)

        def one(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
            made: Tensor = self.loss.of_tensors(self.outputs(flat, x[None]), y[None])
            return made[0]

        each = vmap(grad(one), in_dims=(None, 0, 0), randomness="different")
        flat, x = tensor(theta), tensor(inputs, theta.dtype)
        y = tensor(np.asarray(labels))
        made = []
        with self._drawn(rng):
            for begin in range(0, len(x), CHUNK):
                part = slice(begin, begin + CHUNK)
                made.append(each(flat, x[part], y[part]).detach().numpy())
        return GradientRows((Written(np.concatenate(made), 0),))

    def mean_gradients(self, thetas: Tensor, inputs: Tensor, labels: Tensor) -> Any:
        self.module.eval()

        def outputs(flats: Tensor, records: Tensor) -> Tensor:
            return torch.stack([self.outputs(flat, records) for flat in flats])

        return searched(outputs, self.loss, thetas, inputs, labels)

    def outputs(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """The module's outputs (n, outputs) at flat parameters, of inputs (n, d)."""
        parts = named(self.model.parameters, flat)
        # what is not trained: copies, so that no call leaves a trace in the module
        parts |= {
            n: b.to(flat.dtype) if b.is_floating_point() else b.clone() for n, b in self.still
        }
        shaped = inputs.reshape(len(inputs), *self.model.shape) if self.model.shape else inputs
        made: Tensor = functional_call(self.module, parts, (shaped,))
        return made.reshape(len(inputs), -1)

    @contextmanager
    def _drawn(self, rng: np.random.Generator | None) -> Iterator[None]:
        """Torch's own draws, from the numpy generator."""
        with torch.random.fork_rng(devices=[]):
            if rng is not None and self.chance:
                torch.manual_seed(int(rng.integers(2**63)))
            yield


def tensor(array: Array, dtype: Any = None) -> Tensor:
    """A tensor of the array's or the given precision; shares memory where it can."""
    made = np.ascontiguousarray(array, dtype=dtype)
    return torch.from_numpy(made if made.flags.writeable else made.copy())


def described(factory: str, inputs: int, outputs: int, shape: tuple[int, ...] = ()) -> Module:
    """The module that a trusted factory makes, as data; tried on one record."""
    module = made_by(factory)
    layout = trained(module)
    if shape and int(np.prod(shape)) != inputs:
        raise FixConfig(f"model.shape {shape} does not hold the {inputs} inputs of a record")
    record = torch.zeros((2, *(shape or (inputs,))), dtype=torch.float32)
    try:
        with torch.no_grad():
            made = module.float().eval()(record).reshape(2, -1)
    except (RuntimeError, TypeError, ValueError) as error:
        raise FixConfig(
            f"model.factory {factory!r}: the module does not take {inputs} numbers a record "
            f"(as {shape or (inputs,)}): {error}"
        ) from error
    if made.shape[1] != outputs:
        raise FixConfig(
            f"model.factory {factory!r}: the module gives {made.shape[1]} numbers a record where "
            f"the task needs {outputs}"
        )
    return Module(factory=factory, inputs=inputs, outputs=outputs, parameters=layout, shape=shape)

"""Any torch module: gradients by autograd, record by record by vmap over grad.

The general kernel, of which the others are fast paths. A module that treats the records of a batch
together (batch normalisation in training mode) has no gradient of one record; it says so in
``mixes``, and decoders then ask what swapping a record does to the whole training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from overheard.errors import FixConfig
from overheard.programs.gradient_rows import GradientRows, Written
from overheard.programs.losses import loss_named
from overheard.programs.networks import Gradient, clipped, searched
from overheard.programs.recipe import Module
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
        self.shapes = [(name, shape) for name, shape in model.parameters]
        parts = [*self.module.named_parameters(), *self.module.named_buffers()]
        self.still = [(n, part.detach()) for n, part in parts if n not in dict(self.shapes)]
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
        flat = torch.cat([start[name].detach().reshape(-1) for name, _ in self.shapes])
        return np.asarray(flat.double().numpy())

    def predict(self, theta: Array, inputs: Array) -> Array:
        if theta.ndim > 1:
            data = np.broadcast_to(inputs, (*theta.shape[:-1], *inputs.shape[-2:]))
            flat = data.reshape(-1, *data.shape[-2:])
            made = [self.predict(t, x) for t, x in zip(_flat(theta), flat, strict=True)]
            return np.stack(made).reshape(*theta.shape[:-1], *made[0].shape)
        if inputs.ndim > 2:
            made = [self.predict(theta, x) for x in inputs.reshape(-1, *inputs.shape[-2:])]
            return np.stack(made).reshape(*inputs.shape[:-1], -1)
        self.module.eval()
        with torch.no_grad():
            return np.asarray(self.outputs(_tensor(theta), _tensor(inputs, theta.dtype)).numpy())

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
                flat = _tensor(one).requires_grad_()
                x, y = _tensor(inputs[client][used], theta.dtype), _tensor(labels[client][used])
                with self._drawn(rng):
                    losses = self.loss.of_tensors(self.outputs(flat, x), y)
                total = (losses * _tensor(weights[client][used], theta.dtype)).sum()
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
        flat, x = _tensor(theta), _tensor(inputs, theta.dtype)
        y = _tensor(np.asarray(labels))
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
        pieces = torch.split(flat, [int(np.prod(shape)) for _, shape in self.shapes])
        named = {n: p.reshape(s) for (n, s), p in zip(self.shapes, pieces, strict=True)}
        # what is not trained: copies, so that no call leaves a trace in the module
        named |= {
            n: b.to(flat.dtype) if b.is_floating_point() else b.clone() for n, b in self.still
        }
        shaped = inputs.reshape(len(inputs), *self.model.shape) if self.model.shape else inputs
        made: Tensor = functional_call(self.module, named, (shaped,))
        return made.reshape(len(inputs), -1)

    def _drawn(self, rng: np.random.Generator | None) -> Any:
        """Torch's own draws, from the numpy generator."""
        if rng is None or not self.chance:
            return torch.random.fork_rng(devices=[], enabled=False)
        fork = torch.random.fork_rng(devices=[])
        seed = int(rng.integers(2**63))
        return _Seeded(fork, seed)


class _Seeded:
    def __init__(self, fork: Any, seed: int) -> None:
        self.fork, self.seed = fork, seed

    def __enter__(self) -> None:
        self.fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *what: Any) -> None:
        self.fork.__exit__(*what)


def _flat(theta: Array) -> Array:
    return theta.reshape(-1, theta.shape[-1])


def _tensor(array: Array, dtype: Any = None) -> Tensor:
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

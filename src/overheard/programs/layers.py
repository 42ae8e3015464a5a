"""Any torch module as a client's network: gradients of single records, layer by layer.

Gradients of single records come from one forward and one backward pass, in which every layer's
inputs and errors (the loss differentiated by the layer's outputs) are kept. What they make of a
layer's parameters is a *kernel*: a function

    kernel(layer, inputs (n, ...), errors (n, ...)) -> Outer | Written | None

registered in `KERNELS` under the name of the layer's class: an outer product for a dense layer
(`Outer`), the product of unfolded patches and errors for a convolution, written-out rows for norms
(Goodfellow 2015; Rochette et al. 2019). Whatever has no kernel, or whose kernel answers None, is
differentiated record by record, by vmap over grad: slower, and always right. A kernel is a fast
path of that, and is held against it on three records before it is used on a module of somebody
else's, which may use a layer's weights a second time or move the records from the first axis.

A layer of your own, here a dense one on fixed features ``x U'``, is one function more. Without it
the rows are the same, written out:

    >>> class OnFeatures(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.register_buffer("features", torch.eye(3, 5))
    ...         self.weight = nn.Parameter(torch.ones(2, 3))
    ...     def forward(self, x):
    ...         return x @ self.features.T @ self.weight.T
    >>> def on_features(layer, inputs, errors):
    ...     return Outer(errors.numpy(), (inputs @ layer.features.to(inputs).T).numpy(), bias=False)
    >>> from overheard.programs import trusted
    >>> trusted.imported, _ = (lambda name: OnFeatures), trusted.trust("yours:OnFeatures")
    >>> layout = trusted.trained(OnFeatures())
    >>> model = Module(factory="yours:OnFeatures", inputs=5, outputs=2, parameters=layout)
    >>> at = np.ones(6), np.arange(20.0).reshape(4, 5), np.zeros(4)
    >>> slow = LayeredNetwork(model, "cross_entropy").rows(*at)
    >>> KERNELS[OnFeatures] = on_features
    >>> fast = LayeredNetwork(model, "cross_entropy").rows(*at)
    >>> [type(rows.layers[0]).__name__ for rows in (slow, fast)]
    ['Written', 'Outer']
    >>> bool(np.allclose(slow.explicit(), fast.explicit()))
    True

A module that treats the records of a batch together (batch normalisation in training mode) has no
gradient of one record; it says so in ``mixes``, and decoders then ask what swapping a record does
to the whole training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig, needs
from overheard.programs.gradient_rows import GradientRows, Outer, Written, stacked
from overheard.programs.losses import loss_named
from overheard.programs.networks import Gradient, initial
from overheard.programs.recipe import Dense, LeNet, Module, pieces
from overheard.programs.trusted import made_by, trained
from overheard.randomness import stream

with needs("torch"):
    import torch
    from torch import Tensor, nn
    from torch.func import functional_call, grad, vmap
    from torch.nn import functional as F

Array = NDArray[np.floating[Any]]
Layer = Outer | Written
Kernel = Callable[[Any, Tensor, Tensor], Layer | None]
Parts = dict[str, Tensor]
"""Parameters by the module's names."""
CHUNK = 100
"""Records in one pass; a convolution's patches are about 30,000 numbers a record."""
CLIENTS = 50
"""Clients whose own models are trained in one call of vmap."""
_MIXING = (nn.modules.batchnorm._BatchNorm,)
_DRAWING = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)
_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
_AGREE = 1e-4  # of the largest entry, by which a kernel may differ from vmap over grad (float32)


# Kernels: what a layer's inputs and errors make of its parameters, its weight and then its bias.


def linear(layer: nn.Linear, inputs: Tensor, errors: Tensor) -> Layer:
    """An outer product; where a record has several positions (n, T, in), their sum."""
    return _products(errors, inputs, layer.bias is not None)


def conv2d(layer: nn.Conv2d, inputs: Tensor, errors: Tensor) -> Layer | None:
    """A dense layer at every position, whose inputs are the patch of the image that it sees."""
    if layer.groups > 1 or isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        return None
    patches = F.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    positions = errors.flatten(2).transpose(1, 2)
    return _products(positions, patches.transpose(1, 2), layer.bias is not None)


def embedding(layer: nn.Embedding, inputs: Tensor, errors: Tensor) -> Layer | None:
    """A dense layer whose inputs are indicators, the other way round: (values, width)."""
    if layer.padding_idx is not None or layer.max_norm is not None or layer.scale_grad_by_freq:
        return None
    return _products(F.one_hot(inputs, layer.num_embeddings).to(errors), errors, bias=False)


def layer_norm(layer: Any, inputs: Tensor, errors: Tensor) -> Written:
    """The error times the normalised input, summed over what stands before the last axes."""
    products = errors * F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    shape = (len(inputs), -1, layer.weight.numel())
    scale, shift = (each.reshape(shape).sum(dim=1) for each in (products, errors))
    return _written(scale[:, :, None], None if layer.bias is None else shift)


def group_norm(layer: nn.GroupNorm, inputs: Tensor, errors: Tensor) -> Written:
    """The same, channel by channel: summed over what stands after them."""
    products = errors * F.group_norm(inputs, layer.num_groups, eps=layer.eps)
    shape = (len(inputs), layer.num_channels, -1)
    scale, shift = (each.reshape(shape).sum(dim=2) for each in (products, errors))
    return _written(scale[:, :, None], shift)


KERNELS: dict[type[nn.Module], Kernel] = {
    nn.Linear: linear,
    nn.Conv2d: conv2d,
    nn.Embedding: embedding,
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
}
"""A new layer is one function, registered here by its class."""


def _products(errors: Tensor, inputs: Tensor, bias: bool) -> Layer:
    """Products of errors ([n, T,] out) and inputs ([n, T,] in), summed over the positions T."""
    if inputs.ndim == 2:
        return Outer(errors.numpy(), inputs.numpy(), bias)
    errors, inputs = errors.flatten(1, -2), inputs.flatten(1, -2)
    return _written(errors.transpose(1, 2) @ inputs, errors.sum(dim=1) if bias else None)


def _written(weights: Tensor, biases: Tensor | None) -> Written:
    """Rows of weights (n, out, in) and biases (n, out)."""
    parts = [weights.flatten(1)] if biases is None else [weights.flatten(1), biases]
    return Written(torch.cat(parts, dim=1).numpy(), weights.shape[1], biases is not None)


class LayeredNetwork:
    """A torch module and a loss. Parameters are flat vectors (..., P) in the order of the layout.

    random: does a forward pass draw random numbers (dropout)? mixes: do the records of a batch
    change each other's outputs (batch normalisation)? factored: is a record's gradient by every
    layer an outer product, by the first one with its inputs, so that it need not be asked?
    """

    factored = False

    def __init__(self, model: Dense | LeNet | Module, loss: str) -> None:
        self.model, self.loss = model, loss_named(loss)
        self.module = module = module_of(model)
        self.foreign = self._untried = isinstance(model, Module)
        trained = model.parameters if isinstance(model, Module) else module.named_parameters()
        self.names = [name for name, _ in trained]
        self.shape = model.shape if isinstance(model, Module) else ()
        parts = [*module.named_parameters(), *module.named_buffers()]
        self.still = [(n, part.detach()) for n, part in parts if n not in self.names]
        drawing = [m for m in module.modules() if isinstance(m, _DRAWING)]
        self.random = any(getattr(m, "p", 0) or getattr(m, "dropout", 0) for m in drawing)
        self.mixes = any(isinstance(m, _MIXING) for m in module.modules())
        self._layers: dict[nn.Module, list[str]] = {}  # that have a kernel, and their parameters
        for prefix, layer in module.named_modules():
            inside = [n for n, _ in layer.named_parameters(prefix, recurse=False)]
            if inside and type(layer) in KERNELS and set(inside) <= set(self.names):
                self._layers[layer] = inside

    def initial(self, seed: int, scheme: str) -> NDArray[np.float64]:
        """The first global model: the module's own start (``uniform``), or zeros."""
        if not isinstance(self.model, Module) or scheme == "zeros":
            return initial(self.model, seed, scheme)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(stream(seed, "initial model").integers(2**63)))
            start = dict(made_by(self.model.factory).named_parameters())
        flat = torch.cat([start[name].detach().reshape(-1) for name in self.names])
        return np.asarray(flat.double().numpy())

    def predict(self, theta: Array, inputs: Array) -> Array:
        """Outputs (..., n, outputs) without dropout, for theta (P,) or (C, P)."""
        self.module.eval()
        lead, made = np.broadcast_shapes(theta.shape[:-1], inputs.shape[:-2]), []
        models = np.broadcast_to(theta, (*lead, theta.shape[-1]))
        records = np.broadcast_to(inputs, (*lead, *inputs.shape[-2:]))
        for at in np.ndindex(lead):
            parts, x = self._named(tensor(models[at])), tensor(records[at], theta.dtype)
            with torch.no_grad():
                chunks = [self._outputs(parts, chunk) for chunk in torch.split(x, CHUNK)]
            made.append(torch.cat(chunks).numpy())
        return np.stack(made).reshape(*lead, inputs.shape[-2], -1)

    def gradient(
        self, theta: Array, rng: np.random.Generator, clip: float | None = None
    ) -> Gradient:
        """Weighted sums of gradients at the models (C, P) that ``theta`` holds when it is called;
        with ``clip`` every record's gradient is scaled down to that norm first (DP-SGD).

        The array that is returned may be overwritten by the next call. Layers of our own are
        batched over clients by vmap; a module of somebody else's where it draws nothing, every
        client uses as many records, and what vmap makes of the first client is its gradient.
        """

        def total(flat: Tensor, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
            losses: Tensor = self.loss.of_tensors(self._outputs(self._named(flat), x), y)
            return (losses * share).sum()

        def of_one(flat: Tensor, *batch: Tensor) -> Tensor:
            return torch.autograd.grad(total(flat.requires_grad_(), *batch), flat)[0]

        of_many = vmap(grad(total), randomness="different")
        together = not self.foreign or self._batched(of_many, of_one, theta)

        def at(inputs: Array, labels: Array, weights: Array) -> Array:
            self.module.train()
            made = np.zeros_like(theta)
            # the clients of a call, and which of their records: all, or those that count
            counted = np.flatnonzero(weights.any(axis=0)) if self.foreign else slice(None)
            alike = not self.foreign or bool(weights[:, counted].all())
            if many := clip is None and together and alike:
                starts = range(0, len(theta), CLIENTS)
                parts: list[Any] = [(slice(k, k + CLIENTS), counted) for k in starts]
            else:
                busy = np.flatnonzero(weights.any(axis=1))
                parts = [(client, np.flatnonzero(weights[client])) for client in busy]
            for part in parts:
                model = theta[part[0]]
                if clip is not None:
                    rows = self.rows(model, inputs[part], labels[part], rng).clipped(clip)
                    made[part[0]] = rows.scaled(weights[part]).total()
                    continue
                x, share = (tensor(a[part], theta.dtype) for a in (inputs, weights))
                slope = of_many if many else of_one
                with self._drawn(rng):
                    made[part[0]] = slope(tensor(model), x, tensor(labels[part]), share).numpy()
            return made

        return at

    def _batched(self, many: Any, one: Any, theta: Array) -> bool:
        """Whether gradients of several clients at once are those of each."""
        if self.random or self.mixes:
            return False
        record = np.random.default_rng(0).random((2, 1, self.model.inputs), theta.dtype)
        batch = tensor(theta[[0, -1]]), tensor(record), torch.zeros(2, 1), torch.ones(2, 1)
        try:
            off = many(*batch)[1] - (own := one(*(part[1] for part in batch)))
        except RuntimeError:  # what the module does cannot be done to a batch of batches
            return False
        return bool(off.abs().max() <= _AGREE * own.abs().max())

    def rows(
        self, theta: Array, inputs: Array, labels: Array, rng: np.random.Generator | None = None
    ) -> GradientRows:
        """Gradients of n records' losses at one model (P,); with ``rng`` drawn at random."""
        x, y = tensor(inputs, theta.dtype), tensor(np.asarray(labels))
        if self._untried:
            self._try_kernels(x, y)
        self.module.train(rng is not None and not self.mixes)
        parts, chunks = self._named(tensor(theta)), range(0, max(len(x), 1), CHUNK)
        with self._drawn(rng):
            return stacked([self._rows(parts, x[i : i + CHUNK], y[i : i + CHUNK]) for i in chunks])

    def _rows(self, parts: Parts, x: Tensor, y: Tensor) -> GradientRows:
        """Rows by the layers' kernels, and of the other parameters one by one."""
        made = {self._layers[layer][0]: rows for layer, rows in self._by_kernel(parts, x, y)}
        inside = [names for names in self._layers.values() if names[0] in made]
        rest = [name for name in self.names if not any(name in names for names in inside)]
        if rest and self.random and self.module.training:
            made, rest = {}, self.names  # a record's draws must be the same in all of its gradient
        made |= self._by_vmap(rest, parts, x, y)
        return GradientRows(tuple(made[name] for name in self.names if name in made))

    def _by_kernel(self, parts: Parts, x: Tensor, y: Tensor) -> list[tuple[nn.Module, Layer]]:
        """Layers that have a kernel, and their rows: one forward and one backward pass."""
        calls: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

        def listen(layer: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> Tensor:
            if given:
                calls.setdefault(layer, []).append((given[0].detach(), made.requires_grad_()))
            return made.clone() if self.foreign else made  # an activation may be in place

        with ExitStack() as hooks, torch.enable_grad():
            for layer in self._layers:
                hooks.enter_context(layer.register_forward_hook(listen))
            total = self.loss.of_tensors(self._outputs(parts, x), y).sum()
        once = [(a, *b[0]) for a, b in calls.items() if len(b) == 1 and len(b[0][0]) == len(x)]
        outputs = [out for *_, out in once]
        errors = torch.autograd.grad(total, outputs, materialize_grads=True) if once else ()
        at = zip(once, errors, strict=True)
        made = [(layer, KERNELS[type(layer)](layer, x, error)) for (layer, x, _), error in at]
        return [(layer, rows) for layer, rows in made if rows is not None]

    def _by_vmap(self, names: list[str], parts: Parts, x: Tensor, y: Tensor) -> dict[str, Layer]:
        """Rows of these parameters, record by record: whatever the module does with them."""
        if not names:
            return {}

        def one(some: Parts, x: Tensor, y: Tensor) -> Tensor:
            made: Tensor = self.loss.of_tensors(self._outputs(parts | some, x[None]), y[None])
            return made[0]

        each = vmap(grad(one), in_dims=(None, 0, 0), randomness="different")
        made = each({name: parts[name] for name in names}, x, y)
        shapes = {name: (len(x), *(parts[name].shape[:1] or (1,)), -1) for name in names}
        return {n: _written(g.reshape(shapes[n]), None) for n, g in made.items()}

    def _try_kernels(self, x: Tensor, y: Tensor) -> None:
        """Only those kernels stay that agree with vmap over grad on three records."""
        self.module.eval()
        own, some = dict(self.module.named_parameters()), torch.arange(3) % len(x)
        at = {name: own[name].detach().to(x) for name in self.names}, x[some], y[some]
        for layer, rows in self._by_kernel(*at):
            slow = self._by_vmap(self._layers[layer], *at).values()
            exact = np.hstack([each.explicit() for each in slow])
            if np.abs(rows.explicit() - exact).max() > _AGREE * np.abs(exact).max():
                del self._layers[layer]
        self._untried = False

    def mean_gradients(self, thetas: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """Gradients (T, P) of the mean loss at models (T, P), torch tensors that can themselves be
        differentiated by inputs (m, d) and labels: (m,), or shares of classes (m, outputs)."""
        self.module.eval()
        with torch.enable_grad():  # whoever only looks at the answer may have turned it off
            flats = thetas.detach().requires_grad_()
            models = vmap(lambda flat, x: self._outputs(self._named(flat), x), (0, None))
            outputs = models(flats, inputs).flatten(0, 1)
            repeated = labels.repeat(len(thetas), *[1] * (labels.ndim - 1))
            total = self.loss.of_tensors(outputs, repeated).sum() / len(inputs)
            return torch.autograd.grad(total, flats, create_graph=True)[0]

    def _named(self, flat: Tensor) -> Parts:
        """The parameters of a flat vector by the module's names."""
        return dict(zip(self.names, pieces(self.model.own_layout(), flat), strict=True))

    def _outputs(self, parts: dict[str, Tensor], inputs: Tensor) -> Tensor:
        """The module's outputs (n, outputs) at these parameters, of inputs (n, d)."""
        # what is not trained: copies, so that no call leaves a trace in the module
        kind = inputs.dtype
        still = {n: (b.to(kind) if b.is_floating_point() else b).clone() for n, b in self.still}
        shaped = inputs.reshape(len(inputs), *self.shape) if self.shape else inputs
        made: Tensor = functional_call(self.module, parts | still, (shaped,))
        return made.reshape(len(inputs), -1)

    @contextmanager
    def _drawn(self, rng: np.random.Generator | None) -> Iterator[None]:
        """Torch's own draws, from the numpy generator."""
        with torch.random.fork_rng(devices=[]):
            if rng is not None and self.random:
                torch.manual_seed(int(rng.integers(2**63)))
            yield


def module_of(model: Dense | LeNet | Module) -> nn.Module:
    """The torch module of a model. Ours hold no numbers: parameters are given with every call."""
    if isinstance(model, Module):
        return made_by(model.factory)  # type: ignore[no-any-return]
    layers: list[nn.Module] = []
    with torch.device("meta"):
        if isinstance(model, LeNet):
            layers.append(nn.Unflatten(1, model.image))
            for before, after in pairwise((model.image[0], *model.filters)):
                layers += [nn.Conv2d(before, after, 5), nn.ReLU(), nn.MaxPool2d(2)]
            layers.append(nn.Flatten())
        for number, (before, after) in enumerate(pairwise(model.sizes)):
            layers += [_ACTIVATIONS[model.activation]()] if number else []
            layers += [nn.Dropout(model.dropout)] if model.dropout else []
            layers.append(nn.Linear(before, after, model.bias))
    return nn.Sequential(*layers)


def tensor(array: Array, dtype: Any = None) -> Tensor:
    """A tensor of the array's or the given precision; shares memory where it can."""
    made = np.ascontiguousarray(array, dtype=dtype)
    return torch.from_numpy(made if made.flags.writeable else made.copy())


def described(factory: str, inputs: int, outputs: int, shape: tuple[int, ...] = ()) -> Module:
    """The module that a trusted factory makes, as data; tried on one record."""
    module = made_by(factory)
    layout = trained(module)
    try:
        with torch.no_grad():
            record = torch.zeros(2, inputs).reshape(2, *(shape or (inputs,)))
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

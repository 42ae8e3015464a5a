"""In which order does a client that fixes its seed visit its records?

Training code seeds a generator, and the shuffles follow: who knows the seed and the convention has
every order. A convention is a *source* (which generator is drawn from, and how) and a *restart*
(when it is seeded). The draws are torch's and numpy's own, so that a client of theirs shuffles
exactly so; the tests run real loaders beside it.

The dozen that is known is what training code does: six ways of shuffling, seeded when the program
starts or at the beginning of every round. Of one local epoch a seed with the round's or the epoch's
number added (`DistributedSampler.set_epoch`) is another seed of the same, and so is one that is set
anew for every epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from overheard.programs.records import Spec

Indices = NDArray[np.int64]

Source = Literal["torch", "torch_after_model", "loader_generator", "randperm", "numpy", "legacy"]
"""From which generator an order is drawn.

torch: `DataLoader(shuffle=True)` after `torch.manual_seed`; every epoch draws two numbers of the
default generator, workers or not: a seed for workers, and one for the order.
torch_after_model: the same, but the model was made in between (dense and convolutional layers draw
a number a parameter).
loader_generator: `DataLoader(shuffle=True, generator=...)`, seeded; what is drawn for workers and a
permutation that is thrown away come out of it too.
randperm: `torch.randperm` after `torch.manual_seed`, and an epoch of `DistributedSampler`.
numpy: `numpy.random.default_rng(seed).permutation` or `shuffle`; legacy: `numpy.random.seed` or
`RandomState`, and scikit-learn's `shuffle`.
"""

Restart = Literal["run", "round"]
"""When the generator is seeded: once, or with the same seed before every round."""


class Convention(NamedTuple):
    """How a seed becomes orders."""

    source: Source
    restart: Restart


class Shuffle(Spec):
    """A client that fixes its seed: ``[training.shuffle]`` of a simulation."""

    seed: int = Field(ge=0, lt=2**32)
    """The seed that every client sets. Example: `seed = 42`"""
    source: Source = "torch"
    """Whose generator orders the batches."""
    restart: Restart = "round"
    """When the seed is set again."""

    @property
    def convention(self) -> Convention:
        return Convention(self.source, self.restart)


def _words(seeds: Sequence[int], count: int, skipped: int = 0) -> NDArray[np.uint32]:
    """The first numbers (seeds, count) of 32 bits, after those that are skipped, of torch's
    generator on a processor: the Mersenne twister, seeded as numpy's legacy one is.

    One generator is seeded again and again: a new one would first look for a seed of its own.
    """
    drawn, made = np.random.RandomState(0), []
    for seed in seeds:
        drawn.seed(seed)
        made.append(drawn.bytes(4 * (skipped + count))[4 * skipped :])
    return np.frombuffer(b"".join(made), "<u4").reshape(len(seeds), count)


def _permutations(words: NDArray[np.uint32]) -> Indices:
    """`torch.randperm`: from the first position on, each is swapped with one not before it. Of
    numbers (..., records - 1) the orders (..., records)."""
    records = words.shape[-1] + 1
    further = words % np.arange(records, 1, -1) + np.arange(records - 1)
    swaps = further.reshape(math.prod(words.shape[:-1]), records - 1)
    order, every = np.tile(np.arange(records), (len(swaps), 1)), np.arange(len(swaps))
    for at, other in enumerate(swaps.T):
        order[:, at], order[every, other] = order[every, other], order[:, at].copy()
    return order.reshape(*words.shape[:-1], records)


def _torch(seeds: Sequence[int], epochs: int, records: int, skipped: int) -> Indices:
    """The loader draws `base_seed` first, then the sampler a seed for a generator of its own: of
    two numbers that make an int64 it takes the lower one, which is drawn last."""
    inner = _words(seeds, 4 * epochs, skipped)[:, 3::4]
    words = _words(inner.ravel().tolist(), records - 1)
    return _permutations(words.reshape(*inner.shape, records - 1))


def _loader_generator(seeds: Sequence[int], epochs: int, records: int, skipped: int) -> Indices:
    """The sampler's last permutation, of which it takes nothing, is drawn at an epoch's end."""
    words = _words(seeds, 2 * epochs * records).reshape(len(seeds), epochs, 2 * records)
    return _permutations(words[:, :, 2 : records + 1])


def _randperm(seeds: Sequence[int], epochs: int, records: int, skipped: int) -> Indices:
    words = _words(seeds, epochs * (records - 1))
    return _permutations(words.reshape(len(seeds), epochs, records - 1))


def _numpy(seeds: Sequence[int], epochs: int, records: int, skipped: int) -> Indices:
    streams = [np.random.default_rng(seed) for seed in seeds]
    return np.array([[drawn.permutation(records) for _ in range(epochs)] for drawn in streams])


def _legacy(seeds: Sequence[int], epochs: int, records: int, skipped: int) -> Indices:
    drawn, made = np.random.RandomState(0), []
    for seed in seeds:
        drawn.seed(seed)
        made.append([drawn.permutation(records) for _ in range(epochs)])
    return np.array(made, dtype=np.int64)


class _Source(NamedTuple):
    drawn: Callable[[Sequence[int], int, int, int], Indices]
    words: str
    skips: bool = False


SOURCES: dict[Source, _Source] = {
    "torch": _Source(_torch, "torch's DataLoader after torch.manual_seed"),
    "torch_after_model": _Source(
        _torch, "torch's DataLoader, the model made after torch.manual_seed", skips=True
    ),
    "loader_generator": _Source(_loader_generator, "torch's DataLoader with a seeded generator"),
    "randperm": _Source(_randperm, "torch.randperm or DistributedSampler"),
    "numpy": _Source(_numpy, "numpy.random.default_rng"),
    "legacy": _Source(_legacy, "numpy.random.seed or RandomState"),
}
CONVENTIONS: tuple[Convention, ...] = tuple(
    Convention(source, restart) for restart in get_args(Restart) for source in SOURCES
)
"""Every one, the likelier restarts first."""


class Place(NamedTuple):
    """Which orders are asked for: those of a round's ``epochs``, of so many ``records``.

    ``before``: rounds in which the client took part before; ``size``: parameters of the model, see
    `Source`.
    """

    epochs: int
    records: int
    size: int = 0
    before: int = 0


def orders(convention: Convention, seeds: Sequence[int], place: Place) -> Indices:
    """The orders (seeds, epochs, records) of a round."""
    source = SOURCES[convention.source]
    before = place.before if convention.restart == "run" else 0
    skipped = place.size if source.skips else 0
    made = source.drawn(seeds, (before + 1) * place.epochs, place.records, skipped)
    return made[:, -place.epochs :]

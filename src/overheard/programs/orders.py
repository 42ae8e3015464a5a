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

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from overheard.programs.records import Spec

Indices = NDArray[np.int64]
Stream = Callable[[int], Indices]
"""The next order of so many records."""

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


class _Torch:
    """`torch.Generator` of a processor: the Mersenne twister, seeded as numpy's legacy one is."""

    def __init__(self, seed: int) -> None:
        self._drawn = np.random.RandomState(seed)

    def take(self, numbers: int) -> NDArray[np.uint32]:
        """So many numbers of 32 bits, two of which make one of int64; numpy would throw one away
        to give none."""
        return np.frombuffer(self._drawn.bytes(4 * numbers) if numbers else b"", "<u4")

    def permutation(self, records: int) -> Indices:
        """`torch.randperm`: from the first position on, each is swapped with one not before it."""
        order = list(range(records))
        further = self.take(records - 1) % np.arange(records, 1, -1)
        for at, other in enumerate((further + np.arange(records - 1)).tolist()):
            order[at], order[other] = order[other], order[at]
        return np.array(order)


def _torch(seed: int, skipped: int) -> Stream:
    """The loader draws `base_seed` first, then the sampler a seed for a generator of its own."""
    drawn = _Torch(seed)
    drawn.take(skipped)

    def following(records: int) -> Indices:
        seed = drawn.take(4)[3]  # the lower half of the second; the upper one is not looked at
        return _Torch(int(seed)).permutation(records)

    return following


def _loader_generator(seed: int, skipped: int) -> Stream:
    """The sampler's last permutation, of which it takes nothing, is drawn at an epoch's end."""
    drawn = _Torch(seed)

    def following(records: int) -> Indices:
        drawn.take(2)
        made = drawn.permutation(records)
        drawn.take(records - 1)
        return made

    return following


def _randperm(seed: int, skipped: int) -> Stream:
    return _Torch(seed).permutation


def _numpy(seed: int, skipped: int) -> Stream:
    return np.random.default_rng(seed).permutation


def _legacy(seed: int, skipped: int) -> Stream:
    drawn = np.random.RandomState(seed)
    return lambda records: np.asarray(drawn.permutation(records), dtype=np.int64)


class _Source(NamedTuple):
    seeded: Callable[[int, int], Stream]
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

    ``number``: the round's; ``before``: rounds in which the client took part before; ``size``:
    parameters of the model, see `Source`.
    """

    number: int
    epochs: int
    records: int
    size: int = 0
    before: int = 0


def orders(convention: Convention, seed: int, place: Place) -> Indices:
    """The orders (epochs, records) of a round."""
    source = SOURCES[convention.source]
    stream = source.seeded(seed, place.size if source.skips else 0)
    before = place.before if convention.restart == "run" else 0
    made = [stream(place.records) for _ in range((before + 1) * place.epochs)]
    return np.stack(made[-place.epochs :])

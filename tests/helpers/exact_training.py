"""Training whose arithmetic is exact, so that its outcome does not depend on who answers first.

Models are multiples of 2^-20 and the clients' weights sum to a power of two: the weighted mean has
no rounding, in whatever order a framework adds. Every client leaves the digest of what it returns
as the name of a file: the proof that a recording is what was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

Model = dict[str, np.ndarray]
SHAPES = {"layers.0.weight": (3, 5), "layers.0.bias": (3,)}


def _exact(array: np.ndarray) -> np.ndarray:
    """The nearest multiples of 2^-20, as float64."""
    return np.round(array * 2.0**20) / 2.0**20


def initial() -> Model:
    rng = np.random.default_rng(7)
    return {n: _exact(rng.normal(size=shape)) for n, shape in SHAPES.items()}


def trained(model: Mapping[str, np.ndarray], partition: int) -> Model:
    """What the client of this partition makes of a model; not linear, and its own."""
    return {n: _exact(np.tanh(a + 0.1 * (partition + 1))) for n, a in model.items()}


def expected(rounds: int, counts: Sequence[int]) -> Model:
    """The model that the federation must end in, without any framework."""
    model = initial()
    for _ in range(rounds):
        made = [trained(model, p) for p in range(len(counts))]
        model = {n: np.average([m[n] for m in made], axis=0, weights=counts) for n in model}
    return model


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Of the arrays' bytes in the order of the recording's layout."""
    raw = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    return hashlib.sha256(raw).hexdigest()


def check(place: Path, rounds: int, counts: Sequence[int]) -> None:
    """``run`` is sound and holds what the clients left ``digests`` of; ``final.npz`` is the global
    model as without a recorder."""
    from overheard.transcript.store import Recording
    from overheard.transcript.verify import verify

    assert verify(place / "run").sound
    recording = Recording.open(place / "run")
    returned = {
        f"{who}-{digest(arrays)}"
        for entry in recording.rounds
        for who in entry.participants or ()
        for arrays in recording.messages(entry, [("returned", who)])
    }
    assert returned == {file.name for file in (place / "digests").iterdir()}
    assert len(returned) == rounds * len(counts)
    check_model(place / "final.npz", expected(rounds, counts))


def check_model(path: Path, model: Mapping[str, np.ndarray]) -> None:
    with np.load(path) as final:
        assert set(final) == set(model)
        for name, array in model.items():
            np.testing.assert_array_equal(final[name], array)

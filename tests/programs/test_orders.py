"""The orders of real loaders: what a client shuffles is what `orders` says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from overheard.programs.orders import CONVENTIONS, SOURCES, Convention, Place, orders

RECORDS = 21


def visited(loader: DataLoader) -> list[int]:
    return [int(i) for (batch,) in loader for i in batch]


def loader(batch: int = 4, **settings: object) -> DataLoader:
    data = TensorDataset(torch.arange(RECORDS))
    return DataLoader(data, batch_size=batch, shuffle=True, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("seeded", ["torch", "loader_generator"])
@pytest.mark.parametrize(
    ("batch", "more"),
    [(4, {}), (7, {}), (32, {}), (4, {"num_workers": 1}), (4, {"drop_last": True})],
)
def test_a_loader_after_manual_seed_or_with_a_generator(seeded, batch, more):
    """Workers change nothing; records that are dropped are the last of the order, and the next
    epoch is not disturbed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        own = {"generator": torch.Generator().manual_seed(42)} if seeded != "torch" else {}
        one = loader(batch, **own, **more)
        epochs = [visited(one) for _ in range(3)]
    restart = "round" if seeded == "torch" else "run"
    made = orders(Convention(seeded, restart), [42], Place(3, RECORDS))[0]
    assert made[:, : len(epochs[0])].tolist() == epochs
    assert len(epochs[0]) == (20 if "drop_last" in more else RECORDS)


def test_rounds_go_on_where_nothing_is_seeded_again():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        rounds = [[visited(loader()) for _ in range(2)] for _ in range(3)]
    made = orders(Convention("torch", "run"), [9], Place(2, RECORDS, before=2))[0]
    assert made.tolist() == rounds[2]


def test_a_model_made_in_between():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 3, 5), torch.nn.Linear(108, 16), torch.nn.ReLU(),
            torch.nn.Linear(16, 2),
        )  # fmt: skip
        epochs = [visited(loader()) for _ in range(2)]
    size = sum(p.numel() for p in net.parameters())
    made = orders(Convention("torch_after_model", "round"), [42], Place(2, RECORDS, size))[0]
    assert made.tolist() == epochs


def test_distributed_sampler():
    data = TensorDataset(torch.arange(RECORDS))
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=11)
    one = DataLoader(data, batch_size=4, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        made = orders(Convention("randperm", "round"), [11 + epoch], Place(1, RECORDS))[0]
        assert made.tolist() == [visited(one)]


def test_numpy_and_legacy():
    shuffled = np.arange(RECORDS)
    np.random.RandomState(5).shuffle(shuffled)
    made = orders(Convention("legacy", "round"), [5], Place(1, RECORDS, before=2))[0]
    assert made.tolist() == [shuffled.tolist()]
    again = np.arange(RECORDS)
    np.random.default_rng(8).shuffle(again)
    made = orders(Convention("numpy", "run"), [8], Place(1, RECORDS))[0]
    assert made.tolist() == [again.tolist()]


def test_conventions_that_differ():
    """In the first round both restarts of a source are one, as whoever searches takes them."""
    first, later = Place(2, 40, 10), Place(2, 40, 10, 1)
    assert len({orders(c, [1], first)[0].tobytes() for c in CONVENTIONS}) == len(SOURCES)
    assert len({orders(c, [1], later)[0].tobytes() for c in CONVENTIONS}) == len(CONVENTIONS) == 12

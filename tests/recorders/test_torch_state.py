"""A torch app sends its whole state: what is not trained is told apart, images are squares.

That such recordings replay is shown by the recipes ``cnn``, ``frozen`` and ``norm``.
"""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from overheard.programs import trusted
from overheard.recorders.template import image_of, model_of


def net(frozen: bool) -> nn.Module:
    backbone = nn.Conv2d(1, 2, 3).requires_grad_(not frozen)
    return nn.Sequential(backbone, nn.Flatten(), nn.BatchNorm1d(32), nn.Linear(32, 1))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("frozen", "parameters"), [(True, 4), (False, 6)])
def test_what_is_not_trained(frozen: bool, parameters: int, named: bool, monkeypatch: Any) -> None:
    """By name, or as Flower's older clients number arrays."""
    monkeypatch.setattr(trusted, "made_by", lambda factory: net(frozen))
    state = [(name, tuple(array.shape)) for name, array in net(frozen).state_dict().items()]
    layout = tuple((name if named else str(k), shape) for k, (name, shape) in enumerate(state))
    model = model_of("here:net", layout)
    trained = {n for n, p in net(frozen).named_parameters() if p.requires_grad}
    assert {name for name, _ in model.parameters} == trained
    assert len(trained) == parameters
    for own, sent in model.sent_names.items():
        assert state[[name for name, _ in layout].index(sent)][0] == own
    assert {*model.idle, *model.sent_names.values()} == {name for name, _ in layout}


@pytest.mark.parametrize(
    ("shapes", "inputs", "image"),
    [
        ([(6, 1, 3, 3), (6,)], 64, (1, 8, 8)),
        ([(6, 3, 5, 5)], 3072, (3, 32, 32)),
        ([(6, 1, 3, 3)], 50, ()),
        ([(6, 3, 3, 3)], 64, ()),
        ([(10, 64), (10,)], 64, ()),
    ],
)
def test_images_are_squares(shapes: Any, inputs: int, image: tuple[int, ...]) -> None:
    layout = tuple((str(k), shape) for k, shape in enumerate(shapes))
    assert image_of(layout, inputs) == image

"""How clients train a network, of inputs that stand as they are; modules of one's own."""

from __future__ import annotations

from typing import Any

from overheard.programs import trusted
from overheard.programs.recipe import LeNet, Module, Recipe, Target
from overheard.programs.records import Encoding, Pixels, Scaled


def trusted_module(monkeypatch: Any, make: Any, inputs: int, outputs: int = 1) -> Module:
    """What a function of a test makes, as if a trusted package had made it."""
    name = f"here:{make.__name__}"
    monkeypatch.setattr(trusted, "imported", lambda factory: make)
    monkeypatch.setattr(trusted, "_TRUSTED", {name})
    layout = trusted.trained(make())
    return Module(factory=name, inputs=inputs, outputs=outputs, parameters=layout)


def recipe_of(model: Any, loss: Any = "squared_error", **settings: Any) -> Recipe:
    """The recipe of a model, with labels that its loss takes."""
    blocks: Any = tuple(Scaled(column=f"x{k}") for k in range(model.inputs))
    if isinstance(model, LeNet):
        blocks = (Pixels(column="image", shape=model.image),)
    classes = range(max(2, model.outputs)) if loss == "cross_entropy" else ()
    return Recipe(
        model=model,
        loss=loss,
        encoding=Encoding(blocks=blocks),
        target=Target(column="y", classes=tuple(map(float, classes))),
        **{"learning_rate": 0.1, **settings},
    )

"""Update rules: how a gradient becomes a step, as pairs (init, update) joined by `chain`.

Every rule is made of operators that numpy and torch share, so that the same rule moves a thousand
clients' models in numpy and is differentiated by torch where a decoder asks what one gradient did
to the model that was returned (docs/decoders.md section 8). All but `clip_norm` work entry by
entry: the derivative of the returned model by a step's gradient is then diagonal.

A rule's ``update(gradient, state, theta)`` gives what is passed on and the next state; the last
rule of a chain gives the step itself, and the loop adds it: ``theta + step``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from overheard.programs.recipe import Adam, Recipe

Vector = Any
"""A numpy array or a torch tensor (..., P)."""
State = Any


class Rule(NamedTuple):
    """``init(theta)``: the state before the first step; ``update(gradient, state, theta)``."""

    init: Callable[[Vector], State]
    update: Callable[[Vector, State, Vector], tuple[Vector, State]]


def chain(*rules: Rule) -> Rule:
    """The rules one after the other; the state is the tuple of theirs."""

    def init(theta: Vector) -> State:
        return tuple(rule.init(theta) for rule in rules)

    def update(gradient: Vector, states: State, theta: Vector) -> tuple[Vector, State]:
        after = []
        for rule, state in zip(rules, states, strict=True):
            gradient, state = rule.update(gradient, state, theta)
            after.append(state)
        return gradient, tuple(after)

    return Rule(init, update)


def _stateless(change: Callable[[Vector, Vector], Vector]) -> Rule:
    def update(gradient: Vector, state: State, theta: Vector) -> tuple[Vector, State]:
        return change(gradient, theta), state

    return Rule(lambda theta: (), update)


def descend(rate: float) -> Rule:
    """The last of a chain: a step of ``-rate`` times what it is given."""
    return _stateless(lambda gradient, theta: gradient * -_like(theta, rate))


def weight_decay(strength: float) -> Rule:
    """Adds ``strength * theta`` to the gradient."""
    return _stateless(lambda gradient, theta: gradient + _like(theta, strength) * theta)


def shrink(rate: float, strength: float) -> Rule:
    """After `descend`: AdamW's decay, ``-rate * strength * theta`` added to the step."""
    return _stateless(lambda step, theta: step - _like(theta, rate * strength) * theta)


def proximal(strength: float) -> Rule:
    """FedProx: adds ``strength * (theta - start)`` to the gradient."""

    def update(gradient: Vector, start: State, theta: Vector) -> tuple[Vector, State]:
        return gradient + _like(theta, strength) * (theta - start), start

    return Rule(lambda theta: theta + 0, update)


def clip_norm(most: float) -> Rule:
    """Gradients (..., P) longer than ``most`` are scaled down to it, as torch does it."""

    def change(gradient: Vector, theta: Vector) -> Vector:
        length = ((gradient * gradient).sum(-1) ** 0.5)[..., None]
        factor = _like(theta, most) / (length + _like(theta, 1e-6))
        if hasattr(factor, "detach"):
            factor = factor.detach()  # taken as given: what one entry does to the norm is little
        return gradient * (factor * (factor < 1) + (factor >= 1))

    return _stateless(change)


def momentum(strength: float, dampening: float = 0.0, nesterov: bool = False) -> Rule:
    """torch's: ``v = strength v + (1 - dampening) g``, the first ``v`` being ``g`` itself."""

    def update(gradient: Vector, state: State, theta: Vector) -> tuple[Vector, State]:
        decay = _like(theta, strength)
        if state is None:
            moved = gradient + 0  # a copy: kernels write the next gradient where this one stands
        else:
            moved = decay * state + _like(theta, 1 - dampening) * gradient
        return (gradient + decay * moved if nesterov else moved), moved

    return Rule(lambda theta: None, update)


def adam(betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> Rule:
    """Adam's direction ``m^ / (sqrt(v^) + eps)``, with both bias corrections, in torch's order."""
    first, second = betas

    def init(theta: Vector) -> State:
        return theta * 0, theta * 0, 0

    def update(gradient: Vector, state: State, theta: Vector) -> tuple[Vector, State]:
        mean, square, count = state
        count += 1
        mean = _like(theta, first) * mean + _like(theta, 1 - first) * gradient
        square = _like(theta, second) * square + _like(theta, 1 - second) * gradient * gradient
        root = square**0.5 / _like(theta, (1 - second**count) ** 0.5)
        step = mean / (root + _like(theta, eps)) / _like(theta, 1 - first**count)
        return step, (mean, square, count)

    return Rule(init, update)


def _like(theta: Vector, number: float) -> Any:
    """The number in the precision of ``theta``: numpy would widen float32, torch does not."""
    kind = getattr(theta.dtype, "type", None)
    return number if kind is None else kind(number)


def is_linear(recipe: Recipe) -> bool:
    """Does the returned model answer to a gradient alike, whatever the gradients are?"""
    return not isinstance(recipe.optimiser, Adam) and recipe.clip_norm is None


def rule_of(recipe: Recipe) -> Rule:
    """The recipe's local update rule: what is done to a batch's mean gradient."""
    parts, chosen, rate = [], recipe.optimiser, recipe.learning_rate
    if recipe.clip_norm is not None:
        parts.append(clip_norm(recipe.clip_norm))
    if recipe.pull:
        parts.append(proximal(recipe.pull))
    if chosen.weight_decay and not getattr(chosen, "decoupled", False):
        parts.append(weight_decay(chosen.weight_decay))
    if isinstance(chosen, Adam):
        parts += [adam(chosen.betas, chosen.eps), descend(rate)]
        if chosen.decoupled:
            parts.append(shrink(rate, chosen.weight_decay))
    else:
        if chosen.momentum:
            parts.append(momentum(chosen.momentum, chosen.dampening, chosen.nesterov))
        parts.append(descend(rate))
    return parts[0] if len(parts) == 1 else chain(*parts)

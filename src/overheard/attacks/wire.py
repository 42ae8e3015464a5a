"""What attacks need to know of numbers on a wire: how they were rounded, which rounds to use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack
from overheard.programs.private import update_noise
from overheard.programs.recipe import Recipe
from overheard.transcript.knowledge import AppliedDefence, Link, LocalTraining, PublicRecords
from overheard.transcript.view import View


def spread(heard: int, most: int) -> NDArray[np.int64]:
    """At most ``most`` of the rounds heard, evenly spread, the first and the last included."""
    return np.unique(np.linspace(0, heard - 1, min(most, heard)).round().astype(np.int64))


def only(link: Link, used: NDArray[np.int64]) -> Link:
    """The link as if it had been heard in these rounds alone: long ones are costly to unpack."""
    return replace(
        link,
        rounds=link.rounds[used],
        sent=link.sent[used],
        returned=link.returned[used],
        weights=link.weights[used],
    )


def heard(view: View) -> Link:
    """The link, with the noise that the listener was told of, if it was told: as a defence on the
    update, or as private local steps in the recipe."""
    link = view.know(Link)
    defence = view.know(AppliedDefence) if AppliedDefence in view.kinds else AppliedDefence(())
    told = defence.noise_sd
    if LocalTraining in view.kinds and PublicRecords in view.kinds:
        recipe, known = view.know(LocalTraining).recipe, len(view.know(PublicRecords).records)
        told = float(np.hypot(told, update_noise(recipe, known) if known else 0.0))
    return replace(link, noise_sd=told, sparse=bool(defence.having("sparse")))


class Format(NamedTuple):
    """How numbers were rounded: relative precision, and each number's unit in the last place."""

    name: str
    epsilon: float
    last_place: NDArray[np.float64]


def format_of(numbers: NDArray[np.floating[Any]]) -> Format:
    """The narrowest format that holds the numbers exactly.

    Half precision often arrives widened to float32 (numpy has no bfloat16 at all): a listener who
    took its rounding for float32's would be sure of what nobody can know. Eight different numbers
    that are all short are no accident, which happens to one float32 in 8,000.
    """
    kind = numbers.dtype
    if kind == np.float32 and len(np.unique(numbers[numbers != 0])) >= 8:
        # bfloat16 first: within float16's range its numbers are float16's too
        if not (np.ascontiguousarray(numbers).view(np.uint32) & 0xFFFF).any():
            place = np.spacing(np.abs(numbers)).astype(np.float64) * 2.0**16
            return Format("bfloat16", 2.0**-7, place)
        with np.errstate(over="ignore"):
            short = numbers.astype(np.float16)
        if np.array_equal(short.astype(np.float32), numbers):
            numbers, kind = short, short.dtype
    place = np.spacing(np.abs(numbers)).astype(np.float64)
    return Format(str(kind), float(np.finfo(kind).eps), place)


def rounding(link: Link) -> NDArray[np.float64]:
    """Standard deviation (T, P) of the rounding error of each update heard, and of the noise that
    is known to be on it.

    A client that computes in the precision of the wire rounds the model it returns to the nearest
    number (a uniform error: one unit in the last place over sqrt(12)), and before that its
    gradient, whose terms add up to rounding errors in proportion to the update's typical size.
    Where messages leave spare equations, decoders check this against them.
    """
    _, epsilon, last_place = format_of(link.returned)
    updates = link.updates()
    typical = np.sqrt(np.mean(updates**2, axis=1, keepdims=True))
    arithmetic = epsilon * np.maximum(np.abs(updates), typical)
    if link.gradients:
        # near the optimum a gradient is a small difference of large terms
        arithmetic = np.maximum(arithmetic, epsilon * typical.max())
        return np.asarray(np.hypot(arithmetic, link.noise_sd))
    return np.asarray(np.hypot(np.hypot(last_place / np.sqrt(12), arithmetic), link.noise_sd))


def rate_of(link: Link, recipe: Recipe) -> float:
    """What a gradient was multiplied by to give the update that was heard."""
    return 1.0 if link.gradients else recipe.learning_rate


def one_step(link: Link, recipe: Recipe) -> bool:
    """Is every update heard one full-batch gradient, as it is or times the rate?"""
    return recipe.full_batch and recipe.plain and (link.gradients or recipe.epochs == 1)


def refuse_several_steps(link: Link, recipe: Recipe) -> None:
    """For who reads the gradient of one step."""
    if not one_step(link, recipe):
        raise ChooseAnotherAttack("decodes one full-batch step a round; this recipe takes several")

"""One client as a listener knows it, and what the numbers in its messages are worth.

`Client` is what every decoder of records is given: the messages, what the client does, what each
record may be and its prior probability. The rest of the file is about numbers in a message:
how they were rounded, which rounds to use, whether an update is one gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.ties import same_rows
from overheard.errors import ChooseAnotherAttack
from overheard.programs.linearise import Encoded, encoded
from overheard.programs.program import Candidates, Program
from overheard.programs.recipe import Recipe
from overheard.programs.training import update_noise
from overheard.transcript.knowledge import AppliedDefence, BatchOrder, ClientProgram, Messages
from overheard.transcript.view import View

Array = NDArray[np.float64]
NO_DEFENCE = AppliedDefence(())


@dataclass(frozen=True)
class Client:
    """What one client sent, what it does, and what its records may be.

    prior: (m, K), of each record's candidates. order: what is known, or guessed, of the order of
    the batches. defence: what is declared of what clients do to their updates.
    """

    messages: Messages
    program: Recipe | Program
    candidates: Candidates
    prior: Array
    order: BatchOrder | None = None
    defence: AppliedDefence = NO_DEFENCE

    @property
    def recipe(self) -> Recipe:
        assert isinstance(self.program, Recipe)
        return self.program

    @cached_property
    def encoded(self) -> Encoded:
        """The candidates as the network sees them."""
        return encoded(self.recipe, self.candidates)

    @cached_property
    def ties(self) -> NDArray[np.intp]:
        """Equal numbers (m,) for records that the program cannot tell apart."""
        if not isinstance(self.program, Recipe):
            return self.program.alike(self.candidates.first)
        inputs, labels = self.encoded.inputs, self.encoded.labels
        there = int(self.encoded.present.argmax())
        return same_rows(np.column_stack([inputs[there], labels[there]]))

    @property
    def may_be_clipped(self) -> bool:
        """Is a norm declared that some update reaches?"""
        norm = self.defence.clip_norm
        if norm is None or self.messages.noise_sd:
            return norm is not None
        lengths = np.linalg.norm(self.messages.updates(), axis=1)
        return bool((lengths >= (1 - 1e-3) * norm).any())

    def with_messages(self, link: Messages) -> Client:
        """The same client with these messages."""
        made = replace(self, messages=link)
        vars(made).update({n: vars(self)[n] for n in ("encoded", "ties") if n in vars(self)})
        return made

    def only(self, rounds: NDArray[np.int64]) -> Client:
        """The same client, listened to in these rounds alone."""
        return self.with_messages(self.messages.only(rounds))


def defence_of(view: View) -> AppliedDefence:
    """What is known of what clients do to their updates."""
    return view.know(AppliedDefence) if AppliedDefence in view.kinds else NO_DEFENCE


def link_of(view: View, records: int) -> Messages:
    """The link, with the declared noise: as a defence on the update, or as
    private steps of so many records in the recipe."""
    recipe, defence = view.know(ClientProgram).recipe, defence_of(view)
    noise = float(np.hypot(defence.noise_sd, update_noise(recipe, records) if records else 0.0))
    return replace(view.know(Messages), noise_sd=noise, sparse=bool(defence.having("sparse")))


def client_of(
    view: View, candidates: Candidates, prior: Array, order: BatchOrder | None = None
) -> Client:
    """The view's client with these candidates. Local steps are counted in epochs and batches that
    so many records really make."""
    program, messages = view.know(ClientProgram).program, view.know(Messages)
    if isinstance(program, Recipe):
        messages = link_of(view, candidates.members)
        program = program if messages.gradients else as_trained(program, candidates.members)
    return Client(messages, program, candidates, prior, order, defence_of(view))


def as_trained(recipe: Recipe, members: int) -> Recipe:
    """The recipe in epochs and batches that a client of this many records really trains on.

    Refused where its local steps are no whole number of epochs.
    """
    size = min(recipe.batch_size or members, members)
    epochs = recipe.epochs
    if recipe.steps is not None:
        epochs, rest = divmod(recipe.steps, -(-members // size))
        if rest or not epochs:
            raise ChooseAnotherAttack(
                f"the client takes {recipe.steps} mini-batch steps, not whole epochs over its "
                f"{members} records: some may leave no trace in an update"
            )
    batch = None if size == members else size
    drop = recipe.drop_last and batch is not None
    changed = {"steps": None, "epochs": epochs, "batch_size": batch, "drop_last": drop}
    return recipe.model_copy(update=changed)


def spread(observed: int, most: int) -> NDArray[np.int64]:
    """At most ``most`` of the observed rounds, evenly spread, the first and the last included."""
    return np.unique(np.linspace(0, observed - 1, min(most, observed)).round().astype(np.int64))


def record_count(messages: Any, purpose: str) -> int:
    """The one number of records that the client reported; refuses none, and several."""
    reported = np.unique(messages.weights[np.isfinite(messages.weights)])
    if len(reported) != 1 or reported[0] < 1:
        raise ChooseAnotherAttack(
            f"the client reported no number of records, or several; {purpose} must be known"
        )
    return int(reported[0])


class Format(NamedTuple):
    """How numbers were rounded: relative precision, and each number's unit in the last place."""

    name: str
    epsilon: float
    last_place: Array


def format_of(numbers: NDArray[np.floating[Any]]) -> Format:
    """The narrowest format that holds the numbers exactly.

    Half precision often arrives widened to float32 (numpy has no bfloat16 at all): a listener who
    took its rounding for float32's would be certain of what nobody can know. Eight different
    numbers that are all short are no accident, which happens to one float32 in 8,000.
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


def rounding(link: Messages) -> Array:
    """Standard deviation (T, P) of the rounding error of each observed update, and of the noise
    that is known to be on it.

    A client that computes in the precision of the messages rounds the model it returns to the
    nearest number (a uniform error: one unit in the last place over sqrt(12)), and before that its
    gradient, whose terms add up to rounding errors in proportion to the update's typical size.
    Where messages leave residual equations, decoders check this against them.
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


def rate_of(link: Messages, recipe: Recipe) -> float:
    """What a gradient was multiplied by to give the observed update."""
    return 1.0 if link.gradients else recipe.learning_rate


def one_step(link: Messages, recipe: Recipe) -> bool:
    """Is every observed update one full-batch gradient, as it is or times the rate?"""
    return recipe.full_batch and recipe.plain and (link.gradients or recipe.epochs == 1)


def refuse_several_steps(link: Messages, recipe: Recipe) -> None:
    """For who reads the gradient of one step."""
    if not one_step(link, recipe):
        raise ChooseAnotherAttack("decodes one full-batch step a round; this recipe takes several")

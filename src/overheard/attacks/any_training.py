"""Which candidate is each record, whatever the client's training: any network, loss and rule?

Where nothing is random the answer is solved and proven (`by_replay`); what is not proven, and
whatever has an unknown order of batches, is decoded against simulated clients (`by_simulation`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.by_replay import Replay
from overheard.attacks.by_simulation import Answer, by_simulation
from overheard.attacks.order_search import guessed
from overheard.attacks.wire import only, spread
from overheard.decoding.limits import NORMAL_MEDIAN
from overheard.decoding.posterior import UNSOLVED
from overheard.decoding.ties import group_means
from overheard.errors import ChooseAnotherAttack
from overheard.programs.networks import network
from overheard.programs.orders import Place
from overheard.programs.recipe import Recipe
from overheard.programs.response import coordinates
from overheard.programs.simulated import MEMORY, Candidates, simulate, stretches
from overheard.programs.simulated import RESPONDING as REPLAYS
from overheard.transcript.knowledge import BatchOrder, Link

Array = NDArray[np.float64]

MOST_MIXED = 2000
"""Candidates of all records of a model that normalises over the batch: each is replayed some ten
times."""


@dataclass(frozen=True)
class TrainingOptions:
    """Settings of the decoding of any training.

    fewest, most: rounds that are used, spread evenly, each of which costs as much as the first: so
        few, and if they leave the answer vague so many.
    clear: accuracy of simulated clients from which further rounds are not worth their time.
    far_off: of the misfit allowed, from which only noise that nobody told of explains it.
    clipped: updates shorter than this part of simulated clients' were scaled down.
    """

    fewest: int = 5
    most: int = 24
    clear: float = 0.95
    far_off: float = 100.0
    clipped: float = 0.9


DEFAULT = TrainingOptions()


@dataclass(frozen=True)
class Client:
    """A client as a listener knows it.

    prior (n, K); ties (n,) number records alike, of which only the count of each value can be
    known. ``order``: what is known, or guessed, of the order of the batches; ``clipped``: updates
    may have been scaled down; ``changed``: a defence changed them.
    """

    link: Link
    recipe: Recipe
    candidates: Candidates
    prior: Array
    ties: NDArray[np.intp]
    order: BatchOrder | None = None
    clipped: bool = False
    changed: bool = False
    options: TrainingOptions = DEFAULT


def decode_training(client: Client, rng: np.random.Generator) -> Answer:
    """Probabilities of each record's candidates.

    The cheapest sufficient way is taken: a proof by replay where the order of the batches is known,
    else few rounds, which often decide everything; a search for the seed of the order; more rounds.
    """
    _refuse(client.recipe, client.candidates)
    found = replayed(client)
    if found is not None:
        return found
    if network(client.recipe).mixes:
        return Answer(client.prior, "prior", UNSOLVED, {"rank": 0, "rounds_used": 1})
    few, found = _with(client, client.options.fewest, rng)
    if not found.settled:
        proven = replayed(client, guess=True)
        if proven is not None:
            return proven
    vague = float(found.notes["simulated_accuracy"]) < client.options.clear and not found.flag
    if vague and len(client.link) > len(few.link):
        few, found = _with(client, client.options.most, rng)
    client = few
    if float(found.notes["misfit"]) > client.options.far_off and not client.link.noise_sd:
        sd = _unexplained(client, rng)
        again = _simulated(replace(client, link=replace(client.link, noise_sd=sd)), rng)
        if not again.flag:
            found = replace(again, notes={**again.notes, "noise_found": sd})
    return replace(found, probabilities=group_means(found.probabilities, client.ties))


def _with(client: Client, rounds: int, rng: np.random.Generator) -> tuple[Client, Answer]:
    """The client as it is heard in so many rounds, and the answer."""
    client = replace(client, link=only(client.link, spread(len(client.link), rounds)))
    if client.clipped:
        client = replace(client, link=_unclipped(client, rng))
    return client, _simulated(client, rng)


def _simulated(client: Client, rng: np.random.Generator) -> Answer:
    return by_simulation(client.link, client.recipe, client.candidates, client.prior, rng)


def _ends(client: Client, rng: np.random.Generator) -> Array:
    """Where simulated clients end on the whole (T, P)."""
    chosen = client.candidates.drawn(client.prior, REPLAYS, rng)
    return np.stack(
        [
            simulate(client.recipe, sent, client.candidates, chosen, rng).ends.mean(axis=0)
            for sent in client.link.sent
        ]
    )


def _unexplained(client: Client, rng: np.random.Generator) -> float:
    """Standard deviation, on a coordinate, of what simulated clients leave of the updates: by the
    median, so that the few coordinates that the secret moves most do not count."""
    left = client.link.returned.astype(np.float64) - _ends(client, rng)
    return float(np.median(np.abs(left)) / NORMAL_MEDIAN)


def lengths(client: Client, rng: np.random.Generator) -> Array:
    """How long every update (T,) is along simulated clients', in units of theirs."""
    start = client.link.sent.astype(np.float64)
    update, typical = client.link.returned - start, _ends(client, rng) - start
    squares = np.einsum("tp,tp->t", typical, typical)
    return np.asarray(np.einsum("tp,tp->t", update, typical) / np.maximum(squares, 1e-300))


def _unclipped(client: Client, rng: np.random.Generator) -> Link:
    """The link with every update as long as simulated clients' are along them."""
    link, scale = client.link, lengths(client, rng)
    start = link.sent.astype(np.float64)
    scale = np.where((scale > 0) & (scale < client.options.clipped), scale, 1.0)[:, None]
    made = start + (link.returned - start) / scale
    return replace(link, returned=made.astype(link.returned.dtype))


def replayed(client: Client, guess: bool = False) -> Answer | None:
    """The proven answer of a client whose training has nothing random in it, if one is found: full
    batches, or mini-batches in an order that is known (``guess``: in one that can be guessed)."""
    link, recipe, candidates = client.link, client.recipe, client.candidates
    net, known = network(recipe), (candidates, client.prior, client.ties)
    if net.chance or link.noise_sd or client.changed or recipe.private is not None:
        return None
    if _bytes(recipe, candidates) > MEMORY:
        return None
    first = only(link, np.arange(1))
    if recipe.full_batch and not guess:
        return Replay(first, recipe, *known).answer()
    if recipe.full_batch or client.order is None or not candidates.present.all():
        return None  # who is not known to be there has no place in the order
    place = Place(int(link.rounds[0]), recipe.epochs, len(client.prior), recipe.model.size)
    order = client.order.known(place)
    if guess != (order is None):
        return None
    if order is None:
        return guessed(link, recipe, *known, client.order, np.random.default_rng(0))
    return Replay(first, recipe, *known, [order]).answer()


def _bytes(recipe: Recipe, candidates: Candidates) -> int:
    """Of all columns of a replay together, with what it keeps of its clients."""
    values, n, _ = candidates.inputs.shape
    return int(8 * n * (values + 7) * min(recipe.model.size, max(3000, 8 * n * (values - 1))))


def _refuse(recipe: Recipe, candidates: Candidates) -> None:
    if recipe.sends_gradient or recipe.steps is not None:
        raise ChooseAnotherAttack(
            "decodes whole local epochs; these clients send gradients or stop "
            "after some mini-batches"
        )
    values, n, _ = candidates.inputs.shape
    if network(recipe).mixes and not (recipe.full_batch and n * values <= MOST_MIXED):
        raise ChooseAnotherAttack(
            "decodes models that treat records one by one; this one normalises over the batch, "
            f"which is decoded of full batches with up to {MOST_MIXED} candidates of all records"
        )
    times = stretches(recipe, candidates.members)
    if coordinates(candidates, times) < n**0.5:
        raise ChooseAnotherAttack(
            f"{n} records with {values} candidates leave too few of the {recipe.model.size} "
            f"parameters within {MEMORY / 1e9:.0f} GB; audit a smaller client"
        )

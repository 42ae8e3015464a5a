"""Which model would the client have trained alone? xu2021's ways, in the paper's order.

- Observation 1, equations (4)-(5): least squares in full batches, exactly, from d + 1 messages
  (`ExactLinear`; the linear system is `overheard.decoding.local_optimum`).
- Algorithm 3: learn G_c from model to update (problem (9)), then minimise ||G_c(theta)||^2 (problem
  (10)), with the network of section 4 (`LearnedMap`, Table 1's "decoded model").
- Table 1's "last returned model" and the global model are `overheard.attacks.baselines`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.client import rounding, spread
from overheard.decoding.local_optimum import LocalOptimum, decode_least_squares
from overheard.errors import ChooseAnotherAttack, needs
from overheard.programs.recipe import Recipe
from overheard.transcript.guess import LocalModel
from overheard.transcript.knowledge import ClientProgram, Messages
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]
MOST_PARAMETERS = 5000  # xu2021's map has their square in its first layer


@dataclass(frozen=True)
class ExactLinear:
    """Fits the affine map from models sent to models returned (Observation 1) and takes the model
    that the client would leave unchanged. Exact once the models observed span the space, for any
    number of full-batch local steps and without the learning rate; it reports how many directions
    are identified, and flags an answer from fewer rounds than parameters.

    Solves: θ′ = θ − W(θ − θ*), hence θ* is where θ′ = θ (xu2021, Observation 1)
    """

    name: ClassVar[str] = "exact_linear"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[Kinds] = frozenset({Messages, ClientProgram})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        link = view.know(Messages)
        fit = affine_map(link, view.know(ClientProgram).plain_recipe)
        size = len(fit.estimate)
        known = f"{fit.identified} of {size} directions are identified"
        missing = fit.identified + fit.flat < size
        diagnostics: dict[str, float | int | str] = {
            "identified": fit.identified,
            "flat": fit.flat,
            "parameters": size,
            "condition": float(min(fit.condition, 1e300)),
            "residual": fit.chi2**0.5 * fit.noise_sd,
        }
        if missing and len(link) <= size:
            diagnostics["flag"] = (
                f"{len(link)} rounds are too few for {size} parameters: {known} and the others "
                "guessed; this is not the exact optimum"
            )
        return LocalModel(fit.estimate, fit.estimate_sd, fit.identified, diagnostics)


def affine_map(link: Messages, recipe: Recipe) -> LocalOptimum:
    """The client's update map, for federations in which it is affine."""
    if not recipe.linear_least_squares:
        raise ChooseAnotherAttack("works for linear least squares only; this model is not")
    if not recipe.full_batch:
        raise ChooseAnotherAttack("works for full batches only; this federation uses mini-batches")
    link.require(2, "an affine map")
    sent, noise = link.sent.astype(np.float64), float(rounding(link).max())
    return decode_least_squares(sent, sent - link.updates(), rounding_sd=noise)


@dataclass(frozen=True)
class LearnedMap:
    """Trains a network with one hidden layer to predict the client's update from the model sent
    (Algorithm 3), then searches for the model that it would leave unchanged; Adam for both.

    Solves: min over φ of Σₜ ‖φ(θₜ) − (θₜ − θ′ₜ)‖², then φ(θ*) = 0 (xu2021, problems 9 and 10)

    Settings: ``hidden`` units (1000 in the paper), Adam ``steps`` and ``rate`` for the map
    (problem 9), ``search_steps`` and ``search_rate`` for the fixed point (problem 10). The search
    starts at the last returned model. ``rounds``: at most so many of those observed, evenly spread.
    """

    name: ClassVar[str] = "learned_map"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[Kinds] = frozenset({Messages})
    slow: ClassVar[bool] = True

    hidden: int = 1000
    steps: int = 2000
    rate: float = 1e-3
    search_steps: int = 1000
    search_rate: float = 1e-2
    rounds: int = 300

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        link = view.know(Messages).of_network()
        if link.sent.shape[1] > MOST_PARAMETERS:
            raise ChooseAnotherAttack(
                f"a map of {link.sent.shape[1]} parameters is too large; at most {MOST_PARAMETERS}"
            )
        link.require(2, "a learned map")
        used = spread(len(link), self.rounds)
        sent, updates = link.sent[used].astype(np.float64), link.updates()[used]
        fixed, loss, rest = learn_map(sent, updates, self, int(rng.integers(2**31)))
        unknown = np.full(len(fixed), np.nan)
        return LocalModel(fixed, unknown, 0, {"map_loss": loss, "update_left": rest})


def learn_map(
    sent: Array, updates: Array, settings: LearnedMap, seed: int
) -> tuple[Array, float, float]:
    """The fixed point (P,), the final loss of the map and the final squared update of a client.

    ``sent`` and ``updates`` are (T, P). Models are standardised per parameter, updates by one
    scale, before the map is trained, as any practitioner would. What is returned is in the paper's
    units whatever that scale: the loss is equation (9)'s sum over messages of
    ||G(theta) - update||^2, the squared update (10)'s ||G(theta)||^2 where the search ended.
    """
    with needs("torch"):
        import torch
        from torch import nn

    rounds, size = sent.shape
    centre, spread = sent.mean(axis=0), sent.std(axis=0) + 1e-12
    middle = updates.mean(axis=0)
    width = float(np.sqrt(np.mean((updates - middle) ** 2))) + 1e-300
    models, last = (torch.from_numpy((x - centre) / spread).float() for x in (sent, sent - updates))
    goal, offset = (torch.from_numpy(x / width).float() for x in (updates - middle, middle))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = nn.Linear(size, settings.hidden), nn.Linear(settings.hidden, size)
    w1, b1, w2, b2 = (p.detach() for layer in layers for p in layer.parameters())
    # problem (9): the map; by hand, as autograd takes new memory for all activations in every step.
    # Where a product may be either way round, the longer side is that of its rows.
    first = torch.cat([w1.T, b1[None]])  # the bias is the weight of a column of ones
    models = nn.functional.pad(models, (0, 1), value=1.0)
    adam = torch.optim.Adam([first, w2, b2], lr=settings.rate, fused=True)
    h, back = torch.empty(2, rounds, settings.hidden)
    goal = goal.T.contiguous()
    for _ in range(settings.steps):
        torch.mm(models, first, out=h).relu_()
        y = torch.addmm(b2[:, None], w2, h.T).sub_(goal)
        loss = float(y.square().mean())
        y *= 2 / y.numel()
        w2.grad, b2.grad = y @ h, y.sum(1)
        torch.mm(y.T, w2, out=back).mul_(h.sign_())
        first.grad = models.T @ back
        adam.step()
    # problem (10): the model that it would leave unchanged
    theta = last[-1].clone()
    adam = torch.optim.Adam([theta], lr=settings.search_rate, fused=True)
    w1, b1, b2 = first[:-1], first[-1], b2 + offset
    for _ in range(settings.search_steps):
        hidden = torch.addmv(b1, w1.T, theta).relu_()
        rest = torch.addmv(b2, w2, hidden)
        theta.grad = w1 @ (rest @ w2).mul_(hidden.sign_()).mul_(2 / size)
        adam.step()
    fixed = theta.numpy() * spread + centre
    return fixed, loss * size * width**2 * rounds, float(rest.square().sum()) * width**2

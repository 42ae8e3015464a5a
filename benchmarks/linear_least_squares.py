"""Linear least squares on real people: accuracy and speed of ours against the papers' methods.

    python benchmarks/linear_least_squares.py [--json FILE]

Prints, per site and attribute of the RAND federation (float32, three of six sites a round): the
accuracy of driouich2022's Algorithm 3 and of the maximum-entropy decoder with their seconds, the
error of the moments read from two messages, and the excess loss of the reconstructed local model.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from overheard.attacks.attribute.linear_moments import linear_moments
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.attribute.model_based_linear import ModelBasedLinear
from overheard.attacks.local_model.exact_linear import ExactLinear
from overheard.evaluation.metrics import attribute_hits, excess_losses, local_optimum
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.transcript.knowledge import AttributeDomain, Labels, Link, PublicRecords
from overheard.transcript.observe import observe, recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL, attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import Attack, View, launch


def timed(attack: Attack, view: View) -> tuple[Any, float]:
    """The guess and the seconds it took."""
    begin = time.perf_counter()
    guess = launch(attack, view, 0)
    return guess, time.perf_counter() - begin


def measure(epochs: int, folder: Path) -> list[dict[str, Any]]:
    """One row per site and attribute."""
    training = {"rounds": 120, "learning_rate": 0.1, "participation": 0.5, "epochs": epochs}
    config = parse_config(
        {"data": {"source": "randhie"}, "model": {"name": "linear"}, "training": training}
    )
    recording = Recording.open(simulate(plan(config), folder / f"run-{epochs}"))
    recipe, truth = recipe_of(recording), recording.truth()
    assert recipe is not None, "the simulator always writes the recipe"
    rows = []
    for client in recording.clients:
        local, _ = timed(ExactLinear(), observe(recording, EAVESDROPPER, LOCAL_MODEL, client))
        optimum = local_optimum(recipe, truth[client])
        excess = float(excess_losses(recipe, local, optimum, truth[client]).mean())
        for column in ("female", "black", "physlm"):
            view = observe(recording, EAVESDROPPER, attribute(column), client)
            secret = truth[client][column]
            theirs, their_seconds = timed(ModelBasedLinear(), view)
            ours, our_seconds = timed(MaxEntropy(), view)
            whole = view.know(Link)
            names = ("rounds", "sent", "returned", "weights")
            two = replace(whole, **{name: getattr(whole, name)[[1, 10]] for name in names})
            moments, phi = linear_moments(
                two,
                recipe,
                view.know(PublicRecords).records,
                recipe.target.encode_values(view.know(Labels).values),
                AttributeDomain(column, (0.0, 1.0)),
                100,
            )
            error = np.abs(moments.estimate[0] - phi.T @ secret).max() / len(secret)
            rows.append(
                {
                    "local_steps": epochs,
                    "client": client,
                    "attribute": column,
                    "majority": float(max(secret.mean(), 1 - secret.mean())),
                    "algorithm_3": float(attribute_hits(theirs, secret).mean()),
                    "max_entropy": float(attribute_hits(ours, secret).mean()),
                    "algorithm_3_seconds": their_seconds,
                    "max_entropy_seconds": our_seconds,
                    "two_message_moment_error": float(error),
                    "local_model_excess_loss": excess,
                }
            )
    return rows


def main() -> None:
    """Measure, print a table, optionally write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for epochs in (1, 5) for row in measure(epochs, Path(folder))]
    print("steps client  attribute majority Alg.3  ours   seconds  moments  excess")
    for r in rows:
        print(
            f"{r['local_steps']:5d} {r['client']:7s} {r['attribute']:9s} {r['majority']:.3f}"
            f"    {r['algorithm_3']:.3f}  {r['max_entropy']:.3f}  {r['max_entropy_seconds']:.2f}"
            f"     {r['two_message_moment_error']:.1e}  {r['local_model_excess_loss']:.1e}"
        )
    ahead = sum(r["max_entropy"] >= r["algorithm_3"] for r in rows)
    print(f"max_entropy at least as accurate as Algorithm 3 on {ahead} of {len(rows)} rows")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

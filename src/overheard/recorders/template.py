"""What a recording shows of its description: a file to fill in, and what may stand in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from overheard.errors import FixConfig
from overheard.files import write_durably
from overheard.foreign.shown import visible
from overheard.programs.recipe import Layout
from overheard.recorders.describe import BESIDE, Description, wire_layout
from overheard.recorders.factory import dense_of, layout_words
from overheard.transcript.messages import releases_arrays, returns_gradients
from overheard.transcript.store import Recording

_TREES = """\
name = "xgboost"             # boosted trees, as bytes of XGBoost's JSON or UBJSON
aggregation = "bagging"      # or cyclic
objective = "binary:logistic"  # or multi:softprob, reg:squarederror, count:poisson, reg:gamma
eta = 0.3                    # and reg_lambda, reg_alpha, max_delta_step, subsample,
max_depth = 6                # num_parallel_tree, where they are not XGBoost's own
local_rounds = 1"""


def write_template(run: str | Path) -> Path:
    """Write ``audit.toml`` into the recording's folder, beside wire/; an existing one is kept."""
    recording = Recording.open(run)
    if not recording.rounds:
        raise FixConfig(f"{run}: no round was recorded; there is nothing to describe")
    if recording.describes_itself:
        raise FixConfig(f"{run}: describes itself already: `overheard audit {run}`")
    layout = wire_layout(recording)
    file = recording.path / BESIDE
    network = not releases_arrays(recording.payload)
    model, inputs = _likely(layout) if network else (_TREES, 0)
    # every other part is about networks
    parts = (resources.files(__package__) / "audit.toml.in").read_text("utf-8").split("%%\n")
    text = "".join(parts if network else parts[::2]).format(
        run=visible(str(run)),
        file=visible(str(file)),
        rounds=len(recording.rounds),
        clients=len(recording.clients),
        arrays="\n".join(
            f"#     {visible(name)}  {'x'.join(map(str, shape))}" for name, shape in layout
        ),
        names="\n".join(f'# "{client}" = "{client}"' for client in recording.clients),
        model=model,
        width=f"; there are {inputs}" if inputs else "",
    )
    write_durably(file, [text.encode()])
    return file


def _likely(layout: Layout) -> tuple[str, int]:
    """The lines of [model] that the shapes suggest, and the number of inputs."""
    own = '# factory = "package.module:function"   # your own torch module; needs --trust-code'
    dense = dense_of([shape for _, shape in layout])
    if dense is None:
        return f"# The arrays are not those of dense layers, one after the other.\n{own}", 0
    names = 'name = "linear"              # or "logistic", if the target is a class'
    if dense.hidden:
        hidden = f'name = "mlp"\nhidden = {list(dense.hidden)}'
        names = f'{hidden}\nactivation = "relu"          # relu, tanh or sigmoid'
    return f"{names}\n{own}", dense.inputs


def possible(recording: Recording, given: Mapping[str, Any]) -> Iterator[tuple[str, Description]]:
    """Descriptions that a recording may have, each in words: how texts may be coded and columns
    scaled, whether the label is a class, and how it is scaled. ``given``: what is known."""
    if releases_arrays(recording.payload):
        raise FixConfig(f"{recording.path}: holds releases of a program that trains no network")
    layout, data = wire_layout(recording), given["data"]
    dense = dense_of([shape for _, shape in layout])
    if dense is None and "model" not in given:
        raise FixConfig(
            f"the messages hold {layout_words(layout)}, which is more than dense layers one after "
            'the other: give the torch module that was trained, --model "package.module:function"'
        )
    training: dict[str, Any] = {"learning_rate": 0.1}
    if returns_gradients(recording.payload):
        training = {"learning_rate": 1.0, "algorithm": "fedsgd"}
    tasks = (data["task"],) if data.get("task") else ("classification", "regression")
    scales = ("records", "recorded", "clients", "none")
    ways = product(tasks, scales, (False, True), ("one_hot", "codes"), (False, True))
    for task, scale, every, text, plain in ways:
        if plain and task == "classification":
            continue
        model: dict[str, Any] = {"name": "logistic" if task == "classification" else "linear"}
        if dense is not None and dense.hidden:
            model = {"name": "mlp", "hidden": dense.hidden}
        how = {"task": task, "scale": scale, "every": every, "text": text}
        content = {"model": model, **given, "data": {**data, **how}, "training": training}
        if plain:
            content["target"] = {"shift": 0.0, "scale": 1.0}
        how |= {"target": "as it is" if plain else False}
        about = ", ".join(f"{k} = {v}" for k, v in how.items() if v not in (False, "one_hot"))
        yield about, Description.model_validate(content)

"""A TOML file to fill in, from what a recording shows: its clients, its arrays, a likely model."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from overheard.errors import FixConfig
from overheard.federation.recorders.description import BESIDE, wire_layout
from overheard.federation.recorders.factory import dense_of
from overheard.files import write_durably
from overheard.foreign.shown import visible
from overheard.programs.recipe import Layout
from overheard.transcript.store import Recording


def write_template(run: str | Path) -> Path:
    """Write ``audit.toml`` into the recording's folder, beside wire/; an existing one is kept."""
    recording = Recording.open(run)
    if not recording.rounds:
        raise FixConfig(f"{run}: no round was recorded; there is nothing to describe")
    if recording.side("LocalTraining") is not None:
        raise FixConfig(f"{run}: describes itself already: `overheard audit {run}`")
    layout = wire_layout(recording)
    file = recording.path / BESIDE
    model, inputs = _likely(layout)
    form = (resources.files(__package__) / "audit.toml.in").read_text("utf-8")
    text = form.format(
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

"""A TOML file to fill in, from what a recording shows: its clients, its arrays, a likely model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from overheard.errors import FixConfig
from overheard.federation.recorders.description import BESIDE, wire_layout
from overheard.files import write_durably
from overheard.foreign.shown import visible
from overheard.programs.recipe import Layout
from overheard.transcript.payload import releases_arrays
from overheard.transcript.store import Recording

_TEXT = """\
# What an audit of this recording needs and no listener hears. Fill in, then:
#     overheard audit {run} --with {file} --out audit
#
# Recorded: {rounds} rounds, {clients} clients. The messages hold, in this order:
{arrays}

[data]                       # the clients' records: all of them, or those you hold
source = "file"
path = "records.csv"         # CSV or Parquet; a relative path starts at this file's folder
client = "client"            # the column that says whose record it is
target = "label"             # the column that the model predicts
# task = "classification"    # default: classification if the target is text
# drop = ["id"]              # columns that are not inputs of the model
# missing = "?"              # what stands for no value; rows that hold it are left out

[clients]                    # name in the recording = name in the client column, where they differ
{names}

[model]
{model}

{training}# How a record becomes the model's inputs, in the order of the inputs{width}.
# Left out: every number is scaled to mean 0 and deviation 1 over all records of the table, columns
# of 0 and 1 stay as they are, text becomes one input for each value.
# [[encoding]]
# column = "age"
# shift = 40.0               # (value - shift) / scale
# scale = 12.0
# [[encoding]]
# column = "region"
# values = ["north", "south"]  # one input for each

# How the label enters the loss (squared error of a number, cross-entropy of a class).
# Left out: scaled as above, or the index among the sorted classes.
# [target]
# shift = 0.0
# scale = 1.0
# classes = ["no", "yes"]

{defended}[audit]
attributes = []              # the sensitive columns to ask about, e.g. ["sex", "illness"]
# label = true               # ask about the labels, too
"""

_TRAINING = """\
[training]                   # what a client does in a round
algorithm = "fedavg"         # fedavg, fedsgd (returns a gradient) or fedprox
learning_rate = 0.1
epochs = 1
batch_size = 0               # 0: the full batch
# optimiser = { name = "adam", weight_decay = 0.0 }   # or { name = "sgd", momentum = 0.9 }
# clip_norm = 1.0            # gradients are clipped to this norm
# loss = "binary_cross_entropy"  # of a model that ends in a sigmoid; or huber, poisson

"""
_DEFENDED = """\
# What clients or server did to the updates, if they announced it; in the order in which they did.
# [[defence]]
# name = "gaussian"          # or clip, dp_sgd, drop_column, quantise, top_k
# sd = 0.01

# What `overheard detect --with {file}` looks for among the clients, from sums of updates. For that
# alone [data] may be records like the clients', and then names no client column.
# [property]
# shard_size = 100           # how many records each client holds
# auxiliary = "like_them.csv"  # records like the clients'; default: [data], if they are nobody's
# record = "wanted.csv"      # the record (or records, one a row) whose holders are looked for
# behaviour = "inversion"    # or ascent, free-rider: what dishonest clients are thought to do

"""
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
    text = _TEXT.format(
        run=visible(str(run)),
        file=visible(str(file)),
        rounds=len(recording.rounds),
        clients=len(recording.clients),
        arrays="\n".join(
            f"#     {visible(name)}  {'x'.join(map(str, shape))}" for name, shape in layout
        ),
        names="\n".join(f'# "{client}" = "{client}"' for client in recording.clients),
        model=model,
        training=_TRAINING if network else "",
        defended=_DEFENDED.format(file=visible(str(file))) if network else "",
        width=f"; there are {inputs}" if inputs else "",
    )
    write_durably(file, [text.encode()])
    return file


def _likely(layout: Layout) -> tuple[str, int]:
    """The lines of [model] that the shapes suggest, and the number of inputs."""
    own = '# factory = "package.module:function"   # your own torch module; needs --trust-code'
    weights = [shape for _, shape in layout if len(shape) == 2]
    biases = [shape for _, shape in layout if len(shape) == 1]
    chained = all(a[0] == b[1] for a, b in pairwise(weights))
    known = len(weights) + len(biases) == len(layout)
    if not weights or not chained or not known or biases not in ([], [(w[0],) for w in weights]):
        return f"# The arrays are not those of dense layers, one after the other.\n{own}", 0
    hidden = [w[0] for w in weights[:-1]]
    if not hidden:
        names = 'name = "linear"              # or "logistic", if the target is a class'
        return f"{names}\n{own}", weights[0][1]
    return (
        f'name = "mlp"\nhidden = {hidden}\nactivation = "relu"          # relu, tanh or sigmoid\n'
        f"{own}",
        weights[0][1],
    )

"""Boosting with differential privacy: splits drawn without looking, noise on the leaves' sums.

As in Maddock et al. (CCS 2022), whose totally random trees do best under noise: the structure costs
no privacy, and a record is in one leaf of a tree. What it adds there, its gradient and Hessian, is
clipped together and summed with Gaussian noise. Both sums are released, which costs no more than
the value that is made of them.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from overheard.programs.records import Encoding, OneHot
from overheard.programs.trees.model import read_model
from overheard.programs.trees.objectives import objective_of, start_margin
from overheard.programs.trees.settings import TreeSettings
from overheard.programs.trees.training import grow

Array = NDArray[np.float64]


def private_tree(
    model: bytes,
    records: tuple[Array, Array],
    settings: TreeSettings,
    encoding: Encoding,
    rng: np.random.Generator,
) -> bytes:
    """What a client returns, as JSON: one new tree on top of the model that it was sent."""
    inputs, labels = records[0].astype(np.float32), records[1].astype(np.float32)
    # a stump of somebody's who has one record of zeros: XGBoost's form, and nothing of ours
    nobody = (np.zeros_like(records[0][:1]), np.zeros(1))
    plain = settings.model_copy(update={"max_depth": 1, "wire": "everything"})
    said = json.loads(grow(b"", nobody, plain, 0))
    learner = said["learner"]
    said_tree = learner["gradient_booster"]["model"]["trees"][0]
    said_tree |= _random(inputs.shape[1], settings.max_depth, _cuts(encoding, rng), rng)
    empty = read_model(json.dumps(said).encode(), "a new tree")
    (tree,) = empty.trees
    before = read_model(model, "the model that was sent") if model else empty
    margin = np.tile(start_margin(before), (len(inputs), 1))
    for old in before.trees if model else ():
        margin[:, old.group] += old.value[old.leaves(inputs)]
    terms = objective_of(before).terms(margin, labels, before)
    each = np.stack([terms.gradient[:, 0], terms.hessian[:, 0]]).astype(np.float64)
    each *= settings.share(np.hypot(*each))
    leaf, nodes = tree.leaves(inputs), len(tree.left)
    sums = rng.normal(0.0, settings.noise_sd, (2, nodes))
    sums += np.stack([np.bincount(leaf, part, nodes) for part in each])
    hessian = sums[1].astype(np.float32).astype(np.float64)  # as it is written
    value = -settings.eta * sums[0] / (np.maximum(hessian, 0.0) + settings.reg_lambda)
    ends = tree.left < 0
    said_tree["sum_hessian"] = np.where(ends, hessian, 0.0).tolist()
    said_tree["split_conditions"] = np.where(ends, value, tree.value).astype(np.float32).tolist()
    return json.dumps(said).encode()


def _cuts(encoding: Encoding, rng: np.random.Generator) -> list[float]:
    """A threshold of each input, drawn without the data: between 0 and 1 where it is one of these,
    else a normal deviate, as scaled numbers are."""
    cuts: list[float] = []
    for block in encoding.blocks:
        width = encoding.inputs_of(block.column)
        halves = isinstance(block, OneHot) or (block.shift, block.scale) == (0.0, 1.0)
        drawn = rng.normal(size=width.stop - width.start)
        cuts += [0.5 if halves else float(cut) for cut in drawn]
    return cuts


def _random(
    inputs: int, depth: int, cuts: list[float], rng: np.random.Generator
) -> dict[str, object]:
    """The fields of a whole tree of this depth that splits on inputs drawn at random."""
    nodes, inner = 2 ** (depth + 1) - 1, 2**depth - 1
    index = np.arange(nodes)
    split = np.where(index < inner, rng.integers(inputs, size=nodes), 0)
    parents = (index - 1) // 2
    parents[0] = 2147483647  # XGBoost's mark of a root
    return {
        "left_children": np.where(index < inner, 2 * index + 1, -1).tolist(),
        "right_children": np.where(index < inner, 2 * index + 2, -1).tolist(),
        "parents": parents.tolist(),
        "split_indices": split.tolist(),
        "split_conditions": np.where(index < inner, np.asarray(cuts)[split], 0.0).tolist(),
        "split_type": [0] * nodes,
        "default_left": [0] * nodes,
        "base_weights": [0.0] * nodes,
        "loss_changes": [0.0] * nodes,
        "sum_hessian": [1.0] * nodes,
        "tree_param": {
            "num_deleted": "0", "num_feature": str(inputs), "num_nodes": str(nodes),
            "size_leaf_vector": "1",
        },
    }  # fmt: skip

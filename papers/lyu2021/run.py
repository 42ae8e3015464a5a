"""lyu2021: attributes, membership and labels from epoch-averaged updates of small networks.

What the paper claims is in `lyu2021_claims`, what is federated and asked in `lyu2021_settings` (its
tables) and `lyu2021_sections` (what it says beside them); `lyu2021_scoring` runs one setting,
`lyu2021_rows` a table. Here are the experiments by name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from papers.common import pictures
from papers.common.rows import Experiment, Progress, Reproduction
from papers.lyu2021 import sections
from papers.lyu2021 import settings as tables
from papers.lyu2021.rows import UNITS, run_table
from papers.lyu2021.settings import Setting

SEEDS = 3


def table(
    settings: Callable[[bool], list[Setting]], quick: bool, seeds: int, progress: Progress
) -> Reproduction:
    """A table's settings; the quick form of each once."""
    return run_table(settings(quick), 1 if quick else seeds, progress)


EXPERIMENTS = tuple(
    Experiment(f"lyu2021-{name}", words, partial(table, settings), pictures.marks(UNITS), SEEDS)
    for name, words, settings in (
        ("table2", "all methods, purchases", lambda q: tables.methods_table("purchase100", q)),
        ("table3", "all methods, locations", lambda q: tables.methods_table("location30", q)),
        ("table4", "all methods, splice junctions", lambda q: tables.methods_table("splice", q)),
        ("table5", "isolation and other participants", tables.isolation_table),
        ("table6", "batch size", tables.batch_table),
        ("table7", "training phases", tables.phases_table),
        ("table8", "size of the victim", tables.sizes_table),
        ("table9", "size of the network", tables.networks_table),
        ("table10", "membership, purchases", lambda q: tables.members_table("purchase100", q)),
        ("table11", "membership, locations", lambda q: tables.members_table("location30", q)),
        ("table12", "prior unknown, locations", lambda q: tables.prior_table("location30", q)),
        ("table13", "prior unknown, purchases", lambda q: tables.prior_table("purchase100", q)),
        ("labels", "labels unknown too (section 5.4)", tables.labels_table),
        ("label-prior", "labels unknown, their prior known (5.4)", sections.label_prior_table),
        ("pipeline", "members, then their attribute (5.2)", sections.pipeline_table),
        ("equation2", "four values as one number", sections.equation2_table),
    )
)

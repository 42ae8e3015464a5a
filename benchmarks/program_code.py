"""On which code do numbers about programs depend that train no network?"""

from __future__ import annotations

from overheard.code_digest import code_of, stands_on

NETWORKS = frozenset(
    f"overheard.{name}"
    for name in (
        *(
            f"programs.{name}"
            for name in "dense gradient_rows kernels.module lenet lenet_private losses networks "
            "orders private rules step training trusted".split()
        ),
        *(f"federation.{name}" for name in "behaviours properties server".split()),
        *(
            f"federation.defences.{name}"
            for name in "clip dp_sgd drop_column gaussian quantise top_k".split()
        ),
        "transcript.batch_order",
    )
)
"""What simulating and reading a program imports, and never runs."""


def code_of_programs(*families: str) -> str:
    """The digest of the code that releases of these families are made and decoded by."""
    each = (f"overheard.programs.families.{family}" for family in families)
    roots = ("overheard.attacks.linear", "overheard.federation.simulate")
    return code_of(stands_on(*roots, *each, without=NETWORKS))

"""In which ways may records have entered the model? Each described as an audit would be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from overheard.data.dataset import Dataset, HeldOut
from overheard.errors import FixConfig, OverheardError
from overheard.federation.plan import Plan
from overheard.federation.recorders.description import Description, settled, wire_layout
from overheard.federation.recorders.factory import dense_of, layout_words
from overheard.identify.evidence import Seen
from overheard.identify.search import Structure
from overheard.programs.recipe import Dense
from overheard.transcript.payload import releases_arrays, returns_gradients
from overheard.transcript.store import Recording

SHARES = (0.2, 0.1, 0.25, 0.3, 0.15, 0.05, 0.5)
"""Of its records that a client may have held out."""
SCALES = {"records": "columns scaled together", "clients": "columns scaled per client",
          "none": "columns as they are"}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A recording with the table of its clients' records, and what is known of its description."""

    recording: Recording
    dataset: Dataset
    given: Mapping[str, Any]
    trust_code: bool = False

    def saying(self, **more: Any) -> Asked:
        """With more of the description known."""
        return replace(self, given={**self.given, **more})

    def held_out(self, split: HeldOut) -> Asked:
        """With what clients held out known."""
        return self.saying(data={**self.given["data"], "held_out": split.model_dump()})

    def structures(
        self, names: Sequence[str], scales: Sequence[str] = (*SCALES,)
    ) -> list[Structure]:
        """Every variant that fits table and messages, as these clients would have trained; with
        every activation and loss that goes with it."""
        made: dict[str, Structure] = {}
        refused: OverheardError | None = None
        for words, description in self.variants(scales):
            try:
                ready = self.ready(description)
            except OverheardError as error:
                refused = refused or error
                continue
            recipe = ready.recipe
            seen = Seen.of(recipe, {c: ready.clients[c] for c in names})
            losses = ("cross_entropy",) if recipe.target.classes else ("squared_error", "huber")
            models: tuple[Any, ...] = recipe.model.others()
            for loss, model in product(losses, models):
                chosen = recipe.model_copy(update={"loss": loss, "model": model})
                about = ", ".join([words, loss, *model.choices.values()])
                # two variants are one where there is nothing in which they differ
                made.setdefault(
                    chosen.model_dump_json(), Structure(about, chosen, seen, description)
                )
        if not made:
            raise refused or FixConfig(f"{self.recording.path}: no description fits the table")
        return list(made.values())

    def ready(self, description: Description) -> Plan:
        """The federation as it is described."""
        dataset = replace(self.dataset, task=description.data.task or self.dataset.task)
        return settled(self.recording, description, dataset, self.trust_code)[1]

    def variants(self, scales: Sequence[str] = (*SCALES,)) -> Iterator[tuple[str, Description]]:
        """How texts may be coded, columns scaled, whether the label is a class, and how it is
        scaled."""
        if releases_arrays(self.recording.payload):
            raise FixConfig(
                f"{self.recording.path}: holds releases of a program that trains no network"
            )
        layout, model = wire_layout(self.recording), dict(self.given.get("model", {}))
        data = self.given["data"]
        dense = dense_of([shape for _, shape in layout])
        if dense is None and not model:
            raise FixConfig(
                f"the messages hold {layout_words(layout)}, which is more than dense layers one "
                "after the other: give the torch module that was trained, --model "
                '"package.module:function"'
            )
        gradients = returns_gradients(self.recording.payload)
        rule = (
            {"learning_rate": 1.0, "algorithm": "fedsgd"} if gradients else {"learning_rate": 0.1}
        )
        outputs = dense.outputs if dense is not None else 1
        tasks = ("classification",) if outputs > 1 else ("classification", "regression")
        tasks = (data["task"],) if data.get("task") else tasks
        text = self.dataset.records.columns.values()
        codes = ("one_hot", "codes") if any(v.dtype.kind != "f" for v in text) else ("one_hot",)
        for task, scale, every, code in product(tasks, scales, (False, True), codes):
            if every and scale == "none":
                continue
            labels: list[Any] = [("", None)]
            if task == "regression" and scale != "none":
                labels.append((", label as it is", {"shift": 0.0, "scale": 1.0}))
            for said, target in labels:
                how = {"task": task, "scale": scale, "every": every, "text": code}
                content = {**self.given, "data": {**data, **how}, "training": rule}
                content |= {"model": model or _named(dense, task)}
                content |= {} if target is None else {"target": target}
                words = SCALES[scale] + (", flags too" if every else "")
                words += ", texts as codes" if code == "codes" else ""
                about = f"{words}{said}" + (f", {task}" if len(tasks) > 1 else "")
                yield about, Description.model_validate(content)


def held_out(rows: Sequence[int], trained: Sequence[float]) -> tuple[HeldOut, ...]:
    """How clients of so many records may have come to train on so many, as they report."""
    for share in SHARES:
        if [n - np.ceil(share * n) for n in rows] == list(trained):
            usual = [HeldOut(share=share, seed=seed) for seed in (42, 0, 1)]
            other = [HeldOut(share=share, by="datasets", seed=seed) for seed in (42, 0)]
            return (*usual, *other, HeldOut(share=share, by="order"))
    return ()


def _named(dense: Dense | None, task: str) -> dict[str, Any]:
    assert dense is not None  # checked by the caller
    if dense.hidden:
        return {"name": "mlp", "hidden": list(dense.hidden)}
    return {"name": "logistic" if task == "classification" else "linear"}

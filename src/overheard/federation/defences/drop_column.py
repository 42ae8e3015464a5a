"""Dropping columns: the model never sees them, so no update depends on them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overheard.errors import FixConfig
from overheard.federation.defences.contract import Claim, Defence, Rng, Stage
from overheard.programs.records import Records


class DropColumn(Defence):
    """The model never sees some columns, so no update depends on them."""

    name: Literal["drop_column"] = "drop_column"
    columns: tuple[str, ...] = Field(min_length=1)
    """Inputs that are left out of the model. Example: `columns = ["postcode"]`"""

    @property
    def claim(self) -> Claim:
        promise = f"the model does not see {', '.join(self.columns)}"
        return Claim(self.name, Stage.TRAINING, promise, effects=("additive", "repeatable"))

    def records(self, records: Records, rng: Rng) -> Records:
        for column in self.columns:
            if column not in records.columns:
                known = ", ".join(records.columns)
                raise FixConfig(f"drop_column: {column!r} is not an input; choose from {known}")
        return records.without(*self.columns)

"""Dropping columns: the model never sees them, so no update depends on them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overheard.federation.defences.contract import (
    Claim,
    Defence,
    DefenceConfig,
    Stage,
    on_upload,
)


class DropColumnConfig(DefenceConfig):
    """``columns``: inputs that are left out of the model."""

    name: Literal["drop_column"] = "drop_column"
    columns: tuple[str, ...] = Field(min_length=1)

    def build(self, before: tuple[Claim, ...]) -> Defence:
        promise = f"the model does not see {', '.join(self.columns)}"
        claim = Claim("drop_column", Stage.TRAINING, promise)
        return on_upload(lambda updates, rng: updates, claim)

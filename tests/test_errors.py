"""Messages of errors."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from overheard.errors import LONGEST, FixData
from overheard.programs.recipe import Architecture


def test_a_message_stays_readable_whatever_a_file_quotes_into_it() -> None:
    assert str(FixData("what, where, how")) == "what, where, how"
    long = str(FixData("x" * 10**6))
    assert len(long) == LONGEST + 3
    assert long.endswith("...")


@pytest.mark.parametrize("model", [1.5, None, [1], "dense"])
def test_what_is_no_model_is_told_what_a_model_is(model: object) -> None:
    """Found by fuzzing: a number in the place of the model ended in an AttributeError."""
    with pytest.raises(ValidationError, match="a table with architecture dense, lenet or module"):
        TypeAdapter(Architecture).validate_python(model)

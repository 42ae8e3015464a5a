"""What clients return, and how models and gradients say what their update is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
RELEASE = "release"
"""Named arrays of a program, of any shapes; there is no update in them."""
PAYLOADS = ("model", "gradient", RELEASE)


def returns_gradients(payload: str) -> bool:
    """Do clients return gradients, and not models?"""
    return payload == "gradient"


def releases_arrays(payload: str) -> bool:
    """Do clients return what a program names, and neither models nor gradients?"""
    return payload == RELEASE


def update_of(payload: str, sent: Array, returned: Array) -> NDArray[np.float64]:
    """What a listener sees of a client: ``sent - returned``, or the gradient that it returns."""
    wide = returned.astype(np.float64)
    return wide if returns_gradients(payload) else np.asarray(sent.astype(np.float64) - wide)


def message_of(payload: str, sent: Array, update: Array) -> Array:
    """What a client returns to say this update."""
    return update if returns_gradients(payload) else np.asarray(sent - update)

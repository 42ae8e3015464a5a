"""The messages of a recording, written into another one: those of some clients only."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from numpy.typing import NDArray

from overheard.transcript.messages import Round, layout_for, message_arrays, read_message
from overheard.transcript.store import Recorder, Recording


def copy_rounds(recording: Recording, recorder: Recorder, clients: Collection[str]) -> None:
    """What went over the links of these clients; a round in which none took part is left out."""
    for entry in recording.rounds:
        heard: dict[str, dict[str, dict[str, NDArray[Any]]]] = {"sent": {}, "returned": {}}
        for way, client in entry.spans:
            if not client or client in clients:
                heard[way][client] = _message(recording, entry, way, client)
        own, back = heard["sent"], heard["returned"]
        if not back:
            continue
        shared = own.pop("", {})
        if own and shared:
            own = {c: own.get(c, shared) for c in back}
        weights = {c: w for c, w in entry.weights.items() if c in clients}
        recorder.round(entry.number, own or shared, back, weights)


def _message(recording: Recording, entry: Round, way: str, who: str) -> dict[str, NDArray[Any]]:
    raw = read_message(recording.path / "wire", entry, way, who)
    return dict(message_arrays(layout_for(entry.layout, way), raw))

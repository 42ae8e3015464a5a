"""The messages of a recording, written into another one: renamed, or some clients' only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from numpy.typing import NDArray

from overheard.transcript.messages import TOTAL, Round, layout_for, message_arrays, read_message
from overheard.transcript.store import Recorder, Recording


def copy_rounds(
    recording: Recording,
    recorder: Recorder,
    names: Mapping[str, str] | None = None,
    clients: Collection[str] | None = None,
) -> None:
    """Every message under the clients' new names; ``clients``: only what went over their links.

    A round in which none of these took part is left out.
    """
    new = names or {}
    for entry in recording.rounds:
        if entry.aggregated:
            who = entry.participants
            renamed = None if who is None else [new.get(c, c) for c in who]
            sent, total = (_message(recording, entry, *key) for key in (("sent", ""), TOTAL))
            recorder.aggregated(entry.number, sent, total, renamed)
            continue
        heard: dict[str, dict[str, dict[str, NDArray[Any]]]] = {"sent": {}, "returned": {}}
        for way, client in entry.spans:
            if clients is None or not client or client in clients:
                heard[way][new.get(client, client)] = _message(recording, entry, way, client)
        own, back = heard["sent"], heard["returned"]
        if clients is not None and not back:
            continue
        shared = own.pop("", {})
        if own and shared:
            own = {c: own.get(c, shared) for c in back}
        weights = {
            new.get(c, c): w for c, w in entry.weights.items() if clients is None or c in clients
        }
        recorder.round(entry.number, own or shared, back, weights)


def _message(recording: Recording, entry: Round, way: str, who: str) -> dict[str, NDArray[Any]]:
    raw = read_message(recording.path / "wire", entry, way, who)
    return dict(message_arrays(layout_for(entry.layout, way), raw))

"""Recording while a federation runs: one message at a time, from any thread, in any framework.

The recording on disk has whole rounds. `Recorder` keeps the messages of the present round and
writes it when a later one begins, or when it is closed; a process that is killed loses that round
and the one that is being written, nothing else. `Listener` is for who listens to a framework:
without disturbing it, and whatever the order in which replies come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, OverheardError
from overheard.transcript import store
from overheard.transcript.kind import write
from overheard.transcript.messages import Arrays, check_client, releases_arrays, update_of
from overheard.transcript.view import InTheClear

EVERYBODY = ""
log = logging.getLogger("overheard")

# What reading somebody's message and writing it to a disk can raise.
FAILURES = (
    *(OverheardError, OSError, ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, MemoryError, RuntimeError),
)
KEEP = 10  # rounds for which an answer is still waited for
LATE = (
    "Some replies came when their round was over; they are recorded, with the model that was sent "
    "for them, in the round in which they came."
)


@dataclass
class _Round:
    """What was observed of the round that is going on."""

    number: int
    sent: dict[str, Arrays] = field(default_factory=dict)
    returned: dict[str, Arrays] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    mean: Arrays | None = None
    participants: tuple[str, ...] = ()


class Recorder:
    """Writes a recording as its messages pass. Use as a context manager, or call `close`.

    ``path`` must not exist. ``payload``: what clients return: models, gradients, or the releases of
    a program that trains no network, whose messages may change their arrays from round to round.
    Rounds must not go back; within a round messages may come in any order and from any thread, and
    what is written is the same whatever the order. An array must not change between the call and
    the end of its round; never, where somebody else writes rounds while the next ones go on, which
    is who is ``behind``.
    """

    behind: Executor | None = None

    def __init__(
        self, path: str | Path, payload: str = "model", about: Mapping[str, Any] | None = None
    ) -> None:
        self._store = store.Recorder(path, payload, about)
        self._payload = payload
        self._writing: Future[None] | None = None
        self._lock = RLock()
        self._round: _Round | None = None
        self._last = -1
        self._types: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        self._notes: dict[str, None] = {}
        self._clear: dict[str, dict[str, list[float | str]]] = {}
        self._closed = False

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(finished=error is None)

    def sent(self, number: int, client: str, arrays: Arrays) -> None:
        """The server sent these arrays to a client; to all of them if its name is empty."""
        with self._lock:
            observed = self._at(number)
            observed.sent[client and check_client(client)] = _as_arrays(arrays)

    def returned(
        self, number: int, client: str, arrays: Arrays, weight: float = float("nan")
    ) -> None:
        """A client returned these arrays; ``weight`` is the record count that it reports."""
        with self._lock:
            observed = self._at(number)
            observed.returned[check_client(client)] = _as_arrays(arrays)
            observed.weights[client] = float(weight)

    def aggregated(self, number: int, arrays: Arrays, participants: Iterable[str]) -> None:
        """Under secure aggregation: the mean of what the participants returned, and who they were.

        Not needed where `returned` is called.
        """
        with self._lock:
            observed = self._at(number)
            observed.mean = _as_arrays(arrays)
            observed.participants = tuple(sorted(participants))

    def clear(self, what: str, client: str, value: float | str) -> None:
        """Something else that a client's message holds in the clear: a metric, a count, a name."""
        with self._lock:
            self._clear.setdefault(what, {}).setdefault(client, []).append(value)

    def note(self, sentence: str) -> None:
        """A finding about the messages themselves, which audits repeat; each is kept once."""
        self._notes[sentence] = None  # without the lock: whoever writes behind may not wait for it

    def close(self, finished: bool = True) -> None:
        """Write the last round and mark the recording as finished.

        Where it is not (the run failed) it stays unfinished, as `overheard verify` will say. If not
        even the last round can be written (a full disk), the earlier ones stand as they are.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._write()
                self._finish()
                self._write_clear()
            except BaseException:
                self._store.release()
                raise
            if finished:
                self._store.close()
            else:
                self._store.release()

    def drop(self) -> None:
        """Leave the recording as it stands on the disk, without the round that is going on."""
        with self._lock:
            self._round = None
            self._notes, self._clear = {}, {}
            self.close(finished=False)

    def _at(self, number: int) -> _Round:
        """The round of this number, after the one before is on the disk or on its way there."""
        number = int(number)
        if self._closed:
            raise FixData(f"round {number}: the recording is closed; begin another")
        if self._round is not None and number == self._round.number:
            return self._round
        last = self._last if self._round is None else self._round.number
        if number <= last:
            raise FixData(f"round {number} comes after round {last}; rounds must not go back")
        self._write()
        self._round = _Round(number)
        return self._round

    def _write(self) -> None:
        """Write the round that is over, after the one before; behind, nobody waits for it yet."""
        observed, self._round = self._round, None
        self._finish()
        if observed is None or not (observed.returned or observed.mean is not None):
            return
        self._last = observed.number
        write = self._write_individual if observed.returned else self._write_mean
        if self.behind is None:
            write(observed)
        else:
            self._writing = self.behind.submit(write, observed)

    def _finish(self) -> None:
        """Wait for the round that is being written behind; its failure is raised here."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write_individual(self, observed: _Round) -> None:
        returned: dict[str, Arrays] = {
            client: {name: np.asarray(array) for name, array in observed.returned[client].items()}
            for client in sorted(observed.returned)
        }
        broadcast = observed.sent.get(EVERYBODY)
        models = {client: observed.sent.get(client, broadcast) for client in returned}
        if lacking := [client for client, model in models.items() if model is None]:
            raise FixData(
                f"round {observed.number}: {lacking[0]!r} returned a model but was sent none; call "
                "`sent` for it, or once for all with an empty name"
            )
        sent = cast(dict[str, Arrays], models)
        first = next(iter(sent.values()))
        if all(same_arrays(model, first) for model in sent.values()):
            sent = {EVERYBODY: first}
        if not releases_arrays(self._payload):  # a program's messages are what they are
            self._settle([*sent.values(), *returned.values()])
            sent, returned = (self._fitted(observed.number, each) for each in (sent, returned))
            whole = EVERYBODY in sent
            returned = {c: model for c, model in returned.items() if whole or c in sent}
            sent = {c: model for c, model in sent.items() if whole or c in returned}
        if returned:
            weights = {client: observed.weights[client] for client in returned}
            model = sent.get(EVERYBODY, sent)
            self._store.round(observed.number, model, returned, weights)

    def _write_mean(self, observed: _Round) -> None:
        models, count = list(observed.sent.values()), len(observed.participants)
        if not models or not all(same_arrays(model, models[0]) for model in models) or not count:
            raise FixData(
                f"round {observed.number}: a mean is only a sum if one model was sent to all "
                f"(there are {len(models)}), and known of how many it is: name the participants"
            )
        both = {"sent": models[0], "mean": cast(Arrays, observed.mean)}
        self._settle([*both.values()])
        if len(fitted := self._fitted(observed.number, both)) == len(both):
            sent = fitted["sent"]
            total = {
                name: count * update_of(self._payload, sent[name], array)
                for name, array in fitted["mean"].items()
            }
            self._store.aggregated(observed.number, sent, total, observed.participants)

    def _settle(self, messages: list[Arrays]) -> None:
        """The first round in which there are such settles which arrays all messages have, and types
        wide enough: a federation may send float32 and be returned float64, and the wider type holds
        both. What not every message holds is left out."""
        if not self._types:
            self._types = {
                name: (np.result_type(*(m[name].dtype for m in messages)), array.shape)
                for name, array in messages[0].items()
                if all(name in m and m[name].shape == array.shape for m in messages)
            }
        beside = sorted({name for m in messages for name in m} - set(self._types))
        if self._types and beside:
            self.note(f"Arrays that are not in every message were left out: {', '.join(beside)}.")

    def _fitted(self, number: int, messages: Mapping[str, Arrays]) -> dict[str, Arrays]:
        """Of each message the arrays that the recording holds, in its types; what does not fit is
        left out or rounded, and a note says so."""
        fitted = dict[str, Arrays]()
        for key, arrays in messages.items():
            shapes = {name: a.shape for name, a in arrays.items() if name in self._types}
            if not shapes or shapes != {name: shape for name, (_, shape) in self._types.items()}:
                self.note(f"A message of round {number} was left out: it holds another model.")
                continue
            for name, (kind, _) in self._types.items():
                if not np.can_cast(arrays[name].dtype, kind):
                    self.note(
                        f"{name} came as {arrays[name].dtype}, too, and was rounded to {kind}."
                    )
            types = self._types.items()
            fitted[key] = {name: arrays[name].astype(kind, copy=False) for name, (kind, _) in types}
        return fitted

    def _write_clear(self) -> None:
        if self._notes or self._clear:
            values = {
                what: {client: tuple(by[client]) for client in sorted(by)}
                for what, by in sorted(self._clear.items())
            }
            write(self._store, InTheClear(tuple(self._notes), values))


@dataclass(frozen=True)
class Later:
    """An array of a message that came back, which is read when its round is written."""

    read: Callable[[], NDArray[Any]]

    def __array__(self, *how: Any, **more: Any) -> NDArray[Any]:
        return self.read()


def _as_arrays(arrays: Arrays) -> dict[str, NDArray[Any]]:
    if not arrays:
        raise FixData("a message without arrays; give the model's arrays by name")
    return {str(name): _as_array(array) for name, array in arrays.items()}


def _as_array(array: Any) -> NDArray[Any]:
    """numpy has no bfloat16, and float32 holds every bfloat16 exactly; listeners see it by the
    zeros at the end of every number."""
    if isinstance(array, Later):
        return cast(NDArray[Any], array)
    if str(getattr(array, "dtype", "")).endswith("bfloat16"):
        if hasattr(array, "detach"):  # a torch tensor
            return np.asarray(array.detach().float().cpu())
        return np.asarray(array).astype(np.float32)
    return np.asarray(array)


def same_arrays(one: Arrays, other: Arrays) -> bool:
    """Whether two messages say the same; quick if they are made of the same arrays."""

    def content(array: NDArray[Any]) -> Any:
        return array.dtype, array.shape, array.tobytes()

    return one.keys() == other.keys() and all(
        array is other[name] or content(array) == content(other[name])
        for name, array in one.items()
    )


class Listener:
    """Passes what it hears on to a recorder, until the first failure, and knows which message a
    reply answers and in which round it stands.

    A recorder that fails ends its recording, never the federation: the failure is logged once; the
    recording keeps the rounds that are on the disk and stays unfinished, which `overheard verify`
    and every audit of it say.

    Rounds only go forward, and each records a client once. A reply belongs to the round that it was
    asked for in; one that comes when a later round has begun is put into that one, so that
    nothing is lost where replies are not waited for.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder: Recorder | None = recorder
        recorder.behind = ThreadPoolExecutor(1)  # whoever listens reads what it hears into its own
        self._lock = RLock()
        self._waiting: dict[Hashable, tuple[int, Arrays]] = {}
        self._latest = self._now = -1
        self._present: set[str] = set()

    def hear(self, tell: Callable[[Recorder], None]) -> None:
        """Tell the recorder something; what goes wrong is the recording's matter only."""
        with self._lock:
            if self._recorder is None:
                return
            try:
                tell(self._recorder)
            except FAILURES as error:
                self._fail(self._recorder, error)

    def end(self, error: BaseException | None = None) -> None:
        """The run is over, well or with an error."""
        self.hear(lambda r: r.close(finished=error is None))

    def asked(self, key: Hashable, number: int, model: Arrays) -> None:
        """A message of a round went out with this model."""
        with self._lock:
            self._waiting[key] = (number, model)
            if number > self._latest:
                self._latest = number
                self._waiting = {k: s for k, s in self._waiting.items() if s[0] > number - KEEP}

    def answered(self, key: Hashable) -> tuple[int, Arrays] | None:
        """The round and the model of the message that is answered now, if it is known."""
        with self._lock:
            return self._waiting.pop(key, None)

    def place(self, number: int, client: str) -> int:
        """The round in which a reply to a message of round ``number`` is recorded."""
        place = max(number, self._now)
        if place == self._now and client in self._present:
            place += 1
        if place > self._now:
            self._now, self._present = place, set()
        self._present.add(client)
        return place

    def record(
        self, sent: tuple[int, Arrays], client: str, returned: Arrays, weight: float
    ) -> None:
        """Write down what was sent, as `answered` gave it, and what came back."""

        def tell(recorder: Recorder) -> None:
            number, model = sent
            place = self.place(number, client)
            if place != number:
                recorder.note(LATE)
            recorder.sent(place, client, model)
            recorder.returned(place, client, returned, weight)

        self.hear(tell)

    def _fail(self, recorder: Recorder, error: BaseException) -> None:
        self._recorder = None
        log.error(
            "recording stopped (%s: %s); the federation goes on, the rounds so far are kept",
            type(error).__name__,
            error,
        )
        try:
            recorder.drop()
        except FAILURES as again:
            log.error("the recording could not be let go: %s", again)

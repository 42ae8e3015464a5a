"""Recording a Flower federation at its `Grid`, which all traffic of a ServerApp crosses.

`ListeningGrid` passes every call on to the real grid and reads the messages that go by: whatever
the strategy, Message API or legacy, from the main thread or from Flower's pool of threads. Nothing
is added to a message or taken from it. Names of clients are their node ids, 64 bits unsigned.

Under SecAgg+ the updates themselves are masked; what is recorded then is who took part and the
model that the server makes of the sum, which is the next one that it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedXgbBagging, FedXgbCyclic, Strategy

from overheard.files import refuse_existing
from overheard.recorders.recorder import Later, Listener, Recorder, same_arrays
from overheard.transcript.messages import Arrays

WEIGHTS = ("num-examples", "num_examples")
SECURE = "secaggplus_configs"  # the record in which the SecAgg+ workflow keeps its own messages
MASKED = "masked_params"


def record(
    strategy: Strategy, path: str | Path, *, payload: str = "", name_by: str = ""
) -> Strategy:
    """The strategy, whose `start` also writes a recording of every training round to ``path``.

    ``name_by``: a metric of the replies whose value names the client in place of its node id.
    ``payload``: "gradient" if clients return gradients, "release" if they run a program that trains
    no network, which Flower's own XGBoost strategies need not say; else "model". ``path`` must not
    exist yet: a place that cannot be written to is refused before anything is sent. What goes wrong
    later (a full disk) ends the recording, is logged, and leaves the federation alone.
    """
    refuse_existing(path)
    trees = isinstance(strategy, FedXgbBagging | FedXgbCyclic)
    kind, start = payload or ("release" if trees else "model"), strategy.start

    def recorded(grid: Grid, *args: Any, **options: Any) -> Any:
        weight = getattr(strategy, "weighted_by_key", None)
        keys = WEIGHTS if weight is None else (str(weight),)
        listening = _open(grid, path, kind, name_by, keys)
        return listening.during(lambda observed: start(observed, *args, **options))

    strategy.start = recorded  # type: ignore[method-assign]  # the strategy is otherwise itself
    return strategy


def record_app(
    app: ServerApp, path: str | Path, *, payload: str = "model", name_by: str = ""
) -> ServerApp:
    """The whole ServerApp, legacy ones included, recorded; the options are those of `record`."""
    recorded = ServerApp()

    @recorded.main()
    def main(grid: Grid, context: Context) -> None:
        listening = _open(grid, path, payload, name_by, WEIGHTS)
        listening.during(lambda observed: app(observed, context))

    return recorded


def _open(
    grid: Grid, path: str | Path, payload: str, name_by: str, weights: tuple[str, ...]
) -> ListeningGrid:
    about = {"framework": "flower", "version": version("flwr")}
    return ListeningGrid(grid, Listener(Recorder(path, payload, about)), name_by, weights)


@dataclass
class _Sum:
    """A round of SecAgg+ whose sum is not known yet."""

    number: int
    sent: Arrays
    participants: dict[str, None] = field(default_factory=dict)


@Grid.register
@dataclass(eq=False, repr=False)
class ListeningGrid:
    """Passes everything on to another grid and records the training messages that go by."""

    _inner: Grid
    _listener: Listener
    _name_by: str
    _weights: tuple[str, ...]
    _counted: int = 0
    _reached: set[int] = field(default_factory=set)  # by the round that is counted, if one is
    _decoded: tuple[tuple[Any, ...], Arrays] = ((), {})
    _sum: _Sum | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # while a copy is being made
            raise AttributeError(name)
        return getattr(self._inner, name)

    def during(self, run: Callable[[Grid], Any]) -> Any:
        """Run on this grid, then finish the recording; an error of the run leaves it unfinished."""
        try:
            outcome = run(cast(Grid, self))
        except BaseException as error:
            self._listener.end(error)
            raise
        self._listener.hear(self._note_lost_sum)
        self._listener.end()
        return outcome

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return cast(Iterable[str], self._passed(list(messages), self._inner.push_messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._answered(self._inner.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        passing = partial(self._inner.send_and_receive, timeout=timeout)
        return self._answered(self._passed(list(messages), passing))

    def _passed(self, messages: list[Message], passing: Callable[[list[Message]], Any]) -> Any:
        """What the grid makes of messages. Round and model of each that trains are read before, as
        the grid may take it apart, and kept under the id that the grid has given it by then."""
        seen: list[tuple[int, Arrays] | None] = []
        self._listener.hear(lambda r: seen.extend(self._hear_sending(r, m) for m in messages))
        passed = passing(messages)
        for message, sent in zip(messages, seen, strict=False):  # none observed: it failed before
            if sent is not None:
                self._listener.asked(message.metadata.message_id, *sent)
        return passed

    def _answered(self, replies: Iterable[Message]) -> Sequence[Message]:
        """The replies, if need be as a list: they are read twice, by us and by the strategy."""
        there = replies if isinstance(replies, Sequence) else list(replies)

        def tell(recorder: Recorder) -> None:
            for one in there:
                self._hear_reply(recorder, one)

        self._listener.hear(tell)
        return there

    def _hear_sending(self, recorder: Recorder, message: Message) -> tuple[int, Arrays] | None:
        content = message.content if message.has_content() else RecordDict()
        if not any(content.array_records.values()):
            return None
        arrays = self._decode(content)
        if self._sum is not None and self._sum.participants:
            self._hear_sum(recorder, arrays)
        if not _is_training(message):
            return None
        number = self._round_of(message)
        if SECURE in content.config_records and (self._sum is None or self._sum.number != number):
            self._sum = _Sum(number, arrays)
        return number, arrays

    def _hear_reply(self, recorder: Recorder, reply: Message) -> None:
        sent = self._listener.answered(reply.metadata.reply_to_message_id)
        if sent is None or not reply.has_content() or not _is_training(reply):
            return
        content = reply.content
        metrics = _metrics(content)
        client = str(metrics.get(self._name_by, reply.metadata.src_node_id))
        weight = next((metrics[key] for key in self._weights if key in metrics), np.nan)
        for name, value in metrics.items():
            if name != self._name_by:
                recorder.clear(name, client, value)
        if SECURE in content.config_records:
            if self._sum is not None and MASKED in content.config_records[SECURE]:
                self._sum.participants[client] = None
                recorder.note(
                    "SecAgg+ hides each client's model, not what it reports beside it: record "
                    "counts and metrics reach the server in the clear."
                )
            return
        if any(content.array_records.values()):
            later = {name: Later(array.numpy) for name, array in _named(content).items()}
            self._listener.record(sent, client, cast(Arrays, later), float(weight))

    def _hear_sum(self, recorder: Recorder, after: Arrays) -> None:
        """The next model that is sent is what the server made of the sum."""
        done, self._sum = self._sum, None
        if done is None or same_arrays(after, done.sent):
            return  # the same model again: the round failed and nothing came of it
        recorder.sent(done.number, "", done.sent)
        recorder.aggregated(done.number, after, done.participants)
        recorder.note(
            "Of rounds under SecAgg+ the sum is recorded as the number of participants times the "
            "change of the global model; the clients' shares in it are weighted by record count."
        )

    def _note_lost_sum(self, recorder: Recorder) -> None:
        if self._sum is not None and self._sum.participants:
            recorder.note(
                f"The sum of round {self._sum.number} was not observed: no model was sent after it."
            )

    def _round_of(self, message: Message) -> int:
        """By its group id (legacy), by ``server-round`` (strategies), or else counted: a node
        that is sent something again has begun another round."""
        if message.metadata.group_id.isdigit():
            return int(message.metadata.group_id)
        for config in message.content.config_records.values():
            number = config.get("server-round")
            if isinstance(number, int):
                return number
        if not self._reached or message.metadata.dst_node_id in self._reached:
            self._counted += 1
            self._reached = set()
        self._reached.add(message.metadata.dst_node_id)
        return self._counted

    def _decode(self, content: RecordDict) -> Arrays:
        """The arrays of a message that is sent; a broadcast is read once for all who get it."""
        parts = tuple(a.data for record in content.array_records.values() for a in record.values())
        known, arrays = self._decoded
        if len(known) != len(parts) or any(a is not b for a, b in zip(known, parts, strict=True)):
            arrays = {name: array.numpy() for name, array in _named(content).items()}
            self._decoded = (parts, arrays)
        return arrays


def _is_training(message: Message) -> bool:
    return str(message.metadata.message_type).partition(".")[0] == "train"


def _named(content: RecordDict) -> dict[str, Array]:
    """The arrays by name, and by their record's key as well where there are several records."""
    several = len(content.array_records) > 1
    return {
        f"{key}/{name}" if several else name: array
        for key, record in content.array_records.items()
        for name, array in record.items()
    }


def _metrics(content: RecordDict) -> dict[str, float | str]:
    """Every number and word beside the arrays: metric records, and a legacy client's metrics."""
    records: list[Mapping[str, Any]] = list(content.metric_records.values())
    records += [r for key, r in content.config_records.items() if key.endswith(".metrics")]
    return {
        name: value
        for record in records
        for name, value in record.items()
        if isinstance(value, int | float | str)
    }

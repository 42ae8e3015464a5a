"""Recording an NVIDIA FLARE job with a widget of its server.

The widget hears each task's data after the server's filters and each result before them: what is
in a message. It records training tasks of the FedAvg controller and of others that exchange
weights in the same way, and notes what is sent beside them: FedAvg's broadcasts tell every site the
weight of every other one. With ``payload="release"`` it records the messages of a program that
trains no network: gradient and Hessian of FLARE's logistic regression by Newton's method, the
bytes of its XGBoost models, and with ``task="fed_stats"`` its statistics, number by number. Its
histogram-based XGBoost talks past the server's tasks and is not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, FLMetaKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.statistics_spec import Histogram
from nvflare.app_common.app_constant import AppConstants
from nvflare.fuel.utils import fobs
from nvflare.widgets.widget import Widget

from overheard.recorders.recorder import Listener, Recorder
from overheard.transcript.messages import Arrays, releases_arrays


class RecordingWidget(Widget):  # type: ignore[misc]  # nvflare has no types
    """``job.to_server(RecordingWidget("/path/to/run"))``; the path must not exist yet.

    ``task``: the training task's name, as the controller has it. ``payload``: "model", or "release"
    where sites return other arrays than they are sent.
    """

    def __init__(self, path: str, task: str = "train", payload: str = "model") -> None:
        super().__init__()
        self.path = path
        self.task = task
        self.payload = payload
        self._listener: Listener | None = None
        self._tasks: dict[str, int] = {}  # the last of each site, where rounds have no number
        self._failure: BaseException | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        listener, training = self._listener, fl_ctx.get_prop(FLContextKey.TASK_NAME) == self.task
        if event_type == EventType.START_RUN:
            about = {"framework": "nvflare", "version": version("nvflare")}
            self._listener = Listener(Recorder(self.path, self.payload, about))
        elif listener is None:
            return
        elif event_type == EventType.AFTER_TASK_DATA_FILTER and training:
            listener.hear(lambda recorder: self._hear_task(listener, recorder, fl_ctx))
        elif event_type == EventType.BEFORE_TASK_RESULT_FILTER and training:
            listener.hear(lambda recorder: self._hear_result(listener, recorder, fl_ctx))
        elif event_type in (EventType.FATAL_SYSTEM_ERROR, EventType.JOB_ABORTED):
            self._failure = RuntimeError(event_type)
        elif event_type == EventType.END_RUN:
            listener.end(self._failure)

    def _hear_task(self, listener: Listener, recorder: Recorder, fl_ctx: FLContext) -> None:
        data: Shareable = fl_ctx.get_prop(FLContextKey.TASK_DATA)
        number = data.get_header(AppConstants.CURRENT_ROUND)
        talk = _conversation(fl_ctx)
        if releases_arrays(self.payload) and number is None:  # a controller of statistics
            number = self._tasks[talk[1]] = self._tasks.get(talk[1], -1) + 1
            listener.asked(talk, number, _arrays(_inside(data)))
            return
        message = from_shareable(data)
        if message.data_kind != DataKind.WEIGHTS or number is None:
            return
        listener.asked(talk, int(number), _arrays(message.data or {}))
        _note_weights(recorder, message)

    def _hear_result(self, listener: Listener, recorder: Recorder, fl_ctx: FLContext) -> None:
        talk = _conversation(fl_ctx)
        sent = listener.answered(talk)
        if sent is None:
            return
        message = from_shareable(fl_ctx.get_prop(FLContextKey.TASK_RESULT))
        content = message.data
        if message.data_kind == DataKind.STATISTICS:
            content = _inside(content)
        returned = _arrays(content)
        free = releases_arrays(self.payload)  # whose arrays are recorded as they are
        if message.data_kind == DataKind.WEIGHT_DIFF and not free:
            _, model = sent
            returned = {n: model[n] + d for n, d in returned.items() if n in model}
            recorder.note("The sites return differences; they are recorded as sent + difference.")
        elif message.data_kind != DataKind.WEIGHTS and not free:
            return
        _, client = talk
        weight = message.get_meta_prop(FLMetaKey.NUM_STEPS_CURRENT_ROUND)
        count = np.nan if weight is None else float(weight)
        listener.record(sent, client, returned, count)
        for name, value in _metrics(message.meta).items():
            recorder.clear(name, client, value)


class RecordingFilter(RecordingWidget, Filter):  # type: ignore[misc]
    """The same for recipes, which take filters: ``recipe.add_server_output_filter(RecordingFilter(
    "/path/to/run"), ["train"])``. It filters nothing."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        return shareable


def _conversation(fl_ctx: FLContext) -> tuple[str, str]:
    """The task's id and the site at the other end."""
    return str(fl_ctx.get_prop(FLContextKey.TASK_ID)), str(
        fl_ctx.get_peer_context().get_identity_name()
    )


def _inside(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a message of statistics says: a value that FLARE packed as bytes, opened as its own
    server opens it, and by names such as ``histogram/train/age`` every number in it."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if str(name).startswith("__"):  # FLARE's own headers
            continue
        if isinstance(value, Histogram):
            found[name] = [part.sample_count for part in value.bins]
            ends = [part.low_value for part in value.bins]
            found[f"{name}/edges"] = ends + [part.high_value for part in value.bins[-1:]]
        elif isinstance(value, bytes):  # one packed table of a task: its names say enough
            opened = fobs.loads(value)
            found |= _inside(opened) if isinstance(opened, Mapping) else {}
        elif isinstance(value, Mapping):
            found |= {f"{name}/{inner}": number for inner, number in _inside(value).items()}
        elif isinstance(value, int | float):
            found[str(name)] = value
    return found


def _arrays(data: Mapping[str, Any]) -> Arrays:
    """Copies, because the server goes on to add up in place; torch tensors as numpy arrays, bytes
    as arrays of bytes, and of a list of bytes each under the list's name and its place."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], bytes | bytearray):
            found |= _arrays({f"{name}.{place}": one for place, one in enumerate(value)})
        elif isinstance(value, bytes | bytearray):
            found[name] = np.frombuffer(bytes(value), dtype=np.uint8)
        else:
            there = value.detach().cpu().numpy() if hasattr(value, "detach") else value
            found[name] = np.array(there, copy=True)
    return found or {"nothing": np.zeros(0, dtype=np.uint8)}  # the first model of trees, say


def _metrics(meta: Mapping[str, Any]) -> dict[str, float | str]:
    """The numbers among a result's metadata, and its metrics."""
    metrics = meta.get(FLMetaKey.INITIAL_METRICS)
    both = {**meta, **(metrics if isinstance(metrics, Mapping) else {})}
    skip = {FLMetaKey.CURRENT_ROUND, FLMetaKey.TOTAL_ROUNDS, FLMetaKey.START_ROUND}
    return {
        str(name): value
        for name, value in both.items()
        if isinstance(value, int | float) and name not in skip
    }


def _note_weights(recorder: Recorder, message: DXO) -> None:
    """FedAvg puts the weights that it used into the next broadcast's metadata."""
    info = message.get_meta_prop(AppConstants.METRICS_AGGREGATION_INFO)
    weights = info.get("site_weights") if isinstance(info, Mapping) else None
    if not weights:
        return
    recorder.note(
        "FedAvg's broadcast tells every site the weight (aggregation weight times local steps) of "
        f"each of the {len(weights)} sites in the round before: who took part, and how many "
        "records each holds as far as steps show it."
    )
    for site in weights:
        recorder.clear("weight told to all sites", str(site["name"]), float(site["weight"]))

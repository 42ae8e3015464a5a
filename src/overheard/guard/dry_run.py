"""A client's messages, recorded before they are sent, and audited by the audit itself.

A dry run is a small recording in a folder of its own that goes when it has been audited: the models
that the client was sent, what it returns, its own records as the truth. The messages are those of a
simulation (`simulated`), or the ones that the client has really made (`recorded`). What is asked,
by which attacks, and what is decided is `overheard.evaluation`'s business: nothing is measured
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.evaluation.audit import audit
from overheard.federation.federation import Federation
from overheard.federation.plan import Plan, load_data, write_knowledge
from overheard.federation.simulate import simulate
from overheard.guard.exposure import Exposure, Limits, exposures
from overheard.randomness import stream
from overheard.recorders.describe import describe
from overheard.recorders.recorder import Recorder
from overheard.transcript.knowledge import Messages
from overheard.transcript.store import Recording, SideHeader, SideWriter
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import observe

STAND_INS = 3
"""Clients that play the others where there are none: resamples of the client's own records."""
Arrays = dict[str, NDArray[Any]]
Round = tuple[Arrays, Arrays]
"""The arrays that a client was sent, and those that it returns, by their names."""


@dataclass(frozen=True)
class DryRun:
    """A recording in which one client was listened to."""

    recording: Recording
    client: str

    def exposures(self, limits: Limits, targets: Sequence[str] = ()) -> list[Exposure]:
        """What the audit finds of each secret (no ``targets``: all that it asks)."""
        result = audit(self.recording, EAVESDROPPER, clients=[self.client], targets=targets)
        return exposures(self.recording, result, self.client, limits)

    def typical(self) -> float:
        """The typical size of an update's coordinate."""
        view = observe(self.recording, EAVESDROPPER, LOCAL_MODEL, self.client)
        return float(np.sqrt(np.mean(view.know(Messages).updates() ** 2)))


@contextmanager
def simulated(ready: Plan, client: str, rounds: int, draw: int = 0) -> Iterator[DryRun]:
    """The rounds that the client would take part in; ``draw``: of everything that is random.

    It takes part in every round. Others of the plan train beside it, as many as a round has; where
    the plan has none, stand-ins do, whose records are drawn from the client's own: models that only
    ever met one client's data settle down and tell less.
    """
    config, own = ready.config, ready.clients[client]
    seed = int(stream(config.seed, "preflight", draw).integers(2**31))
    rng = stream(seed, "others")
    others = [name for name in ready.clients if name != client]
    some = max(round(config.training.participation * len(ready.clients)) - 1, STAND_INS)
    beside = {name: ready.clients[name] for name in rng.permutation(others)[:some].tolist()} or {
        f"stand-in {number}": own.take(np.sort(rng.integers(len(own), size=len(own))))
        for number in range(STAND_INS)
    }
    training = config.training.model_copy(update={"rounds": rounds, "participation": 1.0})
    config = config.model_copy(update={"seed": seed, "training": training})
    everybody = {client: own} | beside
    with TemporaryDirectory(prefix="overheard-") as name:
        run = Path(name) / "run"
        simulate(replace(ready, config=config, clients=everybody, properties=None), run)
        yield _alone(run, ready, client)


@contextmanager
def recorded(
    about: Plan | Federation, client: str, rounds: Iterable[Round], trust_code: bool = False
) -> Iterator[DryRun]:
    """Rounds that the client has made, on the records of a plan; or as the audit of its federation
    will read them: with the same description, which tells the arrays by their order where the names
    are not ours. ``trust_code``: run the model's factory that the description names."""
    clients = [client]
    payload = (about.config if isinstance(about, Plan) else about).training.payload
    if isinstance(about, Federation):
        about = about.model_copy(update={"clients": {}, "property": None})
        clients = list(load_data(about).by_client())  # columns are scaled over all that are named
    with TemporaryDirectory(prefix="overheard-") as name:
        run, side = Path(name) / "run", Path(name) / "side"
        with Recorder(run, payload, {"clients": clients}) as recorder:
            for number, (sent, returned) in enumerate(rounds):
                recorder.sent(number, client, sent)
                recorder.returned(number, client, returned)
        if isinstance(about, Plan):
            yield _alone(run, about, client)
        else:
            describe(Recording.open(run), about, side, trust_code)
            yield DryRun(Recording.open(run, side), client)


def _alone(run: Path, ready: Plan, client: str) -> DryRun:
    """The recording with what is known of this client, and with no other's records: whoever knows
    those of stand-ins knows the client's."""
    recording, folder = Recording.open(run), run.with_name("side")
    own = replace(ready, clients={client: ready.clients[client]}, properties=None)
    header = SideHeader(messages=recording.digest, names={}, about={"clients": [client]})
    with SideWriter(folder, header) as writer:
        write_knowledge(writer, own)
    return DryRun(recording.described_in(folder), client)

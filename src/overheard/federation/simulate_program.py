"""The simulator for clients that train no network: each answers what the server sends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from overheard.errors import FixConfig, FixData
from overheard.federation.disclosure import write_knowledge
from overheard.federation.plan import Plan
from overheard.federation.rounds import participants
from overheard.programs.program import Message, Program
from overheard.randomness import stream
from overheard.transcript.payload import RELEASE
from overheard.transcript.store import Recorder

Progress = Callable[[int, int], None]


def simulate_program(plan: Plan, program: Program, out: str | Path, progress: Progress) -> Path:
    """Run the federation and write its recording to ``out``; returns the path."""
    training, seed, names = plan.config.training, plan.config.seed, list(plan.clients)
    about = {
        "data": plan.dataset.name,
        "origin": plan.dataset.origin,
        "clients": names,
        "config": plan.config.model_dump(mode="json", exclude={"seed"}),  # which is in truth/
    }
    if empty := [name for name, records in plan.clients.items() if not len(records)]:
        raise FixData(f"client {empty[0]!r} has no records; leave it out")
    with Recorder(out, RELEASE, about) as recorder:
        write_knowledge(recorder, plan)
        recorder.seed(seed)
        sent = program.first()
        for number in range(training.rounds):
            chosen = [
                names[c] for c in participants(len(names), training.participation, seed, number)
            ]
            returned = {client: _answer(program, sent, plan, client, number) for client in chosen}
            sizes = {client: float(len(plan.clients[client])) for client in chosen}
            recorder.round(number, sent, returned, sizes)
            sent = program.following(sent, returned)
            progress(number + 1, training.rounds)
    return Path(out)


def _answer(program: Program, sent: Message, plan: Plan, client: str, number: int) -> Message:
    rng = stream(plan.config.seed, "program", client, number)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        answer = program.respond(sent, plan.clients[client], rng)
    for name, array in answer.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FixConfig(
                f"round {number}: {name!r} of client {client!r} is NaN or infinite: the program "
                "diverged (a model that its records do not determine?); the rounds before are kept"
            )
    return answer

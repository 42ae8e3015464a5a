"""The simulator for clients that train no network: each answers what the server sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from overheard.errors import FixConfig, FixData
from overheard.federation.defences.accounting import budget
from overheard.federation.defences.contract import Chain, RoundContext, chain, told
from overheard.federation.disclosure import write_knowledge
from overheard.federation.plan import Plan
from overheard.federation.rounds import participants
from overheard.programs.program import Message, Program
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.kind import write
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
    defence = chain(*plan.config.defence)
    held = {c: defence.records(r, stream(seed, "records", c)) for c, r in plan.clients.items()}
    sizes = {client: float(len(records)) for client, records in held.items()}
    with Recorder(out, RELEASE, about) as recorder:
        write_knowledge(recorder, plan)
        recorder.seed(seed)
        if defence.parts:
            write(recorder, told(defence.claims))
            if promised := _budgets(defence, sizes, training.rounds):
                recorder.side("PrivacyBudget", promised)
        sent = program.first()
        for number in range(training.rounds):
            chosen = participants(len(names), training.participation, seed, number)
            returned = {
                c: _answer(program, sent, held[c], stream(seed, "program", c, number), (c, number))
                for c in (names[k] for k in chosen)
            }
            if defence.summing is None:
                recorder.round(number, sent, returned, {c: sizes[c] for c in returned})
            else:
                context = RoundContext(number, chosen, stream(seed, "masks", number))
                total, who = _summed(defence, returned, context)
                recorder.aggregated(number, sent, total, who)
                returned = {"": total}
            sent = program.following(sent, returned)
            progress(number + 1, training.rounds)
    return Path(out)


def _budgets(defence: Chain, sizes: Mapping[str, float], rounds: int) -> dict[str, object]:
    """The differential privacy that is promised to a record, the same at every client."""
    found = budget(defence.claims, None, 1, rounds, int(sum(sizes.values())))
    return {} if found is None else dict.fromkeys(sizes, found.as_json())


def _summed(
    defence: Chain, returned: Mapping[str, Message], context: RoundContext
) -> tuple[Message, list[str]]:
    """What the server learns of the answers, and whose sum it is."""
    flat = np.array(
        [np.concatenate([np.ravel(a) for a in answer.values()]) for answer in returned.values()]
    )
    total, answered = defence.total(defence.upload(flat, context), context)
    like, names = next(iter(returned.values())), list(returned)
    ends = np.cumsum([np.size(array) for array in like.values()])[:-1]
    parts = zip(like.items(), np.split(total, ends), strict=True)
    whole = {name: part.reshape(np.shape(array)) for (name, array), part in parts}
    return whole, [names[k] for k in answered]


def _answer(
    program: Program,
    sent: Message,
    records: Records,
    rng: np.random.Generator,
    place: tuple[str, int],
) -> Message:
    client, number = place
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        answer = program.respond(sent, records, rng)
    for name, array in answer.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FixConfig(
                f"round {number}: {name!r} of client {client!r} is NaN or infinite: the program "
                "diverged (a model that its records do not determine?); the rounds before are kept"
            )
    return answer

"""Does the guard let out what the audit exposes, and is preflight easy about it beforehand?

Federations are drawn: their people, the secret (balanced, rare, of three values), the model, the
recipe, the defence, what else is asked. **guard**: each client's updates go through
`overheard.flower.guard_mod`, round by round (in two federations of three it adds noise); what
left is averaged, recorded and audited. A fault is a secret that the audit exposes; the cost is
what did not leave, and processor time (with the audits of what left). **preflight**:
the federation is simulated and audited, and each client asks beforehand, with another seed, once
from a file with its own records alone, once with the whole config. A fault is a secret that is
exposed and was called ok.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.recordings import simulated, write_csv
from experiments.robustness.promises import total, tried
from experiments.runner import Cell, Experiment, Result, cell
from overheard.errors import FixConfig, FixData
from overheard.evaluation.audit import audit
from overheard.evaluation.decision import EXPOSED
from overheard.federation.federation import Federation, parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import client_shards
from overheard.guard.preflight import preflight
from overheard.programs.networks import initial
from overheard.programs.recipe import named
from overheard.programs.training import local_training
from overheard.recorders.describe import describe
from overheard.recorders.recorder import Recorder
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

Settings = dict[str, Any]
FEDERATIONS, CLIENTS, ROUNDS = 30, 4, 10
"""Of the guard: 120 clients."""
NOISES = (0.0, 0.1, 1.0)
"""Standard deviations of what a guard adds, in turn: without it hardly anything leaves."""
OTHER_SEED = 1000
EASY = ("ok", "not asked")
DEFENCES: dict[str, list[Settings]] = {
    "none": [],
    "little noise": [{"name": "gaussian", "sd": 1e-4}],
    "noise": [{"name": "gaussian", "sd": 0.01}],
    "much noise": [{"name": "gaussian", "sd": 1.0}],
    "clipped, noise": [{"name": "clip", "norm": 0.1}, {"name": "gaussian", "sd": 0.02}],
    "column left out": [{"name": "drop_column", "columns": ["secret"]}],
}


def drawn(number: int) -> tuple[Settings, Settings]:
    """How the federation's table is made, and its config."""
    rng = np.random.default_rng([0, number])

    def one_of(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    model = one_of("linear", "logistic", "mlp")
    people = {
        "clients": one_of(2, 2, 3),
        "records": one_of(24, 36, 50),
        "columns": one_of(3, 6, 9),
        "secret": one_of("balanced", "rare", "three values"),
        "classes": model == "logistic",
        "effect": one_of(0.0, 0.8),
    }
    training = {"rounds": one_of(1, 5, 30), "learning_rate": one_of(0.02, 0.1)}
    training |= one_of({"algorithm": "fedavg"}, {"algorithm": "fedsgd"},
                       {"batch_size": one_of(0, 16), "epochs": one_of(2, 4)})  # fmt: skip
    content: Settings = {
        "seed": number,
        "model": {"name": model} | ({"hidden": [one_of(8, 24)]} if model == "mlp" else {}),
        "training": training | {"participation": one_of(1.0, 0.5)},
        "audit": {"attributes": ["secret"]} | one_of({}, {"membership": 12}),
        "defence": DEFENCES[one_of("none", "none", *DEFENCES)],
    }
    if model != "logistic":
        content["audit"] |= one_of({}, {}, {"label": True})
    return people, content


def write_tables(people: Settings, number: int, folder: Path) -> dict[str, Path]:
    """One table of each client's own records, and everybody's (by the name "")."""
    rng = np.random.default_rng([0, number, 1])
    records, columns = people["records"], people["columns"]
    tables: dict[str, list[list[Any]]] = {}
    for client in range(people["clients"]):
        x = rng.normal(size=(records, columns)) + 0.3 * rng.normal(size=columns)
        if people["secret"] == "three values":
            secret: Any = rng.integers(3, size=records)
        elif people["secret"] == "balanced":
            secret = np.where(rng.random(records) < 0.45, 1, 0)
        else:
            secret = (rng.permutation(records) < 2).astype(int)
        y = x @ np.linspace(1, -1, columns) + people["effect"] * secret
        y = y + 0.5 * rng.normal(size=records)
        if people["classes"]:
            y = np.where(y + rng.logistic(size=records) > 0, "yes", "no")
        name = f"site {client}"
        tables[name] = [[name, *x[i], "abc"[secret[i]], y[i]] for i in range(records)]
    head = ["client", *(f"x{j}" for j in range(columns)), "secret", "y"]
    tables[""] = [row for rows in tables.values() for row in rows]
    paths = {name: folder / f"{name or 'everybody'}.csv" for name in tables}
    for name, path in paths.items():
        write_csv(path, [head, *tables[name]])
    return paths


def on(content: Settings, path: Path, **changes: Any) -> Settings:
    """The config on one of the tables."""
    data = {"source": "file", "path": str(path), "client": "client", "target": "y"}
    return {**content, "data": data, **changes}


# ------------------------------------------------------------------------------------- the guard


def guarded(each: Cell) -> dict[str, Any]:
    """A federation whose clients guard themselves: how many updates left, and what they expose."""
    logging.getLogger("overheard.guard").setLevel(logging.ERROR)  # it says every refusal
    (people, content), begin = drawn(each["federation"]), time.process_time()
    kept = ("learning_rate", "batch_size", "epochs")
    training = {name: content["training"][name] for name in kept if name in content["training"]}
    about = {"model": content["model"], "training": training, "audit": {"attributes": ["secret"]}}
    with tempfile.TemporaryDirectory(prefix="overheard-guard-") as name:
        folder = Path(name)
        # half as many records as preflight's clients have, as every update is audited
        people |= {"clients": CLIENTS, "records": people["records"] // 2}
        path = write_tables(people, each["federation"], folder)[""]
        said = Federation.model_validate(on(about, path))
        sd = NOISES[each["federation"] % len(NOISES)]
        left = _listened(said, on(about, path, seed=each["federation"]), sd, folder / "run")
        exposed: set[str] = set()
        for noise in {0.0, sd} if left else ():  # who listens may reckon with it or not
            defence = [{"name": "gaussian", "sd": noise}] if noise else []
            told = Federation.model_validate(on({**about, "defence": defence}, path))
            describe(Recording.open(folder / "run"), told, folder / f"side-{noise}")
            run = Recording.open(folder / "run", folder / f"side-{noise}")
            found = audit(run, EAVESDROPPER)
            exposed |= {_named(s) for s in found.secrets if s.level == EXPOSED}
    cost = {"left": left, "updates": CLIENTS * ROUNDS, "cpu seconds": time.process_time() - begin}
    return tried(CLIENTS, len(exposed), ", ".join(exposed)) | cost


def _trained(content: Any, message: Any, context: Any) -> Any:
    """What the app below the guard answers."""
    from flwr.app import Message

    return Message(content, reply_to=message)


def _listened(said: Federation, config: Settings, noise: float, run: Path) -> int:
    """Record the rounds of clients behind `guard_mod`, which adds noise; how many updates left."""
    from flwr import app as flwr
    from flwr.supercore.task_identity import TaskIdentity

    from overheard.flower import Guarding, guard_mod

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    ready = plan(parse_config({**config, "training": {**config["training"], "rounds": ROUNDS}}))
    recipe, rng = ready.recipe, np.random.default_rng([1, config["seed"]])
    model = initial(recipe.model, config["seed"]).astype(np.float32)
    states = {client: flwr.RecordDict() for client in ready.clients}
    left = 0

    def packed(flat: Any) -> Any:
        arrays = named(recipe.model.layout(), flat.astype(np.float32)).items()
        pieces = {n: flwr.Array(np.ascontiguousarray(array)) for n, array in arrays}
        return flwr.RecordDict({"arrays": flwr.ArrayRecord(pieces)})

    with Recorder(run, "model", {"clients": list(ready.clients)}) as recorder:
        for number in range(ROUNDS):
            passed, sizes = [], []
            for k, (client, records) in enumerate(ready.clients.items()):
                data = client_shards(recipe, {client: records})
                after = local_training(recipe, model, data, rng)[0]
                message = flwr.Message(packed(model), dst_node_id=1, message_type="train")
                message.metadata.__dict__["_message_id"] = "1"
                context = flwr.Context(1, 1, {}, states[client], {})
                guard = guard_mod(
                    said, client, how=Guarding(seed=ROUNDS * k + number, noise_sd=noise)
                )
                reply: Any = guard(message, context, partial(_trained, packed(after)))
                if not reply.has_error():
                    recorder.sent(number, client, dict(named(recipe.model.layout(), model)))
                    returned = {n: a.numpy() for n, a in reply.content["arrays"].items()}
                    recorder.returned(number, client, returned, float(len(records)))
                    passed.append(np.concatenate([a.ravel() for a in returned.values()]))
                    sizes.append(len(records))
            left += len(passed)
            if passed:
                model = np.average(passed, axis=0, weights=sizes).astype(np.float32)
    return left


# --------------------------------------------------------------------------------- beforehand


def asked(each: Cell) -> dict[str, Any]:
    """One federation: what the audit finds of each client, and what preflight said before."""
    people, content = drawn(each["federation"])
    with tempfile.TemporaryDirectory(prefix="overheard-preflight-") as name:
        paths = write_tables(people, each["federation"], Path(name))
        run = simulated(on(content, paths[""]), None, Path(name) / "run")
        said: dict[tuple[str, str, str], str] = {}
        for client in run.clients:
            secrets = audit(run, EAVESDROPPER, clients=[client]).secrets
            for mode, path in (("own records", paths[client]), ("whole config", paths[""])):
                config = on(content, path, seed=each["federation"] + OTHER_SEED)
                answers = _answers(config, client)
                for s in secrets:
                    answer = answers.get(_named(s), answers.get("refused", "not asked"))
                    said[mode, f"{_named(s)} of {client}", s.level] = answer
    exposed = {key: answer for key, answer in said.items() if key[2] == EXPOSED}
    easy = {key: answer for key, answer in exposed.items() if answer in EASY}
    words = "; ".join(f"{mode}: {secret} was {a}" for (mode, secret, _), a in easy.items())
    ok = sum(answer == "ok" for answer in said.values())
    return tried(len(said), len(easy), words) | {"exposed": len(exposed), "ok": ok}


def _named(secret: Any) -> str:
    return f"{secret.question} {secret.attribute or ''}".strip()


def _answers(config: Settings, client: str) -> dict[str, str]:
    """Preflight's answer on every secret, or that there is none."""
    try:
        found = preflight(parse_config(config), client, changes=False)
    except (FixConfig, FixData):
        return {"refused": "refused"}
    return {_named(e): e.answer(found.limits) for e in found.exposures}


def _left(found: Sequence[Result]) -> str:
    seconds = sum(r.values["cpu seconds"] for r in found) / total(found, "updates")
    said = f"{total(found, 'left'):,} of {total(found, 'updates'):,} updates left, and the audit "
    return said + f"exposes {total(found, 'faults')} secrets; {seconds:.2f} s of a processor each"


def _said(found: Sequence[Result]) -> str:
    return (
        f"{total(found, 'exposed')} exposed, of which {total(found, 'faults')} were called ok; "
        f"the answer was ok {total(found, 'ok')} times"
    )


EXPERIMENTS = (
    Experiment(
        "robustness-guard",
        "what leaves guarded clients, and what the audit then exposes",
        guarded,
        lambda: [cell(federation=n, cost=20, quick=n < 1) for n in range(FEDERATIONS)],
        must="What the guard lets leave is not exposed",
        came=_left,
    ),
    Experiment(
        "robustness-preflight",
        "what preflight says, beside what the audit then finds",
        asked,
        lambda: [cell(federation=n, cost=60, quick=n < 1) for n in range(36)],
        must="`overheard preflight` says ok of nothing that the audit then exposes",
        came=_said,
    ),
)

"""Small federations, recorded: of generated people, and one for every family of attacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from quick_attacks import attack_named

from overheard import Recording, Target, Threat, View, launch, observe, parse_config, plan, simulate
from overheard.attacks.papers.kerkouche2023 import Options
from overheard.data.dataset import Dataset
from overheard.evaluation.record import Finding
from overheard.evaluation.scoring import Case, answers_in
from overheard.federation.plan import Plan
from overheard.programs.program import Candidates, Exchange, Program, families
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.transcript.kind import EVERYBODY, program_in, recipe_of
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER, SERVER


def recorded(
    path: Path,
    model: dict[str, Any] | None = None,
    change: Callable[[Dataset], Dataset] = lambda dataset: dataset,
    clients: int = 4,
    people: int = 120,
    columns: int = 3,
    seed: int = 0,
    audit: dict[str, Any] | None = None,
    **training: Any,
) -> Recording:
    """A small federation of generated people; see the fixture ``federate``."""
    model = {"name": "linear"} if model is None else model
    rate = {} if model["name"] in families() else {"learning_rate": 0.1}
    defence = training.pop("defence", [])
    recipe = {"rounds": 30, **rate, "participation": 0.5, **training}
    config = {
        "seed": seed,
        "data": {"source": "file"},
        "model": model,
        "training": recipe,
        "audit": audit or {},
        "defence": defence,
    }
    kind = (model["name"], model.get("likelihood"), model.get("objective"))
    classify = bool({"logistic", "binary:logistic"} & set(kind))
    dataset = change(generated_people(clients, people, columns, seed, classify))
    return simulated(path, config, dataset)


def generated_people(
    clients: int, people: int, columns: int, seed: int, classify: bool = False
) -> Dataset:
    """People of several clients whose attribute leaves traces in the rest."""
    rng = np.random.default_rng(seed)
    rows = clients * people
    s = (rng.random(rows) < 0.4).astype(np.float64)
    x = rng.normal(size=(rows, columns))
    x[:, 0] += 0.8 * s
    y = x @ rng.normal(size=columns) + 1.5 * s + rng.normal(0, 0.7, rows)
    table = {f"x{j}": x[:, j] for j in range(columns)}
    label = (y > np.median(y)).astype(np.float64) if classify else y
    return Dataset(
        name="people",
        records=Records({**table, "s": s, "y": label, "at": np.arange(rows) % clients}),
        client="at",
        target="y",
        task="classification" if classify else "regression",
        sensitive=("s",),
        origin="generated",
    )


class Family(NamedTuple):
    """A federation (of other people for another seed), who listens to it, what is asked, and the
    attacks that apply there."""

    made: Callable[..., Recording]
    threat: Threat
    target: str
    attacks: tuple[str, ...]


def _people(model: dict[str, Any], audit: dict[str, Any], **settings: Any) -> Any:
    return lambda path, seed=0: recorded(path, model, audit=audit, seed=seed, **settings)


def _trees(audit: dict[str, Any], **settings: Any) -> Any:
    def made(path: Path, seed: int = 0) -> Recording:
        pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
        given = {"clients": 2, "people": 60, "rounds": 10, "participation": 1.0, **settings}
        return recorded(path, TREES, audit=audit, seed=seed, **given)

    return made


def with_strangers(dataset: Dataset) -> Dataset:
    """The last 60 people are no client's: the adversary may learn from them."""
    rows = np.arange(len(dataset.records))
    inside, outside = dataset.records.take(rows[:-60]), dataset.records.take(rows[-60:])
    return dataclasses.replace(dataset, records=inside, outside=outside)


def changed(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A config with other settings in some sections; what is no table is put in place whole."""
    return content | {
        section: {**content.get(section, {}), **new} if isinstance(new, dict) else new
        for section, new in changes.items()
    }


def planned(content: dict[str, Any], dataset: Dataset | None = None) -> Plan:
    """The federation of a config, before anything runs."""
    return plan(parse_config(content), dataset)


def simulated(path: Path, content: dict[str, Any], dataset: Dataset | None = None) -> Recording:
    """The federation of a config, simulated."""
    return Recording.open(simulate(planned(content, dataset), path))


def sent_by(program: Program, records: Records, rounds: int = 1) -> list[Exchange]:
    """What a client of these records is sent and returns, alone in its federation."""
    sent, observed, rng = program.first(), list[Exchange](), np.random.default_rng(0)
    for number in range(rounds):
        returned = program.respond(sent, records, rng)
        observed.append(Exchange(number, sent, returned))
        sent = program.following(sent, {"only": returned})
    return observed


def candidates_of(records: Records) -> Candidates:
    """Each record under both values of the secret."""
    return Candidates(records, ({"s": 0.0}, {"s": 1.0}), len(records))


def recipe_in(recording: Recording) -> Recipe:
    """How the clients of a recording train their network."""
    recipe = recipe_of(recording)
    assert recipe is not None
    return recipe


def view_of(
    recording: Recording,
    secret: str = "attribute.s",
    client: str = "",
    threat: Threat = EAVESDROPPER,
) -> View:
    """What is heard of a client, of the first if none is named, or of everybody."""
    target = Target.parse(secret)
    who = EVERYBODY if target.asked.together else client or recording.clients[0]
    return observe(recording, threat, target, who)


def guessed(
    attack: Any,
    recording: Recording,
    column: str = "s",
    client: str = "0",
    threat: Threat = EAVESDROPPER,
    seed: int = 0,
) -> tuple[Any, Any]:
    """What an attack answers about an attribute of a client, and what is true."""
    view = view_of(recording, f"attribute.{column}", client, threat)
    return launch(attack, view, seed), recording.truth()[client][column]


def digits(
    path: Path,
    model: dict[str, Any] | None = None,
    victim: int = 60,
    participants: int = 1,
    defence: Sequence[dict[str, Any]] = (),
    column: str = "c043",
    seed: int = 0,
    **training: Any,
) -> Recording:
    """A federation of digits, one pixel of which is asked for."""
    options = {"victim": victim, "participants": participants, "attributes": [column]}
    content = {
        "seed": seed,
        "data": {"source": "digits", "options": {"seed": seed, **options}},
        "model": {"name": "mlp", "hidden": [8]} if model is None else model,
        "training": {"rounds": 2, "learning_rate": 0.1, **training},
        "defence": list(defence),
    }
    return simulated(path, content)


def summed(path: Path, seed: int = 0, defence: Sequence[Any] = (), **settings: Any) -> Recording:
    """Digits of five clients of whom only sums are heard."""
    usual = {"victim": 25, "participants": 5, "rounds": 4, "weighting": "equal"}
    secure = [*defence, {"name": "secure_sum"}]
    return digits(path, seed=seed, defence=secure, **{**usual, **settings})


def digit_images(
    path: Path,
    seed: int = 0,
    model: dict[str, Any] | None = None,
    property_: dict[str, Any] | None = None,
    options: dict[str, int] | None = None,
    **training: Any,
) -> Recording:
    """Images of digits of which only sums are heard; three clients have a property."""
    usual = {"seed": seed, "clients": 10, "records": 8, "auxiliary": 300}
    content = {
        "seed": seed,
        "data": {"source": "digits_images", "options": usual | (options or {})},
        "model": {"name": "logistic"} if model is None else model,
        "training": {"rounds": 10, "learning_rate": 0.01, "participation": 0.4, **training},
        "property": {"kind": "membership", "positives": 3, **(property_ or {})},
        "defence": [{"name": "secure_sum"}],
    }
    return simulated(path, content)


LINEAR, LOGISTIC = {"name": "linear"}, {"name": "logistic"}
NEWTON = {"name": "newton", "likelihood": "logistic"}
CUTS = {"x0": [-0.8, 0.0, 0.5, 1.0], "x1": [-0.7, 0.0, 0.7]}
STATISTICS = {
    "name": "statistics",
    "tables": [{"by": ["s", "x0", "x1"]}, {"kind": "sum", "of": "x2", "by": ["s"]}],
    "bins": CUTS,
}
TREES = {"name": "xgboost", "objective": "reg:squarederror", "max_depth": 4}
MOMENTUM = {"optimiser": {"name": "sgd", "momentum": 0.9}, "learning_rate": 0.02}
ADAM = {"optimiser": {"name": "adam"}, "learning_rate": 0.005}
GROUPS = {"attributes": [], "label": True, "group": "s", "auxiliary": 200}
FAMILIES = {
    "models": Family(
        _people(LINEAR, {}), SERVER, "local_model",
        ("exact_linear", "global_model", "last_returned", "learned_map", "structured"),
    ),
    "attributes, linear": Family(
        _people(LINEAR, {}, change=with_strangers),
        SERVER, "s",
        ("max_entropy", "model_based_global", "model_based_last_returned", "model_based_linear",
         "model_based_local", "partial_decode", "majority", "random", "public_model"),
    ),
    "attributes, logistic": Family(
        _people(LOGISTIC, {}, learning_rate=0.5), SERVER, "s",
        ("cos_matching", "gumbel", "l2_lbfgs", "statistics"),
    ),
    "attributes, network": Family(
        _people({"name": "mlp", "hidden": [8]}, {}, learning_rate=0.05), SERVER, "s",
        ("max_entropy",),
    ),
    "attributes, mini-batches": Family(
        _people(LINEAR, {}, batch_size=16), SERVER, "s", ("max_entropy",),
    ),
    "attributes, sums": Family(summed, SECURE_SERVER, "c043", ("sum_decode",)),
    "members": Family(
        _people({"name": "mlp", "hidden": [16]}, {"membership": 100}, rounds=3, participation=1.0),
        SERVER, "membership.s", ("candidate_decode", "coin", "gradient_variance_gmm"),
    ),
    "models, Newton steps": Family(
        _people(NEWTON, {}, rounds=6, participation=1.0), SERVER, "local_model", ("structured",),
    ),
    "attributes, Newton steps": Family(
        _people(NEWTON, {}, rounds=6, participation=1.0), SERVER, "s", ("max_entropy",),
    ),
    "attributes, sums of Newton steps": Family(
        _people(NEWTON, {}, clients=2, people=20, rounds=6, participation=1.0,
                defence=[{"name": "secure_sum"}]),
        SECURE_SERVER, "s", ("sum_decode",),
    ),
    "attributes, tables": Family(
        _people(STATISTICS, {}, rounds=1, participation=1.0), SERVER, "s", ("max_entropy",),
    ),
    "members, Newton steps": Family(
        _people(NEWTON, {"membership": 40}, people=60, rounds=6, participation=1.0),
        SERVER, "membership.s", ("candidate_decode",),
    ),
    "attributes, trees": Family(_trees({}), SERVER, "s", ("max_entropy",)),
    "members, trees": Family(
        _trees({"membership": 40}, people=40), SERVER, "membership.s", ("candidate_decode",),
    ),
    "labels, trees": Family(
        _trees({"attributes": [], "label": True}, rounds=20), SERVER, "label", ("linear_decode",),
    ),
    "labels by group": Family(
        _people({"name": "mlp", "hidden": [12]}, GROUPS, algorithm="fedsgd", rounds=1,
                participation=1.0),
        SERVER, "label",
        ("auxiliary_mean", "bayes_groups", "group_means_pinv", "group_means_tikhonov",
         "linear_decode", "naive"),
    ),
    "label of one record": Family(
        _people(LINEAR, {"attributes": [], "label": True}, clients=30, people=1,
                algorithm="fedsgd", rounds=1, participation=1.0),
        SERVER, "label", ("single_record",),
    ),
    "properties": Family(
        digit_images, SECURE_SERVER, "property.membership",
        ("gradient_disaggregation", "matched_filter", "nobody", "ols", "prolin", "ridge"),
    ),
}  # fmt: skip


def quick(name: str) -> Any:
    """With fewer steps where a search is slow by design."""
    attack = attack_named(name)
    if attack.paper == "kerkouche2023":
        return dataclasses.replace(attack, options=Options(shadows=60, epochs=2))
    return attack


def observed(family: Family, recording: Recording) -> View:
    """What a family's adversary hears of its first client, or of everybody."""
    (key,) = [
        k
        for k in ("local_model", *recording.targets)
        if family.target in (k, k.removeprefix("attribute."))
    ]
    return view_of(recording, key, threat=family.threat)


def score(recording: Recording, view: View, attack: Any, guess: Any) -> Finding:
    """What a guess comes to against the truth of the recording."""
    target = view.target
    recipe = program_in(recording)
    assert recipe is not None
    answers = answers_in(recording, target)
    scorer = Case(recipe, recording.truth(), target, view, 0, answers).scorer()
    return scorer(attack, guess, 0.0).finding


def accuracy(recording: Recording, view: View, guess: Any) -> float:
    """The same of a decoder's guess at an attribute, as a share."""
    return float(score(recording, view, attack_named("max_entropy"), guess).value)


def same(one: Any, other: Any) -> bool:
    """Two guesses agree to the last bit; what an attack says about itself, too."""
    if dataclasses.is_dataclass(one):
        names = [f.name for f in dataclasses.fields(one)]
        return all(same(getattr(one, n), getattr(other, n)) for n in names)
    if isinstance(one, dict):
        kept = {k for k in one if not k.startswith("seconds")}
        return kept == {k for k in other if not k.startswith("seconds")} and all(
            same(one[k], other[k]) for k in kept
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    return bool(one == other) or (one != one and other != other)

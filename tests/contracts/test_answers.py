"""No attack sees the answer: the truth is falsified after recording.

Every attack of the catalogue runs in a federation that it applies to, before and after the secrets
in ``truth/`` are shuffled. Its guess must not change in a bit; scored against the falsified truth
it must do no better than not listening.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from quick_attacks import attack_named

from overheard.attacks import all_attacks
from overheard.attacks.property.detectors import DetectorSettings
from overheard.data.dataset import Dataset
from overheard.evaluation.properties import property_scorer
from overheard.evaluation.scoring import scorer_of
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.learning.records import Records
from overheard.transcript.ledger import LedgerWriter
from overheard.transcript.observe import EVERYBODY, MEMBER_COLUMN, observe, recipe_of
from overheard.transcript.store import Recording, _add
from overheard.transcript.target import Target
from overheard.transcript.threat import SECURE_SERVER, SERVER, Threat
from overheard.transcript.view import View, launch


class Family(NamedTuple):
    """A federation, who listens to it, what is asked, and the attacks that apply there."""

    made: Callable[[Any, Path], Recording]
    threat: Threat
    target: str
    attacks: tuple[str, ...]


def _people(model: dict[str, Any], audit: dict[str, Any], **settings: Any) -> Any:
    return lambda federate, path: federate(model, audit=audit, **settings)


def _with_strangers(dataset: Dataset) -> Dataset:
    """The last 60 people are no client's: the adversary may learn from them."""
    rows = np.arange(len(dataset.records))
    inside, outside = dataset.records.take(rows[:-60]), dataset.records.take(rows[-60:])
    return dataclasses.replace(dataset, records=inside, outside=outside)


def _digits(path: Path, content: dict[str, Any]) -> Recording:
    return Recording.open(simulate(plan(parse_config(content)), path))


def _summed(federate: Any, path: Path) -> Recording:
    options = {"victim": 25, "participants": 5, "attributes": ["c043"]}
    content = {
        "data": {"source": "digits", "options": options},
        "model": {"name": "mlp", "hidden": [8]},
        "training": {"rounds": 4, "learning_rate": 0.1, "weighting": "equal"},
        "defence": [{"name": "secure_sum"}],
    }
    return _digits(path, content)


def _property(federate: Any, path: Path) -> Recording:
    options = {"clients": 10, "records": 8, "auxiliary": 300}
    content = {
        "data": {"source": "digits_images", "options": options},
        "model": {"name": "logistic"},
        "training": {"rounds": 10, "learning_rate": 0.01, "participation": 0.4},
        "property": {"kind": "membership", "positives": 3},
        "defence": [{"name": "secure_sum"}],
    }
    return _digits(path, content)


LINEAR, LOGISTIC = {"name": "linear"}, {"name": "logistic"}
GROUPS = {"attributes": [], "label": True, "group": "s", "auxiliary": 200}
FAMILIES = {
    "models": Family(
        _people(LINEAR, {}), SERVER, "local_model",
        ("exact_linear", "global_model", "last_returned", "learned_map", "structured"),
    ),
    "attributes, linear": Family(
        _people(LINEAR, {}, change=_with_strangers),
        SERVER, "s",
        ("max_entropy", "model_based_global", "model_based_last_returned", "model_based_linear",
         "model_based_local", "partial_decode", "majority", "random", "public_model"),
    ),
    "attributes, logistic": Family(
        _people(LOGISTIC, {}, learning_rate=0.5), SERVER, "s",
        ("cos_matching", "gumbel", "joint_decode", "l2_lbfgs", "statistics"),
    ),
    "attributes, sums": Family(_summed, SECURE_SERVER, "c043", ("sum_decode",)),
    "members": Family(
        _people({"name": "mlp", "hidden": [16]}, {"membership": 100}, rounds=3, participation=1.0),
        SERVER, "membership.s", ("candidate_decode", "coin", "gradient_variance_gmm"),
    ),
    "labels by group": Family(
        _people({"name": "mlp", "hidden": [12]}, GROUPS, algorithm="fedsgd", rounds=1),
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
        _property, SECURE_SERVER, "property.membership",
        ("gradient_disaggregation", "matched_filter", "nobody", "ols", "prolin", "ridge"),
    ),
}  # fmt: skip


def quick(name: str) -> Any:
    """With fewer steps where a search is slow by design."""
    attack = attack_named(name)
    if "detectors" in {f.name for f in dataclasses.fields(attack)}:  # type: ignore[arg-type]
        return dataclasses.replace(attack, detectors=DetectorSettings(shadows=60, epochs=2))  # type: ignore[type-var]
    return attack


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


def falsified(
    tables: dict[str, Records], question: str, rng: np.random.Generator
) -> dict[str, Records]:
    """The same tables with the secrets among them shuffled."""
    names = list(tables)
    if question == "property" or min(map(len, tables.values())) == 1:
        order = rng.permutation(len(names))
        while (order == np.arange(len(names))).all():
            order = rng.permutation(len(names))
        if question == "property":
            return {n: tables[names[k]] for n, k in zip(names, order, strict=True)}
        shuffled = [names[k] for k in order]
        return {
            n: Records({**tables[n].columns, "y": tables[k]["y"]})
            for n, k in zip(names, shuffled, strict=True)
        }
    if question == "local_model":  # the secret is the records: every client's become another's
        return {n: tables[k] for n, k in zip(names, [*names[1:], names[0]], strict=True)}
    secrets = {"attribute": ("s", "c043"), "label": ("y",), "membership": (MEMBER_COLUMN,)}[
        question
    ]
    made = {}
    for name, records in tables.items():
        order = rng.permutation(len(records))
        changed = {c: records[c][order] for c in secrets if c in records.columns}
        made[name] = Records({**records.columns, **changed})
    return made


def rewrite_truth(recording: Recording, question: str, rng: np.random.Generator) -> None:
    """Falsify every file of ``truth/``, with an index that vouches for it."""
    kinds = [("Records", "")]
    if question in ("membership", "property"):
        kind = question.capitalize()
        kinds += [(kind, k) for k in recording.targets if k.split(".")[0] == question]
    tables = {key: falsified(recording.truth(*key), question, rng) for key in kinds}
    shutil.rmtree(recording.path / "truth")
    ledger = LedgerWriter(recording.path / "truth")
    for (kind, key), content in tables.items():
        _add(ledger, kind, content, key)
    ledger.close()


def score(recording: Recording, target: Target, view: View, attack: Any, guess: Any) -> Any:
    recipe = recipe_of(recording)
    assert recipe is not None
    if target.question == "property":
        scorer = property_scorer(recording.truth("Property", target.key), target, view, 0)
    else:
        member = target.question == "membership"
        pools = recording.truth("Membership", target.key) if member else None
        scorer = scorer_of(recipe, recording.truth(), target, view, 0, pools)
    return scorer(attack, guess, 0.0).finding


def test_every_attack_is_tried() -> None:
    tried = [name for family in FAMILIES.values() for name in family.attacks]
    assert sorted(tried) == sorted(all_attacks())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_is_falsified_and_no_guess_changes(
    federate: Any, tmp_path: Path, family: str
) -> None:
    made, threat, key, attacks = FAMILIES[family]
    recording = made(federate, tmp_path / "digits")
    keys = [
        k for k in ("local_model", *recording.targets) if key in (k, k.removeprefix("attribute."))
    ]
    target = Target.parse(keys[0])
    client = EVERYBODY if target.question == "property" else recording.clients[0]
    before = observe(recording, threat, target, client)
    guesses = {name: launch(quick(name), before, 3) for name in attacks}
    honest = {
        name: score(recording, target, before, quick(name), guess)
        for name, guess in guesses.items()
    }
    rng = np.random.default_rng(11)
    fallen: dict[str, list[Any]] = {name: [] for name in attacks}
    rewrites = 12 if target.question == "property" or "one record" in family else 3
    for turn in range(rewrites):
        rewrite_truth(recording, target.question, rng)
        lied = Recording.open(recording.path)
        after = observe(lied, threat, target, client)
        for name, guess in guesses.items():
            if turn == 0:
                assert same(guess, launch(quick(name), after, 3)), f"{name} looked at the answer"
            fallen[name].append(score(lied, target, after, quick(name), guess))
    for name, found in fallen.items():
        _check_fall(name, honest[name], found)


def _check_fall(name: str, honest: Any, found: list[Any]) -> None:
    """No better than what needs no listening, beside chance."""
    value = float(np.mean([f.value for f in found]))
    if honest.metric == "excess_loss":
        # another client's optimum: nobody comes near it by listening to this one
        assert value > 100 * max(honest.value, 1e-6) or honest.value > 0.01, name
        return
    if honest.metric == "mean_absolute_error":
        free = float(np.mean([f.imputation for f in found]))
        assert value > 0.8 * free, f"{name}: {value:.3f} where a stranger's error is {free:.3f}"
        return
    free = float(np.mean([f.majority for f in found]))
    chance = 0.15 if honest.metric == "f1" else 3 * 0.5 / np.sqrt(honest.n * len(found))
    assert value <= free + chance, f"{name}: {value:.3f} where guessing gets {free:.3f}"


def test_what_leaks_is_seen_to_fall(federate: Any) -> None:
    """The test above can fail: against the real truth the decoder is far above guessing."""
    recording = federate({"name": "mlp", "hidden": [60]}, rounds=2, participation=1.0)
    target = Target("attribute", "s")
    view = observe(recording, SERVER, target, recording.clients[0])
    guess = launch(quick("max_entropy"), view, 3)
    honest = score(recording, target, view, quick("max_entropy"), guess)
    assert honest.value > 0.99
    with pytest.raises(AssertionError, match="guessing gets"):
        _check_fall("max_entropy", honest, [honest] * 3)
    rewrite_truth(recording, "attribute", np.random.default_rng(0))
    lied = Recording.open(recording.path)
    assert score(lied, target, view, quick("max_entropy"), guess).value < 0.7

"""What every attack on a property of clients promises, whichever file it is in.

The contract of `test_attacks.py` for those who hear sums, which no federation there has.
"""

from __future__ import annotations

import shutil
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overheard.attacks import all_attacks, attack_named, listens
from overheard.attacks.papers.kerkouche2023 import DetectorSettings
from overheard.errors import GrantKnowledge
from overheard.evaluation.attempt import NOT_RUN
from overheard.evaluation.scoring import scorer_of
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.records import Records
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import Link, Sums
from overheard.transcript.observe import POSITIVE_COLUMN, observe
from overheard.transcript.store import Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import View, launch

pytestmark = pytest.mark.slow

NAMES = [name for name, made in all_attacks().items() if made.question == "property"]
KINDS = {"membership": "membership", "inversion": "poisoning", "free-rider": "free-rider"}


def quick(name: str) -> Any:
    """With fewer simulated updates: the contract is about what an attack may see."""
    attack = attack_named(name)
    if "detectors" in {f.name for f in fields(attack)}:  # type: ignore[arg-type]
        return replace(attack, detectors=DetectorSettings(shadows=60, epochs=2))  # type: ignore[type-var]
    return attack


def record(path: Path, kind: str, positives: int = 2, rounds: int = 14, seed: int = 0) -> Recording:
    content = {
        "seed": seed,
        "data": {
            "source": "digits_images",
            "options": {"clients": 10, "records": 8, "auxiliary": 300},
        },
        "model": {"name": "logistic"},
        "training": {"rounds": rounds, "learning_rate": 0.01, "participation": 0.4},
        "property": {"kind": kind, "positives": positives},
        "defence": [{"name": "secure_sum"}],
    }
    return Recording.open(simulate(plan(parse_config(content)), path))


@pytest.fixture(scope="module", params=list(KINDS))
def heard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> View:
    """What is heard of a federation whose truth is gone before anybody listens."""
    path = tmp_path_factory.mktemp("property") / "run"
    recording = record(path, request.param)
    shutil.rmtree(path / "truth")
    return observe(recording, SECURE_SERVER, client_property(KINDS[request.param]), "")


def same(one: Any, other: Any) -> bool:
    if is_dataclass(one):
        names = [f.name for f in fields(one) if f.name != "diagnostics"]
        return all(same(getattr(one, n), getattr(other, n)) for n in names)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


@pytest.mark.parametrize("name", NAMES)
def test_runs_on_sums_alone_and_says_the_same_twice(heard: View, name: str) -> None:
    attack = quick(name)
    assert Link not in attack.needs
    assert Link not in heard.kinds
    assert (Sums in attack.needs) == listens(attack)
    try:
        first = launch(attack, heard, 7)
    except NOT_RUN as error:
        pytest.skip(f"does not apply: {error}")
    assert isinstance(first, ClientProperty)
    assert first.clients == heard.know(Sums).clients
    assert same(first, launch(attack, heard, 7))
    for kind in attack.needs:
        with pytest.raises(GrantKnowledge, match=kind.__name__):
            launch(attack, heard.narrowed(heard.kinds - {kind}), 7)


@pytest.mark.parametrize("name", NAMES)
def test_placebo(tmp_path: Path, name: str) -> None:
    """Nobody holds the record: against holders drawn by lot no attack beats a constant guess.

    One federation in four may stray beyond its interval by chance.
    """
    target = client_property("membership")
    rng = np.random.default_rng(2)
    beaten = 0
    for seed in range(4):
        recording = record(tmp_path / str(seed), "membership", 0, 8, seed)
        view = observe(recording, SECURE_SERVER, target, "")
        drawn = rng.permutation(10) < 3
        answers = {
            c: Records({POSITIVE_COLUMN: np.array([float(p)])})
            for c, p in zip(recording.clients, drawn, strict=True)
        }
        attack = quick(name)
        guess = launch(attack, view, 0)
        recipe: Any = None  # of no use to who is asked about clients
        scorer = scorer_of(recipe, {}, target, view, 0, answers)
        found = scorer(attack, guess, 0.0).finding
        assert found.majority is not None
        beaten += found.low > found.majority
    assert beaten <= 1

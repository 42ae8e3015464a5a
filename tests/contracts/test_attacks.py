"""What every attack promises, whichever file it is in.

That none sees the answer is in `test_answers.py`.
"""

from __future__ import annotations

import dataclasses
import re

import pytest
from federations import NEWTON, STATISTICS, TREES, same
from quick_attacks import attack_named

from overheard import Target, all_attacks, launch, observe
from overheard.attacks import equation, words
from overheard.errors import GrantKnowledge
from overheard.evaluation.checkpoint import NOT_RUN
from overheard.questions.question import all_questions
from overheard.transcript.kind import kinds
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

NAMES = tuple(all_attacks())
ATTRIBUTE = tuple(n for n, a in all_attacks().items() if a.question == "attribute")
EVERY_QUESTION = {"membership": 30}
FEDERATIONS = {
    "linear": ({"name": "linear"}, {}),
    "logistic": ({"name": "logistic"}, {"learning_rate": 0.5}),
    "mlp": ({"name": "mlp", "hidden": [8]}, {"learning_rate": 0.05}),
    "mini-batches": ({"name": "linear"}, {"batch_size": 16}),
    "Newton steps": (NEWTON, {"rounds": 6}),
    "tables": (STATISTICS, {"rounds": 1, "participation": 1.0}),
    "trees": (TREES, {"rounds": 4, "participation": 1.0}),
}


FREE = {"majority", "random"}
SEARCHES = {"cos_matching", "gumbel", "l2_lbfgs"}
MODEL_BASED = {"model_based_global", "model_based_last_returned", "model_based_local"}
NETWORK = FREE | SEARCHES | MODEL_BASED | {"max_entropy"}
APPLIES = {
    "linear": NETWORK | {"model_based_linear", "partial_decode"},
    "logistic": NETWORK | {"partial_decode", "statistics"},
    "mlp": NETWORK | {"partial_decode"},
    "mini-batches": NETWORK,
    "Newton steps": FREE | {"max_entropy"},
    "tables": FREE | {"max_entropy"},
    "trees": FREE | {"max_entropy"},
}
"""The attacks on an attribute that answer in each federation. The others refuse: an attack that
begins to refuse, or no longer does, must be noticed."""


def asked(federation):
    """The model and its training; skipped without what they need."""
    if federation == "trees":
        pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
    return FEDERATIONS[federation]


def target_of(attack, recording):
    keys = [k for k in ("local_model", *recording.targets) if k.split(".")[0] == attack.question]
    return Target.parse(keys[0]) if keys else None


@pytest.mark.parametrize("name", NAMES)
def test_describes_itself(name):
    attack = attack_named(name)
    assert re.fullmatch(r"[a-z0-9_]+", attack.name)
    assert attack.question in all_questions()
    assert attack.paper
    assert attack.needs <= set(kinds().values())
    assert len(words(attack)) > 40
    assert dataclasses.is_dataclass(attack)
    with pytest.raises(dataclasses.FrozenInstanceError):
        attack.name = "other"


@pytest.mark.parametrize("federation", FEDERATIONS)
def test_contract(federate, federation):
    """Runs or says in one sentence why not; deterministic; needs what it says it needs."""
    model, training = asked(federation)
    recording = federate(model, audit=EVERY_QUESTION, **training)
    ran, refusals = [], []
    for name in NAMES:
        attack = attack_named(name)
        target = target_of(attack, recording)
        if target is None:
            continue
        view = observe(recording, EAVESDROPPER, target, recording.clients[0])
        try:
            first = launch(attack, view, 7)
        except NOT_RUN as error:
            refusals.append(str(error))
            continue
        ran.append(attack)
        assert same(first, launch(attack, view, 7))
        for need in attack.needs:
            rest = frozenset(kind for kind in view.kinds if not issubclass(kind, need))
            with pytest.raises(GrantKnowledge, match=need.__name__):
                launch(attack, view.narrowed(rest), 7)
    assert {a.name for a in ran if a.question == "attribute"} == APPLIES[federation]
    assert all(10 < len(text) < 400 for text in refusals)


def test_the_equation_is_the_paragraph_of_the_docstring_that_says_so() -> None:
    assert equation(attack_named("exact_linear")).startswith("θ′ = θ − W(θ − θ*)")
    # on one line, however it is wrapped; and the first paragraph is what the attack does
    assert equation(attack_named("ols")).endswith("(kerkouche2023, section 5.2)")
    assert "Solves" not in words(attack_named("ols"))
    assert equation(attack_named("majority")) == ""

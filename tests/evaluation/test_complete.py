"""The whole audit from Python, and what is learned from the first rounds alone."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import numpy as np
import pytest

import overheard
from overheard import attacks
from overheard.attacks import attack_named
from overheard.attacks.baselines import LastReturned
from overheard.errors import FixConfig
from overheard.evaluation import complete
from overheard.evaluation.audit import AuditOptions, audit
from overheard.evaluation.complete import by_rounds, first_rounds
from overheard.evaluation.scoring import scorer_of
from overheard.report.verdict import verdicts
from overheard.transcript.guess import LocalModel
from overheard.transcript.kind import recipe_of
from overheard.transcript.knowledge import Link
from overheard.transcript.target import LOCAL_MODEL, attribute
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER, SERVER
from overheard.transcript.view import View, launch, observe

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Returned:
    """Takes the model that the client returned ``back`` rounds before its last."""

    name: ClassVar[str] = "returned"
    paper: ClassVar[str] = "none"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link})
    back: int = 0

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        model = view.know(Link).returned[-1 - self.back].astype(np.float64)
        return LocalModel(model, np.full(len(model), np.nan), 0)


def test_an_attack_with_settings_of_its_own(federate: Any) -> None:
    recording = federate(rounds=6, participation=1.0)
    asked = {"threat": EAVESDROPPER, "clients": ["0"], "targets": ["local_model"]}
    first, last = (
        overheard.audit(recording, attacks=[Returned(back), "last_returned"], **asked)
        for back in (5, 0)
    )
    values = [{f.attack: f.value for f in record.findings} for record in (first, last)]
    assert values[0]["returned"] > values[0]["last_returned"]
    assert values[1]["returned"] == values[1]["last_returned"]
    # and the curves are there, of the object that was given
    assert {h.rounds for h in last.heard} == {1, 2, 5, 6}
    with pytest.raises(FixConfig, match="'last_returned' is given twice"):
        overheard.audit(recording, attacks=[LastReturned(), "last_returned"], **asked)


def without_seconds(record: overheard.Audit) -> dict[str, Any]:
    """All that an audit says, the measured seconds aside."""
    content = record.model_dump(mode="json")
    for found in content["findings"]:
        del found["seconds"]
    return content


def test_the_command_and_the_function_agree(federate: Any, tmp_path: Any, workplace: Any) -> None:
    recording = federate(rounds=4, participation=1.0)
    names = ["max_entropy", "majority"]
    made = overheard.audit(recording, EAVESDROPPER, names, ["0"], ["s"])
    words = [word for name in names for word in ("--attack", name)]
    words += ["--client", "0", "--target", "s", "--out", str(tmp_path / "audit")]
    done = workplace.overheard("audit", str(recording.path), *words)
    assert done.returncode == 0, done.stderr
    written = overheard.read_audit(tmp_path / "audit" / "audit.json")
    assert made.findings
    assert made.heard
    assert made.replays
    assert without_seconds(written) == without_seconds(made)


def test_attacks_of_other_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("returned", f"{__name__}:Returned", attacks.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Returned)
    monkeypatch.setattr(
        attacks, "entry_points", lambda group: [point] if group == attacks.GROUP else []
    )
    found = attacks.all_attacks.__wrapped__()
    assert found["returned"] is Returned
    monkeypatch.setattr(EntryPoint, "load", lambda self: object)
    with pytest.raises(FixConfig, match="is no attack: it lacks name, question, needs, paper"):
        attacks.all_attacks.__wrapped__()


def test_the_first_rounds_are_the_first(federate):
    view = observe(federate(), SERVER, LOCAL_MODEL, "0")
    few = first_rounds(view, 3).know(Link)
    whole = view.know(Link)
    assert len(few) == 3
    np.testing.assert_array_equal(few.returned, whole.returned[:3])
    np.testing.assert_array_equal(few.rounds, whole.rounds[:3])


def test_each_line_is_what_the_attack_learns_from_so_many_rounds(federate):
    """Twin: cut the view by hand, launch, score."""
    recording = federate(participation=1.0, rounds=12)
    record = audit(recording, SERVER, ["max_entropy", "exact_linear", "majority"])
    said = []
    options = AuditOptions(progress=lambda *told: said.append(told))
    lines = by_rounds(recording, SERVER, record, options)
    assert said[-1][0] == "rounds"
    recipe = recipe_of(recording)
    assert recipe is not None
    models = [line for line in lines if line.question == "local_model"]
    # one round is refused, and too few for its parameters are flagged
    assert [line.rounds for line in models] == [10, 12]
    losses = [line.value for line in models]
    assert losses[-1] == min(losses)
    secrets = [line for line in lines if line.question == "attribute"]
    assert [line.rounds for line in secrets] == [1, 2, 5, 10, 12]
    assert {line.attack for line in secrets} == {"max_entropy"}
    client = secrets[0].client
    view = observe(recording, SERVER, attribute("s"), client)
    attack = attack_named("max_entropy")
    for line in secrets[:-1]:
        guess = launch(attack, first_rounds(view, line.rounds), 0)
        scorer = scorer_of(recipe, recording.truth(), attribute("s"), view, 0)
        found = scorer(attack, guess, 0.0).finding
        assert (line.value, line.low, line.high) == (found.value, found.low, found.high)
    # of the clients, the one of which the verdict speaks
    (answer,) = (v for v in verdicts(record) if v.secret.attribute == "s")
    worst = record.strongest(answer.secret)
    assert worst is not None
    assert client == worst.client
    assert secrets[-1].value == worst.value


def test_slow_attacks_and_those_that_do_not_listen_are_left_out(federate, monkeypatch):
    recording = federate(participation=1.0, rounds=3)
    record = audit(recording, SERVER, ["model_based_last_returned"])
    assert by_rounds(recording, SERVER, record)
    monkeypatch.setattr(complete, "is_slow", lambda attack: True)
    assert by_rounds(recording, SERVER, record) == ()
    free = audit(recording, SERVER, ["majority"])
    assert by_rounds(recording, SERVER, free) == ()


def test_sums_are_listened_to_round_by_round_as_well(federate):
    recording = federate({"name": "mlp", "hidden": [8]}, rounds=3, participation=1.0, people=20)
    record = audit(recording, SECURE_SERVER, ["sum_decode"], targets=["s"])
    heard = by_rounds(recording, SECURE_SERVER, record)
    assert [h.rounds for h in heard] == [1, 2, 3]
    assert heard[-1].value >= heard[0].value - 0.1

"""The whole audit from Python: the same as the command's, with attacks of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import numpy as np
import pytest

import overheard
from overheard import attacks
from overheard.attacks.baselines import LastReturned
from overheard.errors import FixConfig
from overheard.transcript.guess import LocalModel
from overheard.transcript.knowledge import Link
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import View


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

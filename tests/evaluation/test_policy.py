"""A policy's three answers, and what each rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from overheard.errors import FixConfig
from overheard.evaluation.policy import Policy, known, read_policy
from overheard.evaluation.record import Audit, Calibration, Promise
from tests.report.conftest import demo_like

NAMES = {"max_entropy", "majority"}


def audit_of(known_: int, value: float, reference: float, p: float, **more: Any) -> Audit:
    """Six clients, one secret, one attack and one baseline."""
    whole = demo_like()
    sure = Calibration(bits=0.1, certain=known_ + 5, certain_right=known_ + 5, known=known_)
    rows: dict[str, list[Any]] = {"findings": [], "pooled": []}
    for kind, kept in rows.items():
        for f in getattr(whole, kind):
            if f.attribute == "black" and f.attack in NAMES:
                listens = f.attack == "max_entropy"
                got = value if listens else reference
                kept.append(f.model_copy(update={
                    "value": got, "low": got - 0.02, "high": got + 0.02, "majority": reference,
                    "imputation": reference - 0.1, "lift": got - reference,
                    "p_value": p if listens else 1.0, "calibration": sure if listens else None,
                }))  # fmt: skip
    infos = tuple(i for i in whole.attacks if i.name in NAMES)
    return whole.model_copy(update={"attacks": infos, "skipped": (), **rows, **more})


LEAKS, NOTHING = audit_of(30, 0.8, 0.6, 1e-9), audit_of(30, 0.6, 0.6, 0.8)
SLIGHT, MAYBE = audit_of(0, 0.63, 0.6, 1e-9), audit_of(0, 0.62, 0.6, 0.08)
ABOVE = audit_of(0, 0.7, 0.6, 0.8)
FLAGGED = LEAKS.model_copy(
    update={"findings": tuple(f.model_copy(update={"details": {"flag": "poor fit"}})
            for f in LEAKS.findings), "pooled": ()}
)  # fmt: skip
EMPTY = NOTHING.model_copy(update={"findings": (), "pooled": ()})
PROMISED = LEAKS.model_copy(
    update={"promise": Promise(client="a", epsilon=2.0, changed=4.0, delta=1e-5, words="w")}
)


@pytest.mark.parametrize(
    ("audit", "policy", "answer", "reason"),
    [
        (LEAKS, {}, "refuse", "180 of 5,831 people known beyond 99%, above the 0 allowed"),
        (LEAKS, {"people_known": 180}, "refuse", "lift of 20.0 points, above the 5 allowed"),
        (LEAKS, {"people_known": 180, "lift": 0.3}, "refer", "exposed, within the limits"),
        (SLIGHT, {}, "refer", "exposed, within the limits"),
        (MAYBE, {}, "refer", "unclear, within the limits"),
        (ABOVE, {}, "refer", "lift of 10.0 points, above the 5 allowed, which may be chance"),
        (NOTHING, {}, "release", ""),
        (FLAGGED, {}, "refuse", "not measured, which counts as not allowed"),
        (EMPTY, {}, "refuse", "nothing was measured"),
        (NOTHING, {"listeners": ["server"]}, "release", ""),
        (NOTHING, {"listeners": ["secure-server"]}, "refuse", "secure-server: not audited"),
        (NOTHING, {"epsilon": 8.0}, "refuse", "no differential privacy is promised"),
        (PROMISED, {"epsilon": 3.0}, "refuse", "epsilon 4 for a record's values, above the 3"),
    ],
)
def test_the_answer_and_its_reason(
    audit: Audit, policy: dict[str, Any], answer: str, reason: str
) -> None:
    found = Policy(**policy).decide([audit])
    assert found.answer == answer
    assert (reason in " / ".join(found.reasons)) if reason else found.reasons == ()
    assert not (answer == "release" and audit.level == "exposed")


def test_epsilon_is_kept_to_and_several_audits_are_held_together() -> None:
    kept = PROMISED.model_copy(update={"findings": NOTHING.findings, "pooled": NOTHING.pooled})
    assert Policy(epsilon=4.0).decide([kept]).answer == "release"
    other = NOTHING.model_copy(
        update={"run": NOTHING.run.model_copy(update={"threat": "secure-server"})}
    )
    both = Policy(listeners=("eavesdropper", "secure-server"))
    assert both.decide([NOTHING, other]).answer == "release"
    assert both.decide([LEAKS, other]).answer == "refuse"


def test_people_whom_a_baseline_knows_are_nobodys_loss() -> None:
    """Of 35 that are certain and right a guess gives five as much; without a leak nobody counts."""
    (secret,) = LEAKS.secrets
    people = known(LEAKS, secret)
    assert people["site 1"].people == 30
    assert (people[None].people, people[None].records) == (180, 5831)
    assert people["site 1"].low < 30 / 939 < people["site 1"].high
    assert known(NOTHING, NOTHING.secrets[0])[None].people == 0
    assert known(FLAGGED, FLAGGED.secrets[0]) == {}


def test_a_policy_is_read_beside_other_tables(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text('[data]\nsource = "x"\n[policy]\npeople_known = 3\nlisteners = ["server"]\n')
    assert read_policy(file) == Policy(people_known=3, listeners=("server",))
    for text, wrong in (
        ("[data]\n", r"no table \[policy\]"),
        ("[policy]\npeople = 1\n", "did you mean 'people_known'"),
        ('[policy]\nlisteners = ["servr"]\n', "did you mean 'server'"),
        ("[policy]\nlift = 2\n", "less than or equal to 1"),
    ):
        file.write_text(text)
        with pytest.raises(FixConfig, match=wrong):
            read_policy(file)


def test_the_published_schema_is_that_of_the_record() -> None:
    """Made by ``overheard explain --schema > docs/audit.schema.json``."""
    there = Path(__file__).parents[2] / "docs" / "audit.schema.json"
    assert json.loads(there.read_text()) == Audit.model_json_schema()

"""Several columns that are one secret: asked in a config, recorded, decoded and scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import TREES, recorded
from generated import by_class, with_columns

from overheard.attacks import attack_named
from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.evaluation.audit import audit
from overheard.transcript.kind import Held
from overheard.transcript.knowledge import AttributeDomain, AttributePrior, PublicRecords
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute, joined
from overheard.transcript.threat import SERVER
from overheard.transcript.view import observe

pytestmark = pytest.mark.slow

JOINT = {"attributes": [["s", "t"]]}
KEY = "attribute+.s+t"
LINEAR: dict[str, Any] = {"name": "linear"}
NETWORK: dict[str, Any] = {"name": "mlp", "hidden": (48,), "activation": "tanh"}


def _with_second(dataset: Dataset) -> Dataset:
    """A second secret of three words, which moves the label as well."""
    records, rng = dataset.records, np.random.default_rng(7)
    words = rng.choice(["never", "often", "once"], len(records), p=[0.5, 0.3, 0.2])
    return with_columns(dataset, t=words, y=records["y"] + 1.0 * (words == "often"))


def _classes(dataset: Dataset) -> Dataset:
    return by_class(_with_second(dataset))


def _recorded(path: Path, model: dict[str, Any], people: int, **training: Any) -> Recording:
    settings: dict[str, Any] = {"audit": JOINT, "clients": 2, "participation": 1.0}
    settings |= {"change": _with_second, "people": people, **training}
    return recorded(path, model, **settings)


def test_what_is_written_has_neither_column(tmp_path: Path) -> None:
    recording = _recorded(tmp_path / "run", LINEAR, 30, rounds=2)
    assert recording.targets == (KEY,)
    view = observe(recording, SERVER, attribute("s", "t"), "0")
    assert set(view.know(PublicRecords).records.columns) == {"x0", "x1", "x2"}
    domain = view.know(AttributeDomain)
    assert domain.columns == ("s", "t")
    assert domain.values[:2] == ("0.0+never", "0.0+often")
    assert domain.settings[-1] == {"s": 1.0, "t": "once"}
    assert len(domain.values) == 6
    everybody = [joined(r, attribute("s", "t"))["s+t"] for r in recording.truth().values()]
    shares = [np.mean(np.concatenate(everybody) == value) for value in domain.values]
    assert view.know(AttributePrior).shares == pytest.approx(shares)


@pytest.mark.parametrize(
    ("model", "training", "attack", "least"),
    [
        (NETWORK, {"rounds": 1, "precision": "float64"}, "max_entropy", 0.99),
        (LINEAR, {"rounds": 3, "epochs": 2}, "max_entropy", 0.0),
        (TREES, {"rounds": 24, "people": 40}, "max_entropy", 0.9),
        (NETWORK, {"rounds": 1, "precision": "float64", "change": _classes}, "joint_decode", 0.99),
    ],
)
def test_an_audit_decodes_the_combinations(
    tmp_path: Path, model: dict[str, Any], training: dict[str, Any], attack: str, least: float
) -> None:
    """A network tells all of them; few numbers tell more than who guesses knows beforehand."""
    recording = _recorded(tmp_path / "run", model, **{"people": 25, **training})
    found = audit(recording, SERVER, [attack, "majority"], targets=[KEY])
    assert not found.skipped
    assert {(f.attribute, f.question) for f in found.findings} == {("s+t", "attribute")}
    by_attack = {(f.attack, f.client): f for f in found.findings}
    for client in recording.clients:
        listened = by_attack[attack_named(attack).name, client]
        guessed = by_attack["majority", client]
        assert listened.value >= max(least, guessed.value)
        assert listened.details["unknowns"] >= 25 * 5
        truth = joined(recording.truth()[client], attribute("s", "t"))["s+t"].tolist()
        assert guessed.majority == max(map(truth.count, truth)) / len(truth)
        assert guessed.imputation < 0.95  # who saw one of the columns would know more
        if not least:  # what is claimed is what is right
            assert listened.details["calibration_error"] < 0.2


def test_a_column_may_be_asked_alone_and_with_another(tmp_path: Path) -> None:
    asked = {"attributes": ["s", ["s", "t"]], "membership": 5}
    recording = _recorded(tmp_path / "run", LINEAR, 30, rounds=1, audit=asked)
    assert recording.targets == ("attribute.s", KEY, "membership.s")


@pytest.mark.parametrize(
    ("secret", "complaint"),
    [
        (["s", "s"], "two or more"),
        (["s"], "two or more"),
        (["s", "a+b"], r"without a '\+' in a name"),
        (["s", "z"], "'z' is not an input"),
        (["s", "x0"], "'x0' is a number that is cut into bins"),
        (["s", "t", "u"], "36 combinations of their values occur; at most 32"),
    ],
)
def test_what_cannot_be_asked_at_once_is_named(
    tmp_path: Path, secret: list[str], complaint: str
) -> None:
    def with_third(dataset: Dataset) -> Dataset:
        six = np.random.default_rng(1).integers(0, 6, len(dataset.records)).astype(np.float64)
        return with_columns(_with_second(dataset), u=six)

    asked = {"attributes": [secret]}
    with pytest.raises(FixConfig, match=complaint):
        _recorded(tmp_path / "run", LINEAR, 90, rounds=1, change=with_third, audit=asked)


def test_a_strangers_combinations_are_checked(tmp_path: Path) -> None:
    recording = _recorded(tmp_path / "run", LINEAR, 30, rounds=1)
    held = Held(recording, attribute("s", "t"), "0")
    for parts, combinations, complaint in (
        (("s", "u"), ((0, "a"), (1, "a")), r"it is about 's\+t'"),
        (("s", "t"), ((0, "a"), (1,)), "zip"),
    ):
        content = AttributeDomain("s+t", ("0+a", "1+a"), (), parts, combinations).content()
        with pytest.raises(ValueError, match=complaint):
            AttributeDomain.of(content, held)

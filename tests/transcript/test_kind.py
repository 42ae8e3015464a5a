"""A kind of knowledge is one class: what it writes it reads back, and who comes later is found."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from federations import FAMILIES, observed, same

from overheard.errors import FixConfig, FixRecording
from overheard.transcript import kind as kinds_of
from overheard.transcript.kind import Held, Knowledge, kind, kinds, read, write
from overheard.transcript.knowledge import Broadcast, EverybodysRecords, Messages, Sums
from overheard.transcript.store import Recorder, Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER, threat_named
from overheard.transcript.view import observe

pytestmark = pytest.mark.slow

TARGET = attribute("s")
FROM_THE_WIRE = {Messages, Broadcast, Sums}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(kinds_of, "_REGISTRY", dict(kinds_of._REGISTRY))


@dataclass(frozen=True)
class ShoeSize(Knowledge):
    """The largest shoe of a client, and how often each size was sold there."""

    name: ClassVar[str] = "shoe size"
    per_client: ClassVar[bool] = True
    largest: float
    sold: tuple[int, ...] = ()


def with_shoes(path: Path, content: Any) -> Recording:
    message = {"w": np.zeros(2, np.float32)}
    with Recorder(path) as recorder:
        recorder.side("ShoeSize", content, TARGET.key)
        recorder.round(0, message, {"a": message})
    return Recording.open(path)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_kind_writes_it_reads_back(tmp_path: Path, family: str) -> None:
    view = observed(FAMILIES[family], FAMILIES[family].made(tmp_path / "run"))
    written = view.kinds - FROM_THE_WIRE - {EverybodysRecords}
    message = {"w": np.zeros(2, np.float32)}
    with Recorder(tmp_path / "again") as recorder:
        for known in written:
            piece = view.know(known)
            write(recorder, {view.client: piece} if known.per_client else piece)
        recorder.round(0, message, {"a": message})
    again = Recording.open(tmp_path / "again")
    for known in written:
        found = read(known, Held(again, view.target, view.client))
        assert same(view.know(known), found), known
    assert len(written) >= (1 if family.startswith("models") else 2)


@pytest.mark.usefixtures("registry")
def test_a_new_kind_is_read_checked_and_granted_by_name(tmp_path: Path) -> None:
    kind(ShoeSize)
    recording = with_shoes(tmp_path / "run", {"a": {"largest": 47, "sold": [1, 2]}})
    view = observe(recording, threat_named("eavesdropper", ["shoe-size"]), TARGET, "a")
    assert view.know(ShoeSize) == ShoeSize(47.0, (1, 2))
    assert ShoeSize not in observe(recording, EAVESDROPPER, TARGET, "a").kinds
    for number, content in enumerate(({"a": {"sold": []}}, {"a": {"largest": "wide"}}, {"a": 3})):
        broken = with_shoes(tmp_path / f"broken {number}", content)
        with pytest.raises(FixRecording, match=r"ShoeSize for 'attribute\.s' is not what"):
            observe(broken, EAVESDROPPER.granting(ShoeSize), TARGET, "a")


@pytest.mark.usefixtures("registry")
def test_a_package_announces_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def announce(value: str) -> None:
        point = EntryPoint("x", value, kinds_of.GROUP)
        monkeypatch.setattr(kinds_of, "entry_points", lambda group: [point])
        kinds_of._announced.cache_clear()

    try:
        announce(f"{__name__}:ShoeSize")
        assert kinds()["ShoeSize"] is ShoeSize
        announce(f"{__name__}:TARGET")
        with pytest.raises(FixConfig, match="TARGET: is no kind of knowledge"):
            kinds()
    finally:
        kinds_of._announced.cache_clear()


@pytest.mark.usefixtures("registry")
def test_two_kinds_of_one_name_are_refused() -> None:
    @dataclass(frozen=True)
    class Links(Knowledge):
        name: ClassVar[str] = Messages.name

    with pytest.raises(FixConfig, match=r"two kinds of knowledge are called 'individual messages'"):
        kind(Links)
    kind(Messages)  # the same again is no other

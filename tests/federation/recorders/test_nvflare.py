from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from overheard.transcript.observe import in_the_clear
from overheard.transcript.store import Recording
from overheard.transcript.verify import verify


def test_simulator(flare: Callable[[str], Path]) -> None:
    """The global model is as without a recorder, and every digest as the site had it."""
    place = flare("flare_job.py")
    assert verify(place / "run").sound
    recording = Recording.open(place / "run")
    recorded = {
        f"{who}-{digest}"
        for heard in recording.rounds
        for (way, who), (_, _, digest) in heard.spans.items()
        if way == "returned"
    }
    assert recorded == {p.name for p in (place / "digests").iterdir()}
    assert len(recorded) == 4
    with np.load(place / "expected.npz") as want, np.load(place / "final.npz") as after:
        assert set(want) == set(after) == {"w", "b"}
        for name in want:
            np.testing.assert_array_equal(want[name], after[name])
    assert [r.weights for r in recording.rounds] == [{"site-1": 1.0, "site-2": 3.0}] * 2
    notes = in_the_clear(recording).sentences()
    assert any("broadcast tells every site the weight" in note for note in notes)
    assert any("'weight told to all sites' of 2 client(s)" in note for note in notes)
    assert any("'loss'" in note for note in notes)

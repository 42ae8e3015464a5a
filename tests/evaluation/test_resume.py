"""What is kept of an audit is read back bit for bit, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from overheard.evaluation.calibration import Posterior
from overheard.evaluation.record import Finding, Heard, Skipped
from overheard.evaluation.resume import Kept
from overheard.evaluation.scoring import Scored

FINDING = Finding(
    attack="a", paper="p", question="attribute", threat="t", client="c", attribute="s",
    metric="accuracy", value=0.1 + 0.2, low=1 / 7, high=1 / 3, n=3, seconds=1e-9, seed=4,
    details={"whole": 3, "real": 3.0, "tiny": 5e-324, "words": "yes"},
)  # fmt: skip
ODD = np.array([0.1, np.nan, np.inf, -0.0, 5e-324])


def scored(posterior: bool) -> Scored:
    sure = Posterior(ODD, ODD[::2], ODD * 0.5) if posterior else None
    return Scored(FINDING, ODD, None if posterior else np.float32([1.5, 2.5]), sure)


def arrays(of: Scored) -> list[np.ndarray]:
    held = [of.units, of.imputed, *(vars(of.posterior).values() if of.posterior else ())]
    return [array for array in held if array is not None]


@pytest.mark.parametrize("posterior", [True, False])
def test_scores_come_back_bit_for_bit(tmp_path: Path, posterior: bool) -> None:
    kept, made = Kept(tmp_path), scored(posterior)
    assert kept.outcome("t", "c", "a") is None
    kept.keep(made, "t", "c", "a")
    back = kept.outcome("t", "c", "a")
    assert isinstance(back, Scored)
    assert back.finding.model_dump_json() == made.finding.model_dump_json()
    for one, other in zip(arrays(back), arrays(made), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    assert kept.outcome("t", "c", "another") is None


def test_reasons_and_curves_come_back(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    skipped = Skipped(attack="a", client="c", reason="too short")
    kept.keep(skipped, "t", "c", "a")
    assert kept.outcome("t", "c", "a") == skipped
    fields = FINDING.model_dump(include=set(Heard.model_fields))
    line = [Heard(rounds=r, **fields) for r in (1, 2)]
    mixed = [line[0], skipped, line[1]]
    assert kept.parts(lambda: mixed, "t") == mixed
    assert kept.parts(lambda: [], "t") == mixed
    assert kept.parts(lambda: [], "u") == []
    assert kept.parts(lambda: mixed, "u") == []


def test_a_damaged_piece_is_made_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.keep(scored(True), "t", "c", "a")
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        assert kept.outcome("t", "c", "a") is None
        assert not path.exists()
        kept.keep(scored(True), "t", "c", "a")
    assert path.read_bytes() == whole

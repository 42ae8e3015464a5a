"""Would another processor give another answer?

    python -m reliability.processors [--only FAMILY ...] [--processor NAME ...]

The arithmetic libraries choose their kernels by the processor. They can be told to take those of
older ones: OpenBLAS and LAPACK (``OPENBLAS_CORETYPE``), numpy's own loops
(``NPY_DISABLE_CPU_FEATURES``), torch (``ATEN_CPU_CAPABILITY``) and its BLAS (``MKL_CBWR``). Sums
are then added up in another order, with other instructions, and round differently, as they would
on that machine. Each processor is a process of its own in which

- every attack of the catalogue is launched on a recording that was made here, and
- every federation is recorded anew.

Guesses and recordings must agree with ours within `CLOSE`. What draws samples or trains a network
on the way (`DRAWN`) turns a rounding into other draws: its score must not change by more than a
change of seed does. Written to ``processors.json``.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frame import Row, counted, finish, options

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

OLD = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
PROCESSORS: dict[str, dict[str, str]] = {
    "this one, once more": {},
    "Haswell (AVX2)": {
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
    },
    "Sandy Bridge (AVX)": {
        "OPENBLAS_CORETYPE": "Sandybridge",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3",
        **OLD,
    },
    "Nehalem (SSE4.2)": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3",
        **OLD,
    },
    "Prescott (SSE3)": {
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3",
        **OLD,
    },
}
CLOSE = 1e-6
"""Largest difference of a number, in units of the largest of its array where that exceeds 1."""
DRAWN = ("matched_filter",)
SEEDS = (3, 4, 5, 6, 7)
"""The first is the one that is compared."""

Answers = dict[str, NDArray[Any]]


def numbers(name: str, value: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every number of a guess, by where it stands there; measured seconds aside."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from numbers(f"{name}.{field.name}", getattr(value, field.name))
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not str(key).startswith("seconds"):
                yield from numbers(f"{name}.{key}", inner)
    elif isinstance(value, np.ndarray | int | float):
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            yield name, array


def answers(folder: Path, families: list[str], again: Path) -> Answers:
    """What every attack says of the recordings in ``folder``; recordings made anew in ``again``."""
    from federations import FAMILIES, heard, quick, score

    from overheard.transcript.knowledge import Link, Sums
    from overheard.transcript.store import Recording
    from overheard.transcript.view import launch

    found: Answers = {}
    for number, name in enumerate(families):
        family = FAMILIES[name]
        recording = Recording.open(folder / str(number))
        view = heard(family, recording)
        for attack in family.attacks:
            seeds = SEEDS if attack in DRAWN else SEEDS[:1]
            guesses = [launch(quick(attack), view, seed) for seed in seeds]
            found |= numbers(f"{name}/{attack}/guess", guesses[0])
            scores = [score(recording, view, quick(attack), guess).value for guess in guesses]
            found[f"{name}/{attack}/score"] = np.array(scores)
        anew = heard(family, family.made(again / str(number)))
        kind = Link if Link in anew.kinds else Sums
        found |= numbers(f"{name}/recorded/wire", anew.know(kind))
    return found


def difference(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """The largest, in units of the largest number among them where that exceeds 1."""
    if ours.shape != theirs.shape:
        return float("inf")
    if not ours.size or np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"):
        return 0.0
    one, other = (np.nan_to_num(a.astype(np.float64), nan=1e300) for a in (ours, theirs))
    return float(np.abs(one - other).max() / max(1.0, np.abs(one).max()))


def child(env: dict[str, str], folder: Path, out: Path, families: list[str]) -> Answers:
    """`answers` in a process that takes the kernels of another processor."""
    words = ["--child", str(folder), "--out", str(out), "--only", *families]
    command = [sys.executable, "-m", "reliability.processors", *words]
    subprocess.run(command, env=os.environ | ONE_THREAD | env, check=True, cwd=ROOT)
    with np.load(out / "answers.npz") as kept:
        return dict(kept)


def compared(family: str, ours: Answers, others: dict[str, Answers]) -> Row:
    """A row of the table: every attack and the recording of a family, on every processor."""
    trials = faults = 0
    worst = {"guess": (0.0, ""), "wire": (0.0, ""), "drawn": (0.0, "")}
    for processor, theirs in others.items():
        for attack in dict.fromkeys(
            key.split("/")[1] for key in ours if key.startswith(f"{family}/")
        ):
            mine = {k: v for k, v in ours.items() if k.startswith(f"{family}/{attack}/")}
            trials += 1
            if attack in DRAWN:
                scores = mine[f"{family}/{attack}/score"]
                apart = abs(float(scores[0] - theirs[f"{family}/{attack}/score"][0]))
                faults += apart > np.ptp(scores)
                kind = "drawn"
            else:
                apart = max(
                    difference(v, theirs[k]) for k, v in mine.items() if ".diagnostics" not in k
                )
                faults += apart > CLOSE
                kind = "wire" if attack == "recorded" else "guess"
            worst[kind] = max(worst[kind], (apart, f"{attack}, {processor}"))
    words = {
        "guess": "guesses and scores differ by at most {:.0e}",
        "wire": "what is sent by at most {:.0e}",
        "drawn": "scores of what draws samples or trains a network by at most {:.2f}",
    }
    said = [
        words[kind].format(apart) + (f" ({where})" if kind != "wire" else "") if apart else ""
        for kind, (apart, where) in worst.items()
    ]
    outcome = "; ".join(filter(None, said)) or "the same to the last bit"
    return counted(family, trials, int(faults), outcome)


def main() -> int:
    from federations import FAMILIES

    given = options(
        __doc__, __file__, only=list(FAMILIES), processor=list(PROCESSORS), child=Path()
    )
    if given.child != Path():
        given.out.mkdir()
        found: dict[str, Any] = answers(given.child, given.only, given.out)
        np.savez(given.out / "answers.npz", **found)
        return 0
    if platform.machine() not in ("x86_64", "AMD64"):
        raise SystemExit(f"the kernels of {platform.machine()} cannot be chosen by these variables")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number, name in enumerate(given.only):
            FAMILIES[name].made(folder / str(number))
        ours = child({}, folder, folder / "ours", given.only)
        others = {p: child(PROCESSORS[p], folder, folder / p, given.only) for p in given.processor}
    rows = [compared(name, ours, others) for name in given.only]
    return finish(given, f"The arithmetic of other processors: {', '.join(given.processor)}", rows)


if __name__ == "__main__":
    raise SystemExit(main())

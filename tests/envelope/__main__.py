"""The envelope: does everything that a user can ask still come out as well as it did?

    python -m tests.envelope check [--quick] [--jobs 2] [NAME ...]
    python -m tests.envelope record [--quick] [--jobs 2] [NAME ...]

``check`` runs the cases (all, the quick ones, or those named) and compares them with
tests/envelope/envelope.json as `tests.envelope.measure` says; it fails where one has left the
envelope, or takes more than one and a half times the recorded processor time of a seed.
``record`` writes the file anew for these cases: what they change is named in CHANGELOG under
"Numbers changed".
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

for library in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(library, "1")  # before anything imports numpy
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from tests.envelope.cases import CASES  # noqa: E402
from tests.envelope.measure import SLOWER, Row, keep, kept, left, measured, pooled  # noqa: E402

SLACK = 0.5
"""Seconds a seed, which a busy machine may add to a short case."""


def one(name: str) -> Row:
    """A case, by a worker."""
    return measured(CASES[name])


def complaints(name: str, now: Row | BaseException, before: dict[str, Row]) -> Iterator[str]:
    """What is not as recorded."""
    if isinstance(now, BaseException):
        yield f"crashed: {now!r}"
    elif name not in before:
        yield "is not recorded"
    else:
        then = before[name]
        for part, reasons in left(then, now).items():
            yield from (f"{part}: {reason}" for reason in reasons)
        if now["seconds"] > SLOWER * then["seconds"] + SLACK:
            yield f"takes {now['seconds']} s a seed, took {then['seconds']} s"


def shown(name: str, rows: list[Row]) -> str:
    """What came out, for a reader."""
    known = [f"{what} {value:.4g}" for what, value in pooled(rows).items()]
    marks = [mark for row in rows for mark in row["marks"]]
    return f"    {name:26}" + ", ".join(known + [f"{m} {marks.count(m)}" for m in {*marks}])


def main() -> None:
    """Run, print and compare or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("check", "record"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="of cases; all if none is given")
    parser.add_argument("--quick", action="store_true", help="only those that are among the tests")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_intermixed_args()
    if unknown := set(asked.names) - set(CASES):
        parser.error(f"unknown case {sorted(unknown)[0]!r}; known: {', '.join(CASES)}")
    names = [n for n in asked.names or CASES if CASES[n].quick or not asked.quick]
    before, wrong, total = kept(), [], 0.0
    with ProcessPoolExecutor(asked.jobs) as pool:
        waiting = {pool.submit(one, name): name for name in names}
        for number, done in enumerate(as_completed(waiting)):
            name, now = waiting[done], done.exception() or done.result()
            if isinstance(now, dict):
                total += now["seconds"] * CASES[name].seeds
                print(f"[{number + 1}/{len(names)}] {name}, {now['seconds']} s a seed")
                print(*(shown(*found) for found in now["answers"].items()), sep="\n", flush=True)
            if asked.what == "record" and isinstance(now, dict):
                before[name] = now
                keep({n: before[n] for n in CASES if n in before})
            else:
                wrong += [f"{name}: {what}" for what in complaints(name, now, before)]
    print(*wrong, f"{len(names)} cases, {total:.0f} s, {len(wrong)} complaints", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

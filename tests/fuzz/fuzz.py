"""Feed the readers changed files: a clean error or a right answer, never a crash, hang or > 1 GB.

    python tests/fuzz/fuzz.py --seconds 600 --out reliability/fuzz.json

Each reader runs in a process of its own, so that one that dies is noticed. An input at fault is
kept in ``--keep`` (default ``build/fuzz``); put it into ``corpus/`` when it is mended.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import forked  # noqa: E402

SLOW_SECONDS = 10.0  # of processor time, for an input of some kilobytes
HANG_SECONDS = 60
MOST_BYTES = 1 << 30


class Hang(BaseException):
    """Raised by the alarm."""


def fuzz_one(name: str, seconds: float, seed: int, keep: Path) -> dict[str, Any]:
    """Change and read until the time is over; what came of it."""
    import hypothesis
    from changes import inputs
    from hypothesis import HealthCheck, Phase, settings
    from readers import READERS

    from overheard.errors import OverheardError

    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    reader = READERS[name]
    scratch = Path(tempfile.mkdtemp(prefix="overheard-fuzz-"))
    current = scratch / "current"
    count = {"trials": 0, "refused": 0, "read": 0}
    faults: dict[str, bytes] = {}
    slowest = 0.0

    def ring(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, ring)
    seeds = reader.seeds()
    baseline: list[int] = []

    def once(raw: bytes) -> None:
        nonlocal slowest
        current.write_bytes(raw)
        place = scratch / "place"
        place.mkdir()
        count["trials"] += 1
        begin = time.process_time()
        signal.alarm(HANG_SECONDS)
        try:
            reader.read(raw, place)
            count["read"] += 1
        except OverheardError as error:
            count["refused"] += 1
            if len(str(error)) > 5000:
                raise AssertionError("an error of thousands of letters") from error
        finally:
            signal.alarm(0)
            shutil.rmtree(place)
        took = time.process_time() - begin
        slowest = max(slowest, took)
        if took > SLOW_SECONDS:
            raise AssertionError(f"{took:.0f} s of processor time")

    def noted(raw: bytes) -> None:
        try:
            once(raw)
        except (Exception, Hang) as error:
            faults[_signature(error)] = raw
            raise

    for raw in seeds:
        try:
            noted(raw)
        except (Exception, Hang):
            continue
    baseline.append(_peak())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        fuzzed = hypothesis.given(inputs(reader.like, seeds))(noted)
        fuzzed = settings(
            max_examples=reader.batch,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )(hypothesis.seed(seed)(fuzzed))
        try:
            fuzzed()
        except (Exception, Hang):
            if len(faults) > 20:
                break
        seed += 1
    grown = _peak() - baseline[0]
    shutil.rmtree(scratch, ignore_errors=True)
    if grown > MOST_BYTES:
        faults[f"took {grown >> 20} MiB"] = b""
    for number, (what, raw) in enumerate(faults.items()):
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{name}-{number}").write_bytes(raw)
        sys.stderr.write(f"{name}-{number}: {what}\n")
    return {
        **count,
        "faults": len(faults),
        "words": list(faults),
        "slowest": slowest,
        "peak": _peak(),
        "grown": grown,
    }


def _signature(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "overheard" in f.filename and "tests" not in f.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:200]!r}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def alone(name: str, seconds: float, seed: int, keep: Path) -> dict[str, Any]:
    """`fuzz_one` in a process of its own."""
    found = forked.alone(lambda: fuzz_one(name, seconds, seed, keep))
    if isinstance(found, int):
        empty = {"trials": 0, "refused": 0, "read": 0, "slowest": 0.0, "peak": 0}
        return empty | {"faults": 1, "words": [f"the process ended with status {found}"]}
    return found


def fuzz_all(names: list[str], seconds: float, seed: int, keep: Path) -> list[dict[str, Any]]:
    """Every reader for its part of the time, each in a process of its own."""
    import hypothesis  # noqa: F401  (here, once, and not in every process)
    import pyarrow.parquet  # noqa: F401

    import overheard.cli
    import overheard.evaluation.record
    import overheard.federation.recorders.description
    import overheard.sweep.grid  # noqa: F401

    rows = []
    end = time.monotonic() + seconds
    for number, name in enumerate(names):
        part = max((end - time.monotonic()) / (len(names) - number), 1.0)
        found = alone(name, part, seed, keep)
        for word in found["words"]:
            sys.stderr.write(f"FAULT {name}: {word}\n")
        outcome = (
            f"{'NOT ALL' if found['faults'] else 'all'} within bounds: {found['refused']} refused "
            f"cleanly, {found['read']} read; slowest "
            f"{found['slowest']:.1f} s, peak {found['peak'] / 2**20:.0f} MiB"
        )
        sys.stdout.write(f"{name}: {found['trials']} inputs, {found['faults']} faults; {outcome}\n")
        sys.stdout.flush()
        rows.append(
            {
                "what": f"reader of {name}",
                "trials": found["trials"],
                "faults": found["faults"],
                "outcome": outcome,
            }
        )
    return rows


def main() -> None:
    from readers import READERS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", choices=sorted(READERS), help="only this one, in this process")
    parser.add_argument("--only", nargs="+", choices=sorted(READERS), help="only these")
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--out", type=Path, help="write the figures there, as JSON")
    chosen = parser.parse_args()
    if chosen.reader:
        found = fuzz_one(chosen.reader, chosen.seconds, chosen.seed, chosen.keep)
        sys.stdout.write(json.dumps(found) + "\n")
        return
    rows = fuzz_all(chosen.only or list(READERS), chosen.seconds, chosen.seed, chosen.keep)
    if chosen.out:
        content = {
            "title": f"Changed files fed to every reader for {chosen.seconds / 60:.3g} minutes",
            "command": "make fuzz",
            "rows": rows,
        }
        chosen.out.parent.mkdir(exist_ok=True)
        chosen.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row["faults"] for row in rows))


if __name__ == "__main__":
    main()

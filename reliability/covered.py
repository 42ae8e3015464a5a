"""Which lines and branches of the package do the tests run?

    make coverage

Reads the data that ``pytest --cov --cov-branch`` left, prints a line per file that has something
left out and one per package, writes ``coverage.json``, and fails if a package is below 95%.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

from coverage import Coverage

PACKAGES = ("transcript", "decoding", "evaluation")
LEAST = 95.0
COMMAND = "make coverage"


def main() -> int:
    data = Coverage()
    data.load()
    rows, low = [], []
    for package in PACKAGES:
        shown = io.StringIO()
        include = [f"*/overheard/{package}/*"]
        share = data.report(
            include=include, show_missing=True, skip_covered=True, precision=1, file=shown
        )
        print(f"{package}: {share:.1f}%\n{shown.getvalue()}")
        units, left = counted(data, package)
        words = f"{share:.1f}% of lines and branches are run (at least {LEAST:.0f}%)"
        row = {"what": f"{package}/: lines and branches", "trials": units, "faults": left}
        rows.append(row | {"outcome": words})
        if share < LEAST:
            low.append(f"{package}/ is at {share:.1f}%, below {LEAST:.0f}%")
    content = {"title": "Lines and branches that the tests run", "command": COMMAND, "rows": rows}
    out = Path(__file__).with_name("coverage.json")
    out.write_text(json.dumps(content, indent=2) + "\n")
    for line in low:
        print(line, file=sys.stderr)
    return min(1, len(low))


def counted(data: Coverage, package: str) -> tuple[int, int]:
    """Lines and branches there are, and how many were not run."""
    units = left = 0
    for file in data.get_data().measured_files():
        if f"/overheard/{package}/" in file:
            numbers = data._analyze(file).numbers
            units += numbers.n_statements + numbers.n_branches
            left += numbers.n_missing + numbers.n_missing_branches
    return units, left


if __name__ == "__main__":
    raise SystemExit(main())

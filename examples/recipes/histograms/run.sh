#!/bin/sh
# Simulates, records and audits; ends in OUT/audit/report.html.
set -e
OUT=$(realpath "${1:-out}") && cd "$(dirname "$0")"
python ../people.py "$OUT"
cp federation.toml "$OUT"
cd "$OUT"
overheard simulate federation.toml --out run
overheard audit "$OUT/run" --no-rounds --no-coverage --client 0 --attack linear --attack majority --out "$OUT/audit"

#!/bin/sh
# Trains, records and audits; ends in OUT/audit/report.html.
set -e
OUT=$(realpath "${1:-out}") && cd "$(dirname "$0")" && export PYTHONPATH="$PWD/.."
python ../people.py "$OUT"
python ../loop.py ridge "$OUT"
cp audit.toml "$OUT"
overheard audit "$OUT/run" --with "$OUT/audit.toml" --no-rounds --client 0 --attack max_entropy --attack majority --out "$OUT/audit"

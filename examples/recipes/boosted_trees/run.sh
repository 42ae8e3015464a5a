#!/bin/sh
# Both ways are trained, recorded and audited; ends in OUT/audit/report.html and OUT/cyclic/audit/report.html.
set -e
OUT=$(realpath "${1:-out}") && cd "$(dirname "$0")" && export PYTHONPATH="$PWD:$PWD/.."
python ../people.py "$OUT" 200
python ../flower.py boosted_trees "$OUT"
cp audit.toml "$OUT"
overheard audit "$OUT/run" --with "$OUT/audit.toml" --no-rounds --client 0 --attack max_entropy --attack majority --out "$OUT/audit"
python ../people.py "$OUT/cyclic" 200
python ../flower.py boosted_trees "$OUT/cyclic" train-method=cyclic
cp cyclic.toml "$OUT/cyclic"
overheard audit "$OUT/cyclic/run" --with "$OUT/cyclic/cyclic.toml" --no-rounds --client 0 --attack max_entropy --attack majority --out "$OUT/cyclic/audit"

"""A plain loop over scikit-learn's linear models, recorded by `overheard.Recorder` and audited.

    python scikit_learn.py [classes|numbers [OUT]]

SGDClassifier (logistic) or SGDRegressor (squared error, with its small ridge), one pass over each
site's records a round, and the mean of the sites: what is sent are ``coef_`` and ``intercept_``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import SGDClassifier, SGDRegressor

import overheard
from overheard.federation.recorders.description import describe, read_description

SITES, PEOPLE, ROUNDS, RATE = ("north", "south"), 20, 8, 0.02
COLUMNS = ("age", "income", "visits", "dose", "smokes")
DESCRIPTION = """
[data]
source = "file"
path = "people.csv"
client = "site"
target = "y"
task = "{task}"
scale = "none"

[model]
name = "{name}"
wire_names = {{ "layers.0.weight" = "coef_", "layers.0.bias" = "intercept_" }}

[training]
learning_rate = {rate}       # of a squared error scikit-learn takes half, so half of its eta0
batch_size = 1

[audit]
attributes = ["smokes"]
"""


def people(site: str, classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """A site's inputs, the last of them the secret, and its labels."""
    rng = np.random.default_rng(SITES.index(site))
    smokes = (rng.random(PEOPLE) < 0.4).astype(float)
    x = np.column_stack([rng.normal(size=(PEOPLE, 4)), smokes])
    score = x @ [0.5, -0.5, 0.3, 0.2, 0.8] + rng.normal(0, 0.5, PEOPLE)
    return x, (score > 0.3).astype(float) if classes else score


def train(out: Path, classes: bool) -> None:
    """The federation; the lines with ``recorder`` are all that is ours."""
    coef, intercept = np.zeros((1, len(COLUMNS))), np.zeros(1)
    how = {"learning_rate": "constant", "eta0": RATE}
    with overheard.Recorder(out / "run") as recorder:
        for number in range(ROUNDS):
            recorder.sent(number, "", {"coef_": coef, "intercept_": intercept})
            returned = []
            for site in SITES:
                x, y = people(site, classes)
                model = SGDClassifier(loss="log_loss", **how) if classes else SGDRegressor(**how)
                begin = {"coef_init": coef.copy(), "intercept_init": intercept.copy()}
                model.set_params(max_iter=1, tol=None, random_state=number).fit(x, y, **begin)
                arrays = {"coef_": model.coef_.reshape(1, -1), "intercept_": model.intercept_}
                recorder.returned(number, site, arrays, len(y))
                returned.append(arrays)
            coef, intercept = (np.mean([r[n] for r in returned], axis=0) for n in returned[0])


def audited(out: Path, classes: bool) -> overheard.Audit:
    """The audit, once the auditor has said whose records they are and how they were trained on."""
    lines = [",".join(["site", *COLUMNS, "y"])]
    for site in SITES:
        rows = np.column_stack(people(site, classes)).tolist()
        lines += [",".join([site, *map(repr, row)]) for row in rows]
    (out / "people.csv").write_text("\n".join(lines) + "\n")
    said = {"task": "classification", "name": "logistic", "rate": RATE}
    if not classes:
        said = {"task": "regression", "name": "linear", "rate": RATE / 2}
    (out / "audit.toml").write_text(DESCRIPTION.format(**said))
    recording = overheard.Recording.open(out / "run")
    folder = Path(tempfile.mkdtemp(dir=out))
    describe(recording, read_description(out / "audit.toml"), folder / "described")
    threat = overheard.threat_named("eavesdropper")
    recording = recording.described_in(folder / "described")
    return overheard.audit(recording, threat, ["max_entropy", "majority"], ["north"])


def main(kind: str = "classes", out: str = "scikit-learn") -> None:
    folder, asked = Path(out), kind == "classes"
    folder.mkdir()
    train(folder, asked)
    record = audited(folder, asked)
    for finding in record.findings:
        print(finding.client, finding.attack, finding.value, "majority", finding.majority)
    overheard.write_report(record, folder / "report.html")


if __name__ == "__main__":
    main(*sys.argv[1:])

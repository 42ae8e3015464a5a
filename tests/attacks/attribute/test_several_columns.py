"""Five columns at once, one of them a number: by the path of every audit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from overheard import Recording, launch, parse_config, plan, simulate, threat_named
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute

SECRETS = ("a", "b", "c", "d", "n")


def test_forty_eight_combinations_of_yes_or_no_columns_and_a_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    every = np.stack(np.meshgrid(*[[0, 1]] * 4, [0, 1.5, 4]), axis=-1).reshape(-1, 5)
    secret = rng.permutation(np.tile(every, (2, 1)))
    public = rng.normal(size=(96, 6))
    label = secret @ [1, -1, 0.5, 1, 0.3] + public.sum(axis=1) + rng.normal(size=96)
    rows = [
        f"{i // 24},{','.join(map(str, (*s, *x, y)))}"
        for i, (s, x, y) in enumerate(zip(secret, public, label, strict=True))
    ]
    names = ",".join(("at", *SECRETS, *"uvwxyz", "y_"))
    table = tmp_path / "people.csv"
    table.write_text("\n".join([names, *rows]) + "\n")
    config = {
        "data": {"source": "file", "path": str(table), "client": "at", "target": "y_"},
        "model": {"name": "mlp", "hidden": [10]},
        "training": {"rounds": 2, "learning_rate": 0.05},
        "audit": {"attributes": [list(SECRETS)]},
        "seed": 1,
    }
    recording = Recording.open(simulate(plan(parse_config(config)), tmp_path / "run"))
    view = observe(recording, threat_named("eavesdropper"), attribute(*SECRETS), "0")
    guess = launch(MaxEntropy(), view, 0)
    combinations = np.array(view.know(AttributeDomain).combinations)
    assert len(combinations) == 48
    truth = np.stack([recording.truth()["0"][c] for c in SECRETS], axis=1)
    right = combinations[guess.probabilities.argmax(axis=1)] == truth
    assert right[:, :4].mean() > 0.9
    assert guess.diagnostics["method"] == "narrowing"
    assert guess.diagnostics["unknowns"] == 24 * 47
    assert "flag" not in guess.diagnostics

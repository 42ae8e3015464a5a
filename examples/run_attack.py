"""Launch an attack of one's own on a recording, with exactly the knowledge that it declares."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from share_of_values import ShareOfValues

from overheard import Recording, Target, launch, observe, parse_config, plan, simulate, threat_named

CONFIG = {
    "data": {"source": "randhie"},
    "model": {"name": "mlp", "hidden": [4]},
    "training": {"rounds": 3, "learning_rate": 0.05},
    "audit": {"attributes": ["female"]},
}

with tempfile.TemporaryDirectory() as folder:
    recording = Recording.open(simulate(plan(parse_config(CONFIG)), f"{folder}/run"))
    for client in recording.clients:
        view = observe(
            recording, threat_named("eavesdropper"), Target("attribute", "female"), client
        )
        guess = launch(ShareOfValues(), view, seed=0)
        truth = recording.truth()[client]["female"].mean()
        print(f"{client}: share of women {guess.probabilities[0, 1]:.2f}, in truth {truth:.2f}")

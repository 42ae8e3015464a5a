"""A network of one's own: layer normalisation and GELU, which overheard has never heard of.

    python examples/own_module.py

The file defines the module, a federation that trains it with plain gradient steps, records what is
sent and decodes an attribute of every record from one round. From the command line the same is

    overheard --trust own_module:net simulate federation.toml --out run
    overheard --trust own_module:net audit run --attack max_entropy --out audit

with ``[model] name = "module"`` and ``factory = "own_module:net"`` in federation.toml.
"""

import sys
import tempfile
from pathlib import Path

from torch import nn

from overheard import Recording, audit, parse_config, plan, simulate, threat_named
from overheard.programs.trusted import trust

FACTORY = "own_module:net"
CONFIG = {
    "data": {"source": "digits", "options": {"victim": 60, "attributes": ["c043"]}},
    "model": {"name": "module", "factory": FACTORY},
    "training": {"rounds": 1, "learning_rate": 0.1},
}


def net() -> nn.Module:
    """What the clients train: which digit is it, by 64 pixels?"""
    return nn.Sequential(
        nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 16), nn.GELU(),
        nn.Linear(16, 10),
    )  # fmt: skip


def main(folder: str) -> None:
    """Simulate, record, decode; prints for what share of the digits the secret pixel is found."""
    sys.path.insert(0, str(Path(__file__).parent))
    trust(FACTORY)
    recording = Recording.open(simulate(plan(parse_config(CONFIG)), f"{folder}/run"))
    record = audit(recording, threat_named("eavesdropper"), ["max_entropy"])
    for found in record.pooled:
        print(f"{found.value:.3f} of {found.n} digits' secret pixel from one round")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)

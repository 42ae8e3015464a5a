"""A network of one's own: layer normalisation and GELU, which overheard has never heard of.

    python examples/own_module.py [--out FOLDER]

The file defines the module, a federation that trains it with plain gradient steps, records what is
sent and decodes an attribute of every record from one round. From the command line the same is

    overheard --trust own_module:net simulate federation.toml --out run
    overheard --trust own_module:net audit run --attack max_entropy --out audit

with ``[model] name = "module"`` and ``factory = "own_module:net"`` in federation.toml.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from torch import nn

FACTORY = "own_module:net"
INPUTS = 6


def net() -> nn.Module:
    """What the clients train."""
    return nn.Sequential(
        nn.Linear(INPUTS, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 16), nn.GELU(),
        nn.Linear(16, 1),
    )  # fmt: skip


def people(path: Path, rows: int = 180) -> None:
    """A table of generated people at three sites."""
    rng = np.random.default_rng(1)
    smokes = rng.integers(2, size=rows)
    numbers = rng.normal(size=(rows, INPUTS - 1))
    cost = numbers @ rng.normal(size=INPUTS - 1) + smokes + rng.normal(size=rows)
    names = [f"x{j}" for j in range(INPUTS - 1)]
    lines = [",".join(["site", *names, "smokes", "cost"])]
    for i in range(rows):
        cells = ",".join(f"{x:.5f}" for x in numbers[i])
        lines.append(f"site {i % 3},{cells},{smokes[i]},{cost[i]:.5f}")
    path.write_text("\n".join(lines) + "\n")


def main(out: Path) -> float:
    """Simulate, record, decode; the share of records whose attribute is found."""
    sys.path.insert(0, str(Path(__file__).parent))
    import overheard
    from overheard.federation.federation import parse_config
    from overheard.federation.plan import plan
    from overheard.federation.simulate import simulate
    from overheard.programs.trusted import trust
    from overheard.transcript.threat import EAVESDROPPER

    trust(FACTORY)
    out.mkdir(parents=True, exist_ok=True)
    people(out / "people.csv")
    config = parse_config(
        {
            "data": {
                "source": "file",
                "path": str(out / "people.csv"),
                "client": "site",
                "target": "cost",
            },
            "model": {"name": "module", "factory": FACTORY},
            "training": {"rounds": 1, "learning_rate": 0.1},
            "audit": {"attributes": ["smokes"]},
        }
    )
    run = simulate(plan(config), out / "run")
    record = overheard.audit(
        overheard.Recording.open(run), EAVESDROPPER, ["max_entropy", "majority"]
    )
    found = [f for f in record.findings if f.attack == "max_entropy"]
    right = sum(f.value * f.n for f in found) / sum(f.n for f in found)
    print(f"{right:.3f} of {sum(f.n for f in found)} people's secret from one round")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("own-module"))
    main(parser.parse_args().out)

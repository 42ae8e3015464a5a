"""The same bits whatever the threads, processes and order of work.

Stated tolerance: recordings and guesses to the last bit with one or two threads of BLAS, at the
sizes of a test. Larger products may be added up in another order by another number of threads, or
by the kernels of another processor; then
updates differ in the last place of the wire and probabilities by less than 1e-6.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import FAMILIES
from patience import PATIENCE
from threadpoolctl import threadpool_limits

pytestmark = pytest.mark.slow

WORK = """
import json, sys
from pathlib import Path
from overheard.attacks import attack_named
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.transcript.view import (observe)
from overheard.transcript.store import Recording
from overheard.transcript.target import (attribute)
from overheard.transcript.threat import SERVER
from overheard.transcript.view import (launch)

config = {
    "data": {"source": "digits", "options": {"victim": 60, "participants": 3,
                                              "attributes": ["c043"]}},
    "model": {"name": "mlp", "hidden": [64]},
    "training": {"rounds": 1, "learning_rate": 0.1},
}

def guessed(path):
    run = Recording.open(simulate(plan(parse_config(config)), path))
    view = observe(run, SERVER, attribute("c043"), run.clients[0])
    return launch(attack_named("max_entropy"), view, 0).probabilities.tolist()

if __name__ == "__main__":
    print(json.dumps(guessed(Path(sys.argv[1]))))
"""


def digests(path: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted((path / "wire").glob("*.safetensors"))
    }


def test_threads_and_processes_change_nothing(tmp_path):
    """Here with one thread, and in a process of its own with two."""
    work: dict[str, Any] = {"__name__": "work"}
    exec(WORK, work)
    with threadpool_limits(1):
        one = np.array(work["guessed"](tmp_path / "one"))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(tmp_path / "two")],
        env={**os.environ, **dict.fromkeys(names, "2")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert len(digests(tmp_path / "one")) == 1
    np.testing.assert_allclose(one, np.array(json.loads(done.stdout)), atol=1e-6)
    assert one.shape == (60, 2)


OLD = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
PROCESSORS = {
    "Haswell": {
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
    },
    "Nehalem": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3",
        **OLD,
    },
}
"""What makes OpenBLAS, numpy, torch and MKL take the kernels of an older processor."""
LAUNCHED = """
import sys
from pathlib import Path
import numpy as np
from federations import FAMILIES, heard, quick
from overheard.transcript.store import Recording
from overheard.transcript.view import launch

_, run, again, out = sys.argv
family = FAMILIES["attributes, linear"]
view = heard(family, Recording.open(run))
guesses = {a: launch(quick(a), view, 3).probabilities for a in family.attacks}
from overheard.transcript.knowledge import Link
np.savez(out, returned=heard(family, family.made(Path(again))).know(Link).returned, **guesses)
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="the kernels of other processors can be chosen on x86-64 only",
)
def test_the_arithmetic_of_an_older_processor(tmp_path):
    """Every attack on one recording, and the recording made anew: other bits, hardly other
    numbers."""
    FAMILIES["attributes, linear"].made(tmp_path / "run")
    found = {}
    for name, env in {"ours": {}, **PROCESSORS}.items():
        places = [str(tmp_path / part) for part in ("run", name, f"{name}.npz")]
        helpers = os.pathsep.join([str(Path(__file__).parents[1] / "helpers"), *sys.path])
        subprocess.run(
            [sys.executable, "-c", LAUNCHED, *places],
            env={**os.environ, "PYTHONPATH": helpers, **env}, timeout=PATIENCE, check=True,
        )  # fmt: skip
        found[name] = dict(np.load(places[2]))
    ours = found.pop("ours")
    assert len(ours) >= 4
    for name, theirs in found.items():
        for key, numbers in ours.items():
            np.testing.assert_allclose(theirs[key], numbers, rtol=0, atol=1e-6, err_msg=name)
    assert any(not np.array_equal(ours[k], older[k]) for older in found.values() for k in ours)

"""The same bits whatever the threads, processes and order of work.

Stated tolerance: recordings and guesses to the last bit with one or two threads of BLAS, at the
sizes of a test. Larger products may be added up in another order by another number of threads, or
by the kernels of another processor; then updates differ in the last place of the messages and
probabilities by less than 1e-6.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from federations import FAMILIES
from patience import PATIENCE

pytestmark = pytest.mark.slow

ASKED = ("attributes, linear", "attributes, network")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
OLD = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
PROCESSORS = {
    "Haswell": {
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
    },
    "Nehalem": {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3", **OLD},
}
"""What makes OpenBLAS, numpy, torch and MKL take the kernels of an older processor."""
LAUNCHED = """
import sys
from pathlib import Path
import numpy as np
from federations import FAMILIES, observed, quick
from overheard.transcript.knowledge import Messages
from overheard.transcript.store import Recording
from overheard.transcript.view import launch

_, runs, again, *asked = sys.argv
found = {}
for name in asked:
    family = FAMILIES[name]
    view = observed(family, Recording.open(Path(runs) / name))
    for attack in family.attacks:
        found[f"{name}: {attack}"] = launch(quick(attack), view, 3).probabilities
    made = observed(family, family.made(Path(again) / name))
    found[f"{name}: messages"] = made.know(Messages).returned
np.savez(again, **found)
"""


def elsewhere(folder: Path, name: str, env: dict[str, str]) -> dict[str, np.ndarray]:
    """Every attack on a recording, and the recording made anew, in a process of its own."""
    helpers = os.pathsep.join([str(Path(__file__).parents[1] / "helpers"), *sys.path])
    subprocess.run(
        [sys.executable, "-c", LAUNCHED, str(folder), str(folder / name), *ASKED],
        env={**os.environ, "PYTHONPATH": helpers, **env}, timeout=PATIENCE, check=True,
    )  # fmt: skip
    return dict(np.load(folder / f"{name}.npz"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in ASKED:
        FAMILIES[name].made(folder / name)
    return folder


@pytest.fixture(scope="module")
def ours(runs: Path) -> dict[str, np.ndarray]:
    return elsewhere(runs, "ours", dict.fromkeys(THREADS, "1"))


def test_threads_and_processes_change_nothing(runs, ours):
    """Messages to the last bit."""
    two = elsewhere(runs, "two threads", dict.fromkeys(THREADS, "2"))
    for key, numbers in ours.items():
        np.testing.assert_allclose(two[key], numbers, rtol=0, atol=1e-6, err_msg=key)
        assert "messages" not in key or np.array_equal(two[key], numbers)


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="the kernels of other processors can be chosen on x86-64 only",
)
def test_the_arithmetic_of_an_older_processor(runs, ours):
    """Other bits, hardly other numbers."""
    found = {name: elsewhere(runs, name, env) for name, env in PROCESSORS.items()}
    for name, theirs in found.items():
        for key, numbers in ours.items():
            np.testing.assert_allclose(theirs[key], numbers, rtol=0, atol=1e-6, err_msg=name)
    assert any(not np.array_equal(ours[k], older[k]) for older in found.values() for k in ours)

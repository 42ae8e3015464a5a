"""RAND Health Insurance Experiment: real people of six sites; the file lies beside this one.

Public domain; randhie.txt says where it comes from. Rows of the file are person-years; we keep the
first of each person, so that nobody appears twice, and drop people whose ``black`` is neither 0 nor
1. The target is the logarithm of medical spending, log(1 + meddol), or, with ``above_median``,
whether it is above the median. 5,831 people remain.
"""

from __future__ import annotations

import gzip
from importlib import resources
from pathlib import Path

import numpy as np

from overheard.data.dataset import Dataset
from overheard.programs.records import Records

WHAT = "5,831 people of 6 sites (clients); predict the logarithm of medical spending"
LICENCE = "public domain"
ORIGIN = "RAND Health Insurance Experiment (Cameron & Trivedi 2005), bundled in statsmodels"
NOTE = "no paper's own numbers stand on this table"
BUNDLED = "comes with overheard"
FILE = resources.files("overheard.data") / "randhie.csv.gz"
SENSITIVE = ("female", "black", "physlm")
PUBLIC = "xage linc lfam educdec num disea ghindx mhi logc lpi fmde hlthg hlthf hlthp child".split()


def load(folder: Path | None = None, above_median: bool = False) -> Dataset:
    """The people of the experiment; ``folder`` is not needed, the file is in the package.

    ``above_median``: predict who spends more than the median in place of how much.
    """
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
    kept["physlm"] = (kept["physlm"] > 0).astype(np.float64)
    for name in ("ghindx", "educdec"):
        missing = np.isnan(kept[name])
        kept[name] = np.where(missing, np.nanmean(kept[name]), kept[name])
    records = {
        "site": np.array([f"site {int(s)}" for s in kept["site"]]),
        **{name: kept[name] for name in (*PUBLIC, *SENSITIVE)},
    }
    spent = np.log1p(kept["meddol"])
    target = "high_spending" if above_median else "log_spending"
    records[target] = (spent > np.median(spent)).astype(np.float64) if above_median else spent
    return Dataset(
        name="randhie",
        records=Records(records),
        client="site",
        target=target,
        task="classification" if above_median else "regression",
        sensitive=SENSITIVE,
        origin=ORIGIN,
        licence=LICENCE,
    )

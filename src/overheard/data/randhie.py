"""RAND Health Insurance Experiment: real people of six sites; the file lies beside this one.

Public domain; randhie.txt says where it comes from. Rows of the file are person-years; we keep the
first of each person, so that nobody appears twice, and drop people whose ``black`` is neither 0 nor
1. The target is the logarithm of medical spending, log(1 + meddol). 5,831 people remain.
"""

from __future__ import annotations

import gzip
from importlib import resources
from pathlib import Path

import numpy as np

from overheard.data.dataset import Dataset
from overheard.data.source import sources
from overheard.programs.records import Records

SOURCE = sources()["randhie"]
FILE = resources.files("overheard.data") / "randhie.csv.gz"
SENSITIVE = ("female", "black", "physlm")
PUBLIC = "xage linc lfam educdec num disea ghindx mhi logc lpi fmde hlthg hlthf hlthp child".split()


def load(folder: Path | None = None) -> Dataset:
    """The people of the experiment; ``folder`` is not needed, the file is in the package."""
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
        "log_spending": np.log1p(kept["meddol"]),
    }
    return SOURCE.dataset(
        Records(records),
        client="site",
        target="log_spending",
        task="regression",
        sensitive=SENSITIVE,
    )

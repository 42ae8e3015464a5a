"""The tables that are always there: real people of six sites, and handwritten digits.

**randhie**, the RAND Health Insurance Experiment; the file lies beside this one. Public domain;
randhie.txt says where it comes from. Rows of the file are person-years; we keep the first of each
person, so that nobody appears twice. The target is the logarithm of medical spending,
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

**digits** and **digits_images**, from scikit-learn: for tests and the quick start, without any
file. As a table, one victim: 8 x 8 pixels are dark or not (half of the greatest value), c000 to
c063, line by line; the default attributes c043 (dark for 49 % of the digits) and c005 (37 %) mean
nothing to anybody. As images, many equal clients: each pixel is drawn four times, which makes
16 x 16, the smallest that LeNet takes.

How records are dealt, here and by sources of others (`deal`, `deal_images`): they are shuffled once
by the seed. The first ones go to the clients, so many to each: a smaller federation is a part of a
larger one. The last ones are a public set of the same population (`Dataset.outside`), from which
values, shares and an adversary's auxiliary records come. One victim and perhaps some others is how
lyu2021 splits its tables; many equal clients of images is how kerkouche2023 splits MNIST and the
like. An image is a row of bytes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.data.source import BUNDLED, Source
from overheard.errors import FixConfig
from overheard.programs.records import Records
from overheard.randomness import stream

FILE = resources.files("overheard.data") / "randhie.csv.gz"
SENSITIVE = ("female", "black", "physlm")
PUBLIC = "xage linc lfam educdec num disea mhi logc lpi fmde hlthg hlthf hlthp child".split()
SIDE, DARKEST = 8, 16
VICTIM, CLIENT, IMAGE, TARGET = "victim", "client", "image", "class"
Bytes = NDArray[np.uint8]


def randhie(above_median: bool = False) -> Dataset:
    """The people; ``above_median``: predict who spends more than the median, not how much."""
    used: Any = ("zper", "year", "site", "meddol", *SENSITIVE, *PUBLIC)
    with FILE.open("rb") as packed, gzip.open(packed) as file:
        table = np.genfromtxt(file, delimiter=",", names=True, usecols=used)
    table = table[np.lexsort((table["year"], table["zper"]))]
    table = table[np.unique(table["zper"], return_index=True)[1]]
    table = table[np.isin(table["black"], (0.0, 1.0))]
    table["physlm"] = table["physlm"] >= 0.5
    table["educdec"] = np.nan_to_num(table["educdec"], nan=np.nanmean(table["educdec"]))
    records = {
        "site": np.array([f"site {int(s)}" for s in table["site"]]),
        **{name: table[name].copy() for name in (*PUBLIC, *SENSITIVE)},
    }
    spent = np.log1p(table["meddol"])
    target = "high_spending" if above_median else "log_spending"
    records[target] = (spent > np.median(spent)).astype(np.float64) if above_median else spent
    return BUNDLED["randhie"].dataset(
        Records(records),
        client="site",
        target=target,
        task="classification" if above_median else "regression",
        sensitive=SENSITIVE,
    )


def digits(**split: Any) -> Dataset:
    """A victim of 100 digits and 500 of nobody's, unless ``split`` says otherwise, see `deal`."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    columns = list((np.asarray(pixels).T >= DARKEST / 2).astype(np.float64))
    how = {"victim": 100, "public": 500, "attributes": ("c043", "c005"), **split}
    return deal(BUNDLED["digits"], columns, np.asarray(labels, dtype=np.float64), **how)


def digits_images(**shares: Any) -> Dataset:
    """20 clients of 10 digits each, unless ``shares`` says otherwise, see `deal_images`."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    grey = np.round(np.asarray(pixels) * (255 / DARKEST)).astype(np.uint8)
    large = grey.reshape(-1, SIDE, SIDE).repeat(2, axis=1).repeat(2, axis=2)
    images, shape = large.reshape(len(large), -1), (1, 2 * SIDE, 2 * SIDE)
    how = {"clients": 20, "auxiliary": 1000, **shares}
    return deal_images(BUNDLED["digits_images"], images, labels, shape, **how)


def deal(  # noqa: PLR0913  # the records, and how to deal them
    source: Source,
    columns: Sequence[NDArray[np.generic]],
    labels: NDArray[np.generic],
    *,
    victim: int,
    attributes: Sequence[str],
    participants: int = 1,
    public: int = 1000,
    seed: int = 0,
    **roles: Any,
) -> Dataset:
    """A victim of so many records, others of as many (``participants`` counts the victim too), and
    ``public`` records of nobody's. Columns are c000, c001, ...; ``attributes`` are sensitive."""
    names = [f"c{j:03d}" for j in range(len(columns))]
    if unknown := sorted(set(attributes) - set(names)):
        raise FixConfig(
            f"{source.name}: no column {unknown[0]!r}; the columns are c000 to {names[-1]}"
        )
    table = Records({**dict(zip(names, columns, strict=True)), TARGET: labels})
    clients = (f"participant {i + 1}" if i else VICTIM for i in range(participants))
    roles["sensitive"] = tuple(attributes)
    return _dealt(source, table, clients, [participants, victim, public], seed, **roles)


def deal_images(  # noqa: PLR0913  # as above
    source: Source,
    images: Bytes,
    labels: NDArray[np.generic],
    shape: tuple[int, int, int],
    *,
    clients: int = 50,
    records: int = 10,
    auxiliary: int = 6000,
    seed: int = 0,
) -> Dataset:
    """So many clients of so many records each, and ``auxiliary`` images that are nobody's."""
    names = (f"client {i:0{len(str(clients - 1))}d}" for i in range(clients))
    table = Records({IMAGE: images, TARGET: labels.astype(np.float64)})
    roles = {"sensitive": (), "images": {IMAGE: shape}}
    return _dealt(source, table, names, [clients, records, auxiliary], seed, **roles)


def _dealt(
    source: Source, rows: Records, names: Iterable[str], sizes: list[int], seed: int, **roles: Any
) -> Dataset:
    """``names``: of the clients, made when it is known that there are records for so many;
    ``sizes``: clients, records of each, and how many are nobody's."""
    clients, each, nobodys = sizes
    wanted = clients * each
    if min(clients, each) < 1 or nobodys < 0 or wanted + nobodys > len(rows):
        raise FixConfig(
            f"{source.name}: {clients} client(s) of {each} records and {nobodys} of nobody's "
            f"cannot be dealt of {len(rows)}: ask for at least 1 client of 1 record, and no more "
            "in all"
        )
    order = stream(seed, source.name, "records").permutation(len(rows))
    return source.dataset(
        Records({CLIENT: np.repeat(list(names), each), **rows.take(order[:wanted]).columns}),
        client=CLIENT,
        target=TARGET,
        task="classification",
        outside=rows.take(order[len(rows) - nobodys :]) if nobodys else None,
        **roles,
    )

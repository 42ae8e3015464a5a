"""Fashion-MNIST: 60,000 articles of clothing, 28 x 28 pixels; which of 10 kinds?

How the images are split: `overheard.data.images`.
"""

from __future__ import annotations

from pathlib import Path

from overheard.data import lookup
from overheard.data.dataset import Dataset
from overheard.data.fetch import Member, Package
from overheard.data.images import deal_images, read_idx_pair
from overheard.data.victim import Source

WHAT = "60,000 articles of clothing, 28 x 28; which of 10 kinds? Many equal clients"
LICENCE = "MIT"
ORIGIN = "H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST, Zalando, 2017"
NOTE = "a data set of kerkouche2023; which images each client holds is not published"
FILES = (("fashion_mnist/train-images-idx3-ubyte.gz", "fashion_mnist/train-labels-idx1-ubyte.gz"),)
REMEDY = (
    "run `overheard data fetch fashion` (where there is apt), or set OVERHEARD_DATA to the folder "
    "that holds fashion_mnist/"
)
_PLACE = "./usr/share/datasets/fashion-mnist"
PACKAGE = Package(
    kind="debian",
    name="dataset-fashion-mnist",
    version="0.0~git20200523.55506a9-1",
    members=(
        Member(
            path=f"{_PLACE}/train-images-idx3-ubyte.gz",
            size=26421856,
            sha256="b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
            to="fashion_mnist/train-images-idx3-ubyte.gz",
        ),
        Member(
            path=f"{_PLACE}/train-labels-idx1-ubyte.gz",
            size=29491,
            sha256="0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
            to="fashion_mnist/train-labels-idx1-ubyte.gz",
        ),
    ),
)
SIDE = 28


def load(
    folder: str | Path | None = None,
    seed: int = 0,
    clients: int = 50,
    records: int = 10,
    auxiliary: int = 6000,
) -> Dataset:
    """Clients of so many articles each; ``seed`` shuffles."""
    images, labels = read_idx_pair(lookup.locate("fashion", FILES, REMEDY, folder), SIDE)
    source = Source("fashion", ORIGIN, LICENCE)
    return deal_images(source, images, labels, (1, SIDE, SIDE), clients, records, auxiliary, seed)

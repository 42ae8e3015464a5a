"""Fashion-MNIST: 60,000 articles of clothing, 28 x 28 pixels; which of 10 kinds? Kept as MNIST is.

How the images are split: `overheard.data.bundled`.
"""

from __future__ import annotations

from functools import partial

from experiments.data import SOURCES, mnist

load = partial(mnist.load, source=SOURCES["fashion"])

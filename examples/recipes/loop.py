"""A plain loop over a linear model of scikit-learn: ``coef_`` and ``intercept_`` are sent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import people

import overheard


def federate(make: Callable[[], Any], out: Path, rounds: int, target: str = people.TARGET) -> None:
    """One pass over each site's people a round, and the mean of the sites. The lines with
    ``recorder`` are overheard's."""
    coef, intercept = np.zeros((1, 17)), np.zeros(1)
    with overheard.Recorder(out / "run") as recorder:
        for number in range(rounds):
            recorder.sent(number, "", {"coef_": coef, "intercept_": intercept})
            returned = []
            for site in range(people.SITES):
                x, y = people.partition(site, target=target)
                model = make().set_params(random_state=number)
                model.fit(x, y, coef_init=coef.copy(), intercept_init=intercept.copy())
                arrays = {"coef_": model.coef_.reshape(1, -1), "intercept_": model.intercept_}
                recorder.returned(number, str(site), arrays, len(y))
                returned.append(arrays)
            coef, intercept = (np.mean([r[n] for r in returned], axis=0) for n in returned[0])

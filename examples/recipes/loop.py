"""``python loop.py RECIPE OUT``: a plain loop over a linear model of scikit-learn.

``coef_`` and ``intercept_`` are sent. The lines with ``recorder`` are overheard's.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import people
from sklearn.linear_model import SGDClassifier, SGDRegressor

import overheard

USUAL: dict[str, Any] = {"learning_rate": "constant", "eta0": 0.01, "max_iter": 1, "tol": None}
MODELS = {
    "sgd_classifier": (SGDClassifier(loss="log_loss", **USUAL), people.TARGET),
    "ridge": (SGDRegressor(penalty="l2", **USUAL), "log_spending"),
}
"""Who spends much on doctors, or how much? The model, and the column that it predicts."""


def federate(model: Any, target: str, out: Path, rounds: int = 8) -> None:
    """One pass over each site's people a round, and the mean of the sites."""
    coef, intercept = np.zeros((1, 17)), np.zeros(1)
    with overheard.Recorder(out / "run") as recorder:
        for number in range(rounds):
            recorder.sent(number, "", {"coef_": coef, "intercept_": intercept})
            returned = []
            for site in range(people.SITES):
                x, y = people.partition(site, target=target)
                model.set_params(random_state=number)
                model.fit(x, y, coef_init=coef.copy(), intercept_init=intercept.copy())
                arrays = {"coef_": model.coef_.reshape(1, -1), "intercept_": model.intercept_}
                recorder.returned(number, str(site), arrays, len(y))
                returned.append(arrays)
            coef, intercept = (np.mean([r[n] for r in returned], axis=0) for n in returned[0])


if __name__ == "__main__":
    federate(*MODELS[sys.argv[1]], Path(sys.argv[2]))

"""``python train.py OUT``: how much do people spend on doctors? scikit-learn's ridge by SGD."""

import sys
from pathlib import Path

from loop import federate
from sklearn.linear_model import SGDRegressor


def model() -> SGDRegressor:
    return SGDRegressor(penalty="l2", learning_rate="constant", eta0=0.01, max_iter=1, tol=None)


if __name__ == "__main__":
    federate(model, Path(sys.argv[1]), rounds=8, target="log_spending")

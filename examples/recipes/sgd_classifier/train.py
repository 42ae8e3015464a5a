"""``python train.py OUT``: who spends much on doctors? Logistic regression of scikit-learn."""

import sys
from pathlib import Path

from loop import federate
from sklearn.linear_model import SGDClassifier


def model() -> SGDClassifier:
    return SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01, max_iter=1, tol=None)


if __name__ == "__main__":
    federate(model, Path(sys.argv[1]), rounds=8)

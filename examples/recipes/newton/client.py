"""A site: gradient and Hessian of the log likelihood of its own people, as hello-lr has it."""

import numpy as np
import nvflare.client as flare
import people
from nvflare.app_common.np.constants import NPConstants
from nvflare.client import FLModel


def main() -> None:
    flare.init()
    inputs, labels = people.partition(int(flare.get_site_name()[-1]) - 1, many=2)
    inputs = np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)
    while flare.is_running():
        theta = np.asarray(flare.receive().params[NPConstants.NUMPY_KEY])
        likely = 1 / (1 + np.exp(-(inputs @ theta)))
        gradient = inputs.T @ (labels[:, None] - likely)
        hessian = inputs.T @ (inputs * likely * (1 - likely))
        meta = {"NUM_STEPS_CURRENT_ROUND": len(labels)}
        flare.send(FLModel(params={"gradient": gradient, "hessian": hessian}, meta=meta))


if __name__ == "__main__":
    main()

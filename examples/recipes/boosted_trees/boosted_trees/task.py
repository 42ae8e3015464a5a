"""Who spends much on doctors? Boosted trees, one tree a site and round."""

import people
import xgboost

PARAMETERS = {
    "objective": "binary:logistic",
    "eta": 0.1,
    "max_depth": 6,
    "num_parallel_tree": 1,
    "subsample": 1,
    "tree_method": "hist",
    "nthread": 1,
}


def load_data(partition: int) -> xgboost.DMatrix:
    inputs, labels = people.partition(partition, people=200)
    return xgboost.DMatrix(inputs, label=labels)


def boost(model: bytes, data: xgboost.DMatrix, cyclic: bool) -> bytes:
    """The model with one more tree, or, where the server puts trees into a bag, the tree alone."""
    if not model:
        return bytes(xgboost.train(PARAMETERS, data, num_boost_round=1).save_raw("json"))
    booster = xgboost.Booster(params=PARAMETERS)
    booster.load_model(bytearray(model))
    last = booster.num_boosted_rounds()
    booster.update(data, last)
    return bytes((booster if cyclic else booster[last : last + 1]).save_raw("json"))

"""The server: asks every site for its table once, and adds them up to one survival curve a sex."""

import logging

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.model_controller import ModelController

AGES = np.arange(0, 66, 3.0)


class KaplanMeier(ModelController):
    def run(self) -> None:
        question = FLModel(params={"ages": AGES}, current_round=0, total_rounds=1)
        answers = self.send_model_and_wait(data=question)
        counts = np.sum([a.params["survival"] for a in answers], axis=0).reshape(2, len(AGES), 2)
        at_risk = np.cumsum(counts.sum(axis=2)[:, ::-1], axis=1)[:, ::-1]  # who leaves no earlier
        curves = np.cumprod(1 - counts[:, :, 1] / np.maximum(at_risk, 1), axis=1)
        logging.getLogger(__name__).info("curves: %s", curves.round(2).tolist())

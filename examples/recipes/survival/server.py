"""The server: asks every site for its table once, and adds them up to one survival curve a sex."""

from __future__ import annotations

import logging

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.model_controller import ModelController

AGES = np.arange(0, 66, 3.0)


class KaplanMeier(ModelController):
    def run(self) -> None:
        question = FLModel(params={"ages": AGES}, current_round=0, total_rounds=1)
        answers = self.send_model_and_wait(data=question)
        risk, events = np.sum([a.params["survival"] for a in answers], axis=0).reshape(2, -1, 2)
        curves = np.cumprod(1 - events / np.maximum(risk, 1), axis=0)
        logging.getLogger(__name__).info("curves: %s", curves.round(2).tolist())

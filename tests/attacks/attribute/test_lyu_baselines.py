"""lyu2021's baselines: the seven heuristics against slow twins, the public model, the die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overheard.attacks.baselines import PublicModel, RandomGuess
from overheard.attacks.papers.lyu2021 import Statistics, matrices_of, votes
from overheard.data import digits
from overheard.data.victim import VICTIM
from overheard.errors import ChooseAnotherAttack, GrantKnowledge
from overheard.evaluation.metrics import attribute_hits
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.dense import record_gradients
from overheard.programs.losses import loss_named
from overheard.programs.records import Records, encode
from overheard.transcript.knowledge import AuxiliaryData, Labels, Link, LocalTraining, PublicRecords
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import View, launch


def digits_run(folder: Path, **training: Any) -> Recording:
    config = parse_config(
        {
            "data": {"source": "digits"},
            "model": {"name": "mlp", "hidden": [7]},
            "training": {"rounds": 6, "learning_rate": 0.5, **training},
        }
    )
    ready = plan(config, digits.load(victim=60, attributes=("c043",)))
    return Recording.open(simulate(ready, folder / "run"))


@pytest.fixture
def view(tmp_path: Path) -> View:
    return observe(digits_run(tmp_path), EAVESDROPPER, attribute("c043"), VICTIM)


def test_statistics_agree_with_a_slow_twin(view: View) -> None:
    recipe, link = view.know(LocalTraining).recipe, view.know(Link)
    labels = recipe.target.encode_values(view.know(Labels).values)
    matrices = matrices_of(view, 6)
    assert matrices.shape == (5, 2, 60, 6)
    last = 7 * 10 + 10
    for value, record, epoch in [(0, 0, 0), (1, 17, 3), (1, 59, 5)]:
        x = encode(recipe.encoding, view.know(PublicRecords).records, {"c043": float(value)})
        x, y = x[record : record + 1], labels[record : record + 1]
        theta = link.returned[epoch].astype(np.float64)
        hidden = np.maximum(theta[: 7 * 64].reshape(7, 64) @ x[0] + theta[7 * 64 : 7 * 65], 0)
        weights = theta[7 * 65 : 7 * 65 + 70].reshape(10, 7)
        outputs = weights @ hidden + theta[-10:]
        chances = np.exp(outputs) / np.exp(outputs).sum()
        gradient = record_gradients(recipe.model, recipe.loss, theta, x, y)[0, -last:]
        true = int(y[0])
        towards = [*gradient[7 * true : 7 * true + 7], gradient[70 + true]]
        expected = [
            float(chances.argmax() == true),
            chances[true],
            loss_named(recipe.loss).values(outputs[None], y)[0],
            np.linalg.norm(gradient),
            np.sum(towards),
        ]
        np.testing.assert_allclose(matrices[:, value, record, epoch], expected, rtol=1e-9)


def test_each_rule_chooses_its_row() -> None:
    # two values, one record, two epochs; value 1 is liked in all but the norm and the last loss
    right = np.array([[[0, 1]], [[1, 1]]])
    chance = np.array([[[0.2, 0.9]], [[0.8, 0.8]]])
    loss = np.array([[[3.0, 0.1]], [[0.5, 0.4]]])
    norm = np.array([[[5.0, 5.0]], [[1.0, 1.0]]])
    leading = np.array([[[-4.0, -4.0]], [[-1.0, -1.0]]])
    chosen = votes(np.stack([right, chance, loss, norm, leading]).astype(np.float64))
    assert {rule: int(row[0]) for rule, row in chosen.items()} == {
        "majority": 1,
        "label_status": 1,
        "probability": 1,
        "loss_norm": 1,
        "final_loss": 0,
        "gradient_norm": 0,
        "true_label_gradient": 1,
    }


@pytest.mark.parametrize("training", [{}, {"algorithm": "fedsgd"}, {"batch_size": 8}])
def test_statistics_run_on_models_and_gradients(tmp_path: Path, training: dict[str, Any]) -> None:
    view = observe(digits_run(tmp_path, **training), EAVESDROPPER, attribute("c043"), VICTIM)
    for rule in ("majority", "final_loss"):
        assert launch(Statistics(rule=rule), view, 0).probabilities.shape == (60, 2)


def test_models_and_gradients_of_one_training_give_the_same_statistics(tmp_path: Path) -> None:
    views = [
        observe(
            digits_run(tmp_path / name, algorithm=name), EAVESDROPPER, attribute("c043"), VICTIM
        )
        for name in ("fedavg", "fedsgd")
    ]
    np.testing.assert_allclose(*(matrices_of(v, 6) for v in views), rtol=1e-3, atol=1e-5)


def test_statistics_of_two_classes_and_none(federate: Any) -> None:
    logistic = federate({"name": "logistic"}, learning_rate=0.5)
    view = observe(logistic, EAVESDROPPER, attribute("s"), logistic.clients[0])
    assert len(launch(Statistics(), view, 0).probabilities) == 120
    linear = federate()
    view = observe(linear, EAVESDROPPER, attribute("s"), linear.clients[0])
    with pytest.raises(ChooseAnotherAttack, match="the label is a number"):
        launch(Statistics(), view, 0)


def test_the_public_model_learns_from_elsewhere(tmp_path: Path) -> None:
    recording = digits_run(tmp_path)
    view = observe(recording, EAVESDROPPER, attribute("c043"), VICTIM)
    secret = recording.truth()[VICTIM]["c043"]
    guess = launch(PublicModel(400), view, 0)
    assert guess.diagnostics["trained_on"] == 400
    assert attribute_hits(guess, secret).mean() > 0.7 > max(secret.mean(), 1 - secret.mean())


def test_the_public_model_says_what_it_lacks(view: View) -> None:
    with pytest.raises(GrantKnowledge, match="AuxiliaryData"):
        launch(PublicModel(), view.narrowed(view.kinds - {AuxiliaryData}), 0)
    known = view.know(AuxiliaryData)
    lacking = AuxiliaryData(known.records.without("c043"), known.labels)
    with pytest.raises(ChooseAnotherAttack, match="do not tell"):
        launch(PublicModel(), view.knowing(lacking), 0)
    constant = Records({**known.records.columns, "c043": np.zeros(len(known.labels))})
    with pytest.raises(ChooseAnotherAttack, match="one value only"):
        launch(PublicModel(), view.knowing(AuxiliaryData(constant, known.labels)), 0)


def test_the_die_is_fair_and_admits_it(view: View) -> None:
    guesses = [launch(RandomGuess(), view, seed) for seed in range(20)]
    assert np.mean([g.choice().mean() for g in guesses]) == pytest.approx(0.5, abs=0.06)
    assert guesses[0].probabilities.max() < 0.501

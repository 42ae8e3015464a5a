"""Per-record gradients of any module: against dense formulas, and to decode a pixel from a CNN."""

from __future__ import annotations

import numpy as np
import torch

from overheard.decoding.ladder import decode
from overheard.decoding.measurement import from_differences
from overheard.programs import dense
from overheard.programs.recipe import Dense
from overheard.programs.torch_model import flat_parameters, record_gradients


def cross_entropy(outputs, label):
    return torch.nn.functional.cross_entropy(outputs, label)


def test_agrees_with_the_dense_formulas(rng):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    theta, x = flat_parameters(module), rng.normal(size=(11, 5))
    y = rng.integers(0, 3, 11)
    model = Dense(inputs=5, hidden=(7,), outputs=3)
    slow = dense.record_gradients(model, "cross_entropy", theta, x, y.astype(float))
    assert np.allclose(record_gradients(module, cross_entropy, theta, x, y, chunk=4), slow)


def test_a_pixel_is_decoded_from_one_step_of_a_small_cnn(rng):
    torch.manual_seed(1)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 3)
    )
    images = rng.random((60, 1, 8, 8)).astype(np.float32)
    images[:, 0, 4, 4] = secret = (rng.random(60) < 0.5).astype(np.float32)
    labels = rng.integers(0, 3, 60)
    before = flat_parameters(module)
    step = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(
        module(torch.from_numpy(images)), torch.from_numpy(labels)
    ).backward()
    step.step()
    heard = (before - flat_parameters(module)) * 60 / 0.1

    def under(value):
        guess = images.astype(np.float64)
        guess[:, 0, 4, 4] = value
        return record_gradients(module, cross_entropy, before, guess, labels)

    absent, present = under(0.0), under(1.0)
    noise = 60 / 0.1 * np.spacing(np.abs(before).astype(np.float32)).astype(np.float64)
    found = decode(from_differences(present - absent, heard - absent.sum(axis=0), noise + 1e-5))
    assert np.array_equal(found.guess, secret.astype(int))

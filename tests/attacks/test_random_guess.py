"""The first floor never looks at the update."""

import torch

from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.types import Fact


def test_it_is_uniform_noise_of_the_right_shape(scene):
    made = scene(trials=40, samples=3)
    result = RandomGuess()(made.seen, range(40))
    assert result.inputs.shape == made.batch.inputs.shape
    assert abs(result.inputs.mean() - 0.5) < 0.02
    assert abs(result.inputs.var() - 1 / 12) < 0.005
    assert set(result.labels.flatten().tolist()) == set(range(10))
    assert result.steps.sum() == result.evaluations.sum() == 0


def test_it_never_looks_at_the_update(scene):
    one, other = (
        RandomGuess()(scene(change=lambda u, f=f: u.map(lambda _, t: f * t)).seen, (0, 1)) for f in (1.0, -5.0)
    )
    assert torch.equal(one.inputs, other.inputs)
    assert torch.equal(one.labels, other.labels)


def test_each_trial_has_its_own_guess(scene):
    result = RandomGuess()(scene(trials=2).seen, (0, 1))
    assert not torch.equal(result.inputs[0], result.inputs[1])


def test_it_is_a_baseline_that_needs_no_public_data():
    assert RandomGuess.baseline
    assert Fact.PUBLIC_DATA not in RandomGuess.needs

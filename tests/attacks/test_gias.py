"""GIAS: changing the generator's weights goes beyond what it can draw, for each victim by itself."""

import pytest
import torch

from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.gias import GIAS


@pytest.fixture
def digits(scene):
    return scene("lenet-dlg", trials=2)


def test_the_weights_get_further_than_the_latents_alone(digits):
    latents = GGL(steps=100, restarts=1, distance="cosine")(digits.seen, (0, 1))
    both = GIAS(steps=100, weight_steps=150, restarts=1)(digits.seen, (0, 1))
    assert (both.objective < 0.5 * latents.objective).all()
    assert digits.psnr(both).mean() > digits.psnr(latents).mean() + 1


def test_it_starts_where_the_latents_ended(digits):
    both = GIAS(steps=40, weight_steps=5, restarts=2)(digits.seen, (0, 1))
    known = both.trace[~torch.isnan(both.trace)].view(2, -1) if not torch.isnan(both.trace).any() else both.trace
    assert (both.objective <= both.trace[:, 0]).all()
    assert torch.isfinite(known[:, 0]).all()
    assert (both.steps > 45).all()  # two attempts at the latents, half of one given up, and the weights
    assert (both.evaluations >= both.steps).all()


def test_an_interrupt_in_either_half_leaves_no_trial_finished(digits):
    for share in (0.1, 0.6):

        def stop(done, share=share):
            if done >= share:
                raise KeyboardInterrupt

        cut = GIAS(steps=60, weight_steps=60, restarts=1)(digits.seen, (0, 1), stop)
        assert not cut.finished.any()
        assert torch.isfinite(cut.inputs).all()
        assert torch.isfinite(cut.objective).all()


def test_a_time_budget_leaves_half_to_the_weights(digits):
    result = GIAS(steps=10**6, weight_steps=10**6, restarts=1, time_budget=0.6)(digits.seen, (0, 1))
    assert result.seconds < 6
    assert result.finished is None
    assert (result.objective < result.trace[:, 0]).all()

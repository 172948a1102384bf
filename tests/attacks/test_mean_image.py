"""The second floor: the mean of public data, the update unread."""

import pytest
import torch

from leakgauge.attacks.mean_image import MeanImage
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.errors import HiddenFact
from leakgauge.types import Fact


def test_it_is_the_public_mean_and_the_commonest_label(scene):
    made = scene(trials=3, samples=2)
    public = made.seen.fact(Fact.PUBLIC_DATA)
    result = MeanImage()(made.seen, range(3))
    assert result.inputs.shape == made.batch.inputs.shape
    for t in range(3):
        for i in range(2):
            torch.testing.assert_close(result.inputs[t, i], public.inputs[0].mean(0))
    assert (result.labels == public.labels[0].bincount().argmax()).all()


def test_it_never_looks_at_the_update(scene):
    one, other = (MeanImage()(scene(change=lambda u, f=f: u.map(lambda _, t: f * t)).seen, (0, 1)) for f in (1.0, -5.0))
    assert torch.equal(one.inputs, other.inputs)


def test_it_beats_the_random_guess(scene):
    made = scene(trials=10)
    assert made.psnr(MeanImage()(made.seen, range(10))).mean() > made.psnr(RandomGuess()(made.seen, range(10))).mean()


def test_without_public_data_it_says_so(scene):
    with pytest.raises(HiddenFact, match="'mean-image' needs public-data"):
        MeanImage()(scene(told="eavesdropper").seen, (0, 1))

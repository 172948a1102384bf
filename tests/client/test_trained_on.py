"""What was trained on is scored beside the client's own samples, and only where a defense changed them."""

import torch

from leakgauge.client.trained_on import scores_beside
from leakgauge.data import draw_victims, load
from leakgauge.defenses.ats import ATS
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.types import Reconstruction

SEEDS = (0, 1)


def _claim(inputs: torch.Tensor | None) -> Reconstruction:
    zero = torch.zeros(2)
    return Reconstruction(inputs, None, objective=zero, steps=zero, evaluations=zero)


def test_the_transformed_picture_is_a_full_recovery_of_what_was_trained_on():
    data = load("photos32")
    truth = draw_victims(data, 2, 3, 0)
    defense = ATS(policy="43-18-18")
    claimed = defense.trained_on(truth, SEEDS).inputs[:, [2, 0, 1]]  # in another order
    scores = scores_beside(truth, _claim(claimed), (Gaussian(), defense), SEEDS, data.spec)
    assert set(scores) == {"psnr_trained_on", "ssim_trained_on", "psnr_undone", "ssim_undone"}
    assert (scores["psnr_trained_on"] == 100).all()
    plain = (claimed - truth.inputs[:, [2, 0, 1]]).square().mean((2, 3, 4))
    assert (scores["psnr_undone"] > -10 * torch.log10(plain)[:, [1, 2, 0]]).all()


def test_nothing_is_added_where_samples_were_not_changed():
    data = load("photos32")
    truth = draw_victims(data, 2, 1, 0)
    assert scores_beside(truth, _claim(truth.inputs), (Gaussian(),), SEEDS, data.spec) == {}
    assert scores_beside(truth, _claim(None), (ATS(),), SEEDS, data.spec) == {}

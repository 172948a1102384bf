"""Clamp, match, score: in this order, for every trial, also the failed ones."""

import dataclasses

import pytest
import torch
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.metrics.psnr import MAE
from leakgauge.metrics.scoring import score
from leakgauge.types import Batch, DataSpec, Reconstruction

IMAGES = DataSpec("pictures", (3, 16, 16), 10, "image")
TABLE = DataSpec("rows", (7,), 2, "tabular")


def _batch(trials: int, records: int, data: DataSpec = IMAGES) -> Batch:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(trials, records, *data.shape, generator=generator)
    labels = torch.randint(data.classes, (trials, records), generator=generator)
    return Batch(inputs, labels)


def _claim(inputs: Tensor | None, labels: Tensor | None = None, trials: int = 1) -> Reconstruction:
    zero = torch.zeros(trials)
    return Reconstruction(inputs, labels, objective=zero, steps=zero, evaluations=zero)


def test_a_shuffled_batch_with_a_little_noise_scores_60_decibels():
    truth = _batch(1, 3)
    noise = 0.001 * torch.randn(truth.inputs.shape, generator=torch.Generator().manual_seed(1))
    scores = score(truth, _claim((truth.inputs + noise)[:, [1, 2, 0]]), IMAGES)
    assert scores.records["psnr"].shape == (1, 3)
    assert torch.allclose(scores.records["psnr"], torch.full((1, 3), 60.0), atol=0.5)
    assert (scores.records["ssim"] > 0.999).all()
    assert scores.matched is not None
    assert (scores.matched - truth.inputs).abs().max() < 0.01


def test_permuting_the_reconstruction_leaves_all_scores_unchanged():
    truth = _batch(4, 5)
    recon = torch.rand(truth.inputs.shape)
    plain, shuffled = (score(truth, _claim(r), IMAGES) for r in (recon, recon[:, torch.randperm(5)]))
    assert set(plain.records) == {"mse", "psnr", "ssim", "detail"}
    for name, values in plain.records.items():
        assert torch.equal(values, shuffled.records[name])


def test_values_beyond_the_range_are_clamped_before_they_are_scored():
    truth = Batch(torch.ones(1, 1, *IMAGES.shape), torch.zeros(1, 1, dtype=torch.long))
    scores = score(truth, _claim(torch.full((1, 1, *IMAGES.shape), 9.0)), IMAGES)
    assert scores.records["mse"].item() == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverged_trial_is_flagged_has_no_score_and_harms_no_other(bad: float):
    truth = _batch(3, 2)
    recon = truth.inputs.clone()
    recon[1] = bad
    scores = score(truth, _claim(recon), IMAGES)
    assert scores.failed.tolist() == [False, True, False]
    for values in scores.records.values():
        assert values[1].isnan().all()
    assert (scores.records["psnr"][[0, 2]] == 100).all()


def test_what_is_not_claimed_has_no_score_however_near_its_filler_is():
    """Mid-grey has an SSIM of 0.34 to 0.75 to smooth grey pictures: a filler must never be taken for a claim."""
    truth = Batch(torch.full((2, 3, *IMAGES.shape), 0.5), torch.zeros(2, 3, dtype=torch.long))
    claimed = torch.tensor([[True, False, False], [False, False, False]])
    claim = dataclasses.replace(_claim(torch.full_like(truth.inputs, 0.5)), claimed=claimed)
    scores = score(truth, claim, IMAGES)
    assert not scores.failed.any()
    for values in scores.records.values():
        assert values.isfinite().sum(1).tolist() == [1, 0]


def test_a_grey_picture_that_is_claimed_is_scored():
    truth = Batch(torch.full((1, 1, *IMAGES.shape), 0.5), torch.zeros(1, 1, dtype=torch.long))
    assert score(truth, _claim(truth.inputs.clone()), IMAGES).records["psnr"].item() == 100


def test_one_lost_pixel_fails_the_trial_but_not_its_record():
    truth = _batch(1, 3)
    recon = truth.inputs[:, [2, 0, 1]].clone()
    recon[0, 0, 0, 0, 0] = float("nan")
    scores = score(truth, _claim(recon), IMAGES)
    assert scores.failed.tolist() == [True]
    assert (scores.records["psnr"] > 30).all()


def test_a_table_has_no_ssim():
    truth = _batch(2, 3, TABLE)
    scores = score(truth, _claim(truth.inputs.flip(1)), TABLE)
    assert set(scores.records) == {"mse", "psnr"}
    assert scores.records["mse"].tolist() == [[0.0] * 3] * 2


def test_labels_alone_give_label_accuracy_alone():
    truth = Batch(torch.rand(2, 2, *IMAGES.shape), torch.tensor([[0, 1], [2, 2]]))
    scores = score(truth, _claim(None, torch.tensor([[1, 0], [2, 3]]), trials=2), IMAGES)
    assert scores.label_accuracy is not None
    assert scores.label_accuracy.tolist() == [1.0, 0.5]
    assert scores.records == {}
    assert scores.matched is None
    assert scores.failed.tolist() == [False, False]


def test_no_labels_claimed_is_not_an_accuracy_of_zero():
    truth = _batch(1, 1)
    assert score(truth, _claim(truth.inputs), IMAGES).label_accuracy is None


def test_trials_score_alone_as_they_score_together():
    truth = _batch(3, 4)
    recon = torch.rand(truth.inputs.shape)
    together = score(truth, _claim(recon), IMAGES)
    for t in range(3):
        alone = score(truth.take([t]), _claim(recon[[t]]), IMAGES)
        for name, values in alone.records.items():
            assert torch.allclose(values[0], together.records[name][t], atol=1e-6)


def test_metrics_can_be_chosen():
    truth = _batch(1, 2)
    assert set(score(truth, _claim(truth.inputs), IMAGES, metrics=(MAE,)).records) == {"mae"}


def test_scores_carry_no_graph():
    truth = _batch(1, 2)
    recon = truth.inputs.clone().requires_grad_()
    assert not score(truth, _claim(recon), IMAGES).records["mse"].requires_grad


@pytest.mark.parametrize(
    ("recon", "says"),
    [
        (torch.rand(1, 2, 3, 16, 16), "one reconstruction per private record"),
        (torch.rand(2, 3, 3, 16, 16), "1 trials"),
        (torch.rand(1, 3, 1, 16, 16), "one reconstruction per private record"),
    ],
)
def test_a_reconstruction_of_another_size_is_refused(recon: Tensor, says: str):
    with pytest.raises(BadInput, match=says):
        score(_batch(1, 3), _claim(recon), IMAGES)

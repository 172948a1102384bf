"""METHODS G1 and A9: the first linear layer gives its input away."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from leakgauge.attacks.linear import Linear
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.prune import Prune
from leakgauge.engine.gradients import working_model
from leakgauge.errors import NotApplicable
from leakgauge.matching.first_layer import LEAST_SQUARES
from leakgauge.types import Client


@dataclass(frozen=True)
class Fitted(Linear):
    """The ratio of an attacker who fits all rows, and may take zeros as missing: what known defenses ask for."""

    missing: bool = False

    def problem(self, observation, seeds):
        return super().problem(observation, seeds).replace(combine=LEAST_SQUARES, match_nonzero=self.missing)


FITTED, INFORMED = Fitted(), Fitted(missing=True)


@pytest.mark.parametrize("attack", [Linear(), FITTED, INFORMED], ids=["largest", "fitted", "missing"])
@pytest.mark.parametrize("data", ["digits", "breast-cancer"])
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
def test_one_sample_is_exact(scene, attack, data, activation):
    made = scene(f"mlp:hidden=16,activation={activation}", data=data, trials=5, dtype=torch.float64)
    result = attack(made.seen, range(5))
    torch.testing.assert_close(result.inputs, made.batch.inputs, rtol=0, atol=1e-6)
    assert torch.equal(result.labels, made.batch.labels)
    assert (result.objective < 1e-12).all()


def test_several_samples_give_their_mean_weighted_by_the_output_gradient(scene):
    made = scene("mlp:hidden=16,activation=sigmoid", trials=2, samples=4, dtype=torch.float64)
    result = Linear()(made.seen, (0, 1))
    assert result.inputs.shape == made.batch.inputs.shape
    assert result.labels is None
    for t in range(2):
        layer = working_model(made.seen.model, "eval")
        x, labels = made.batch.inputs[t], made.batch.labels[t]
        hidden = layer.fc1(x.flatten(1)).detach().requires_grad_()  # (N, out)
        nn.functional.cross_entropy(layer.fc2(layer.act1(hidden)), labels).backward()
        delta = hidden.grad  # (N, out)
        rows = delta.sum(0).abs().argsort(descending=True)[:4]
        mixtures = torch.stack([(delta[:, i, None] * x.flatten(1)).sum(0) / delta[:, i].sum() for i in rows])
        torch.testing.assert_close(result.inputs[t].flatten(1), mixtures, rtol=1e-6, atol=1e-8)


def test_more_samples_than_units_repeats_rows_instead_of_failing(scene):
    made = scene("mlp:hidden=3", samples=7)
    assert Linear()(made.seen, (0, 1)).inputs.shape == (2, 7, 1, 8, 8)


def test_normalisation_inside_the_model_is_undone(scene):
    made = scene("mlp:hidden=16,normalize=data", trials=3, dtype=torch.float64)
    assert hasattr(made.seen.model, "normalize")
    torch.testing.assert_close(Linear()(made.seen, range(3)).inputs, made.batch.inputs, rtol=0, atol=1e-6)


def test_a_weight_difference_of_one_step_is_as_good_as_a_gradient(scene):
    made = scene(trials=3, local=Client(kind="fedavg", lr=0.1), dtype=torch.float64)
    result = Linear()(made.seen, range(3))
    torch.testing.assert_close(result.inputs, made.batch.inputs, rtol=0, atol=1e-6)
    assert torch.equal(result.labels, made.batch.labels)


def test_least_squares_over_all_rows_helps_under_noise(scene):
    made = scene("mlp:hidden=64", trials=6, defenses=(Gaussian(std=0.003),))
    single, fitted = made.psnr(Linear()(made.seen, range(6))), made.psnr(FITTED(made.seen, range(6)))
    assert fitted.mean() > single.mean() + 3


def test_taking_zeros_as_missing_helps_under_pruning(scene):
    made = scene("mlp:hidden=64", trials=6, defenses=(Prune(share=0.8),))
    naive, informed = made.psnr(FITTED(made.seen, range(6))), made.psnr(INFORMED(made.seen, range(6)))
    assert informed.mean() > naive.mean() + 10


def test_other_rows_fill_the_holes_of_the_largest(scene):
    """Every row lost a random half of its entries: no single row holds the picture, all together do."""

    def lose_half(update):
        keep = torch.rand(update.tensors["fc1.weight"].shape, generator=torch.Generator().manual_seed(0)) > 0.5
        return update.map(lambda name, t: t * keep if name == "fc1.weight" else t)

    made = scene("mlp:hidden=64", trials=3, change=lose_half)
    assert (made.psnr(Linear()(made.seen, range(3))) < 20).all()
    assert (made.psnr(INFORMED(made.seen, range(3))) > 60).all()


def test_own_objective_grows_with_noise(scene):
    worse = [
        Linear()(scene("mlp:hidden=32", defenses=(Gaussian(std=s),)).seen, (0, 1)).objective.mean()
        for s in (0.0, 1e-3, 1e-2)
    ]
    assert worse == sorted(worse)
    assert worse[0] < 1e-6 < worse[1]


def test_a_row_without_gradient_gives_no_nan(scene):
    made = scene(change=lambda u: u.map(lambda n, t: torch.zeros_like(t) if n.startswith("fc1") else t))
    for attack in (Linear(), FITTED, INFORMED):
        assert torch.isfinite(attack(made.seen, (0, 1)).inputs).all()


def test_a_convolution_in_front_is_not_applicable(scene):
    with pytest.raises(NotApplicable, match=r"first layer with weights is nn\.Linear"):
        Linear()(scene("lenet-dlg:filters=2").seen, (0, 1))


def test_no_bias_is_not_applicable(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8, bias=False), nn.ReLU(), nn.Linear(8, 10))
    with pytest.raises(NotApplicable, match=r"bias in '1'.*only up to scale"):
        Linear()(scene(net).seen, (0, 1))


def test_a_frozen_first_layer_is_not_applicable(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    net[1].requires_grad_(False)
    with pytest.raises(NotApplicable, match="gradient of '1', which is frozen"):
        Linear()(scene(net).seen, (0, 1))


def test_a_frozen_first_weight_is_not_applicable(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    net[1].weight.requires_grad_(False)
    with pytest.raises(NotApplicable, match="gradient of '1', which is frozen"):
        Linear()(scene(net).seen, (0, 1))

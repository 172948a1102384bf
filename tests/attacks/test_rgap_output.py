"""The last layer of R-GAP: margins by hand and against a fine grid, exact readings with and without a bias."""

import math

import pytest
import torch
from torch import nn

from leakgauge.attacks.rgap import logistic_margins, logistic_outputs, softmax_outputs


def layer(classes, width=6, seed=0, size=1.0):
    """Weight, bias and features with the gradients of the logits' loss, in float64."""
    g = torch.Generator().manual_seed(seed)
    weight = (size * torch.randn(classes, width, generator=g, dtype=torch.float64)).requires_grad_()
    bias = torch.randn(classes, generator=g, dtype=torch.float64).requires_grad_()
    return weight, bias, torch.randn(width, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("margin", [-20.0, -3.0, -1e-3, 0.0])
def test_a_sample_on_the_wrong_side_has_one_margin(margin):
    assert logistic_margins(-margin / (1 + math.exp(margin))) == pytest.approx([margin], abs=1e-9)


@pytest.mark.parametrize("margin", [0.3, 1.0, 2.0, 8.0])
def test_a_sample_on_the_right_side_has_a_twin(margin):
    product = -margin / (1 + math.exp(margin))
    found = logistic_margins(product)
    assert len(found) == 2
    assert found[0] < 1.2785 < found[1]  # where m / (1 + e^m) is largest
    assert min(abs(m - margin) for m in found) < 1e-9
    for m in found:
        assert -m / (1 + math.exp(m)) == pytest.approx(product, rel=1e-9)


def test_a_product_that_no_margin_has_gives_the_nearest():
    assert logistic_margins(-0.4) == pytest.approx([1.2785], abs=0.02)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_one_logit_has_the_truth_among_its_readings(label, seed):
    weight, _, features = layer(1, seed=seed)
    y = 2 * label - 1
    loss = nn.functional.softplus(-y * (weight @ features)).sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    readings = [r for r in logistic_outputs(gradient, weight.detach()) if r.label == label]
    assert min(float((r.features - features).abs().max()) for r in readings) < 1e-8


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("seed", range(6))
def test_a_bias_gives_everything_away(classes, seed):
    weight, bias, features = layer(classes, seed=seed)
    loss = nn.functional.cross_entropy((weight @ features + bias)[None], torch.tensor([seed % classes]))
    of_weight, of_bias = torch.autograd.grad(loss, (weight, bias))
    (reading,) = softmax_outputs(of_weight, of_bias, weight.detach())
    torch.testing.assert_close(reading.features, features, rtol=0, atol=1e-8)
    assert reading.label == seed % classes


@pytest.mark.parametrize("size", [0.01, 1.0, 3.0])
@pytest.mark.parametrize("classes", [3, 10])
@pytest.mark.parametrize("seed", range(6))
def test_without_a_bias_three_classes_suffice(classes, seed, size):
    """Also where the network is sure and right, which leaves two margins to choose from."""
    weight, _, features = layer(classes, seed=seed, size=size)
    logits = weight @ features
    for label in {int(logits.argmax()), seed % classes}:
        loss = nn.functional.cross_entropy(logits[None], torch.tensor([label]))
        (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
        (reading,) = softmax_outputs(gradient, None, weight.detach())
        assert reading.label == label
        torch.testing.assert_close(reading.features, features, rtol=1e-5, atol=1e-6)
        p = torch.softmax(logits, 0).detach()
        torch.testing.assert_close(reading.logit_gradient, p - torch.eye(classes)[label], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_two_classes_without_a_bias_have_the_truth_among_their_readings(label, seed):
    weight, _, features = layer(2, seed=seed)
    loss = nn.functional.cross_entropy((weight @ features)[None], torch.tensor([label]))
    (gradient,) = torch.autograd.grad(loss, weight)
    readings = [r for r in softmax_outputs(gradient, None, weight.detach()) if r.label == label]
    assert min(float((r.features - features).abs().max()) for r in readings) < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_a_frozen_bias_is_reckoned_with(seed):
    weight, bias, features = layer(5, seed=seed)
    loss = nn.functional.cross_entropy((weight @ features + bias)[None], torch.tensor([seed]))
    (gradient,) = torch.autograd.grad(loss, weight)
    (reading,) = softmax_outputs(gradient, None, weight.detach(), bias.detach())
    torch.testing.assert_close(reading.features, features, rtol=0, atol=1e-6)


def test_a_gradient_of_zeros_gives_no_nan():
    weight, _, _ = layer(3)
    for bias in (torch.zeros(3, dtype=torch.float64), None):
        (reading,) = softmax_outputs(torch.zeros(3, 6, dtype=torch.float64), bias, weight.detach())
        assert torch.isfinite(reading.features).all()

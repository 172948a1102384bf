"""Layer by layer equals trial by trial, for every kind of layer it knows; what it does not know it leaves alone."""

import pytest
import torch
from torch import nn

from leakgauge.data import load
from leakgauge.engine.gradients import one_by_one, trial_gradients, working_model
from leakgauge.engine.layerwise import fits, has_convolution, layerwise_gradients
from leakgauge.engine.losses import cross_entropy
from leakgauge.models import load_model
from leakgauge.types import DataSpec

RGB = DataSpec("small", (3, 12, 12), 4, "image", (0.5,) * 3, (0.25,) * 3)
NETS = {
    "conv": nn.Sequential(nn.Conv2d(3, 5, 3, 2, 1), nn.Sigmoid(), nn.Flatten(), nn.Linear(180, 4)),
    "no bias": nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(500, 4, bias=False)),
    "dilated": nn.Sequential(nn.Conv2d(3, 4, 3, padding=(2, 1), dilation=2), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)),
    "replicate": nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1, padding_mode="replicate"), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)
    ),
    "replicate, stride 2": nn.Sequential(
        nn.Conv2d(3, 4, (3, 2), 2, (2, 1), padding_mode="replicate"), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)
    ),
    "reflect, dilated": nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 2, dilation=2, padding_mode="reflect"), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)
    ),
    "stride over the edge": nn.Sequential(nn.Conv2d(3, 4, 3, 4, 1), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)),
    "bare batch norm": nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), nn.Sigmoid(), nn.Flatten(), nn.LazyLinear(4)
    ),
    "batch norm of a table": nn.Sequential(
        nn.Flatten(), nn.Linear(432, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 4)
    ),
    "batch norm of a sequence": nn.Sequential(
        nn.Flatten(2), nn.BatchNorm1d(3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)
    ),
    "batch norm": nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sigmoid(), nn.Flatten(), nn.LazyLinear(4)),
    "group norm": nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Sigmoid(), nn.Flatten(), nn.LazyLinear(4)),
    "layer norm": nn.Sequential(nn.Flatten(), nn.Linear(432, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 4)),
    "layer norm of a picture": nn.Sequential(
        nn.Conv2d(3, 2, 3, 3), nn.LayerNorm((2, 4, 4), bias=False), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)
    ),
    "linear on a sequence": nn.Sequential(nn.Flatten(2), nn.Linear(144, 3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 4)),
}


def prepared(net):
    net(torch.zeros(2, 3, 12, 12))  # sizes the lazy layers
    g = torch.Generator().manual_seed(0)
    for module in net.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_(generator=g)
            module.running_var.uniform_(0.5, 2, generator=g)
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)):
            for parameter in module.parameters():  # ones and zeros would hide a scale that is left out
                parameter.data.normal_(generator=g)
    return working_model(net, "eval").double()


def batch(trials=3, samples=2):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(trials, samples, 3, 12, 12, generator=g, dtype=torch.float64)
    return x, torch.randint(4, (trials, samples), generator=g)


def second_order(gradients, x):
    total = sum((g**2).sum() for g in gradients.values())
    return torch.autograd.grad(total, x)[0]


@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_each_layer_equals_the_plain_loop_and_so_does_its_derivative(name, by_products):
    model = prepared(NETS[name])
    assert fits(model)
    x, y = batch()
    fast_x, slow_x = (x.clone().requires_grad_() for _ in range(2))
    fast = layerwise_gradients(model, fast_x, y, cross_entropy, by_products)
    slow = one_by_one(model, slow_x, y)  # the layers run as they are again
    assert list(fast) == list(slow)
    for key in slow:
        torch.testing.assert_close(fast[key], slow[key], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(second_order(fast, fast_x), second_order(slow, slow_x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize("spec", ["convnet:width=4", "resnet20-4:width=4", "resnet20:width=4", "resnet18-grnn:width=4"])
def test_the_zoo_s_residual_and_pooling_networks_agree_too(spec, by_products):
    model = working_model(load_model(spec, RGB, 0), "eval").double()
    x, y = batch()
    fast, slow = layerwise_gradients(model, x, y, cross_entropy, by_products), one_by_one(model, x, y)
    for key in slow:
        torch.testing.assert_close(fast[key], slow[key], rtol=1e-9, atol=1e-12)


def test_soft_labels_are_differentiable():
    model = prepared(NETS["conv"])
    x, _ = batch()
    soft = torch.rand(3, 2, 4, dtype=torch.float64).requires_grad_()
    gradients = layerwise_gradients(model, x, soft, cross_entropy)
    assert second_order(gradients, soft).abs().sum() > 0


def test_a_layer_that_runs_twice_is_left_to_the_others():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = nn.Linear(432, 432), nn.Linear(432, 4)

        def forward(self, x):
            return self.last(torch.tanh(self.inner(torch.tanh(self.inner(x.flatten(1))))))

    x, y = batch()
    assert layerwise_gradients(working_model(Twice(), "eval").double(), x, y, cross_entropy) is None


def test_layers_without_a_rule_do_not_fit():
    assert not fits(nn.Sequential(nn.ConvTranspose2d(3, 3, 2)))
    assert not fits(nn.Sequential(nn.Conv2d(4, 4, 1, groups=2)))
    assert not fits(nn.Sequential(nn.Conv2d(4, 4, 3, padding="same")))


@pytest.mark.parametrize("name", [name for name in NETS if "batch norm" in name])
@pytest.mark.parametrize("by_products", [False, True])
def test_with_batch_statistics_every_trial_has_its_own(name, by_products):
    net = prepared(NETS[name])
    model = working_model(net, "train")
    assert fits(model)
    x, y = batch(3, 2)
    fast_x, slow_x = (x.clone().requires_grad_() for _ in range(2))
    fast, slow = layerwise_gradients(model, fast_x, y, cross_entropy, by_products), one_by_one(model, slow_x, y)
    for key in slow:
        torch.testing.assert_close(fast[key], slow[key], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(second_order(fast, fast_x), second_order(slow, slow_x), rtol=1e-9, atol=1e-11)


def test_batch_statistics_of_one_value_are_refused_as_torch_refuses_them():
    net = nn.Sequential(nn.Flatten(), nn.Linear(432, 5), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 4))
    model = working_model(net, "train").double()
    with pytest.raises(ValueError, match="more than 1 value"):
        layerwise_gradients(model, *batch(3, 1), cross_entropy)


def test_only_wide_convolutions_leave_vmap():
    assert not has_convolution(load_model("lenet-dlg", RGB, 0), wide=True)
    assert has_convolution(load_model("convnet", RGB, 0), wide=True)


def test_a_wide_network_gets_the_same_gradients_whichever_way_is_chosen():
    model = working_model(load_model("convnet:width=16", RGB, 0), "eval").double()
    assert has_convolution(model, wide=True)
    x, y = batch(2, 1)
    chosen, layered = trial_gradients(model, x, y), layerwise_gradients(model, x, y, cross_entropy)
    for key in chosen:
        torch.testing.assert_close(chosen[key], layered[key], rtol=1e-9, atol=1e-12)


def test_without_a_graph_the_gradients_are_the_same():
    data = load("digits")
    model = working_model(load_model("lenet-dlg:filters=4", data.spec, 0), "eval")
    inputs, labels = data.take(torch.arange(6).reshape(3, 2))
    whole = layerwise_gradients(model, inputs, labels, cross_entropy, by_products=True)
    bare = layerwise_gradients(model, inputs, labels, cross_entropy, by_products=True, differentiable=False)
    assert all(torch.equal(whole[name], bare[name]) for name in whole)
    assert not any(gradient.requires_grad for gradient in bare.values())

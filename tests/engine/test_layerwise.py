"""Per-trial gradients layer by layer, and convolutions as products over patches, against autograd."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.data import load
from leakgauge.engine.gradients import one_by_one, trial_gradients, working_model
from leakgauge.engine.layerwise import convolved, fits, has_convolution, kernel_gradients, layerwise_gradients
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


TRIALS, IN, OUT = 3, 2, 4
CASES = [
    (kernel, stride, dilation, padding, samples)
    for kernel, stride, dilation, padding, samples in itertools.product(
        [(3, 3), (2, 3), (1, 1), (4, 1)], [(1, 1), (2, 2), (1, 2)], [(1, 1), (2, 2)], [0, 1], [1, 2]
    )
    if (stride, dilation) != ((1, 2), (2, 2))  # enough
]


def made(kernel, stride, dilation, padding, samples):
    """x (T*N, C, 8, 9) and a delta of the size that the convolution has."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(TRIALS * samples, IN, 8, 9, generator=g, dtype=torch.float64)
    size = F.conv2d(x, x.new_zeros(OUT, IN, *kernel), stride=stride, padding=padding, dilation=dilation).shape
    return x, torch.randn(size, generator=g, dtype=torch.float64)


def by_unfold(x: Tensor, delta: Tensor, kernel, stride, dilation, padding) -> Tensor:
    columns = F.unfold(x, kernel, dilation, padding, stride)  # (T*N, C*k*k, L)
    grouped = columns.view(TRIALS, -1, *columns.shape[1:])
    found = torch.einsum("tnol,tnpl->top", delta.flatten(2).view(TRIALS, -1, OUT, columns.shape[2]), grouped)
    return found.view(TRIALS, OUT, IN, *kernel)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_autograds_weight_gradient_of_each_trials_convolution(case):
    kernel, stride, dilation, padding, samples = case
    x, delta = made(*case)
    ours = kernel_gradients(F.pad(x, [padding] * 4), delta, kernel, stride, dilation, TRIALS)
    for t in range(TRIALS):
        own = slice(t * samples, (t + 1) * samples)
        weight = x.new_zeros(OUT, IN, *kernel).requires_grad_()
        out = F.conv2d(x[own], weight, stride=stride, padding=padding, dilation=dilation)
        (slow,) = torch.autograd.grad((out * delta[own]).sum(), weight)
        torch.testing.assert_close(ours[t], slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_derivative_is_that_of_an_unfold(case):
    kernel, stride, dilation, padding, _ = case
    fast, slow = ([t.clone().requires_grad_() for t in made(*case)] for _ in range(2))
    found = kernel_gradients(F.pad(fast[0], [padding] * 4), fast[1], kernel, stride, dilation, TRIALS)
    expected = by_unfold(*slow, kernel, stride, dilation, padding)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    pull = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for ours, theirs in zip(
        torch.autograd.grad(found, fast, pull), torch.autograd.grad(expected, slow, pull), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_its_derivative_stands_up_to_finite_differences():
    x, delta = (t[:, :, :5, :4].clone().requires_grad_() for t in made((3, 2), (2, 1), (1, 1), 0, 1))
    delta = torch.randn(TRIALS, OUT, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    delta.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: kernel_gradients(a, b, (3, 2), (2, 1), (1, 1), TRIALS), (x, delta))


@pytest.mark.parametrize("wanted", [0, 1])
def test_one_derivative_can_be_had_without_the_other(wanted):
    tensors = list(made((3, 3), (1, 1), (1, 1), 0, 1))
    tensors[wanted].requires_grad_()
    found = kernel_gradients(*tensors, (3, 3), (1, 1), (1, 1), TRIALS)
    (slope,) = torch.autograd.grad(found.sum(), tensors[wanted])
    assert slope.shape == tensors[wanted].shape


def test_memory_order_and_views_do_not_matter():
    x, delta = made((3, 3), (2, 2), (1, 1), 0, 2)
    plain = kernel_gradients(x, delta, (3, 3), (2, 2), (1, 1), TRIALS)
    last = (t.contiguous(memory_format=torch.channels_last) for t in (x, delta))
    torch.testing.assert_close(kernel_gradients(*last, (3, 3), (2, 2), (1, 1), TRIALS), plain)
    wide = torch.randn(8, IN + 1, 10, 12, dtype=torch.float64)
    wide[1:7, 1:, 1:9, 2:11] = x
    torch.testing.assert_close(kernel_gradients(wide[1:7, 1:, 1:9, 2:11], delta, (3, 3), (2, 2), (1, 1), TRIALS), plain)


def test_one_channel_and_one_sample_are_no_special_case():
    x, delta = torch.randn(1, 1, 6, 6, dtype=torch.float64), torch.randn(1, 1, 4, 4, dtype=torch.float64)
    slow = F.conv2d(x, delta)  # a correlation of the input with the output gradient
    torch.testing.assert_close(kernel_gradients(x, delta, (3, 3), (1, 1), (1, 1), 1)[0], slow)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_convolution_by_products_is_torchs_own_up_to_its_third_derivative(case):
    kernel, stride, dilation, padding, _ = case
    x, delta = made(*case)
    weight = torch.randn(OUT, IN, *kernel, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = []
    for ours in (True, False):
        point, pull = x.clone().requires_grad_(), delta.clone().requires_grad_()
        if ours:
            out, _ = convolved(F.pad(point, [padding] * 4), weight, stride, dilation)
        else:
            out = F.conv2d(point, weight, stride=stride, padding=padding, dilation=dilation)
        (first,) = torch.autograd.grad((out.tanh() * pull).sum(), point, create_graph=True)
        second = torch.autograd.grad(first.pow(3).sum(), (point, pull), create_graph=True)
        third = torch.autograd.grad(sum(s.pow(2).sum() for s in second), (point, pull))
        found.append((out, first, *second, *third))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_the_patches_of_a_convolution_serve_its_kernel_gradients():
    case = ((3, 3), (2, 2), (1, 1), 1, 2)
    x, delta = made(*case)
    padded = F.pad(x, [1] * 4)
    _, patches = convolved(padded, x.new_zeros(OUT, IN, 3, 3), (2, 2), (1, 1))
    both = [kernel_gradients(padded, delta, (3, 3), (2, 2), (1, 1), TRIALS, p) for p in (None, patches)]
    assert torch.equal(*both)

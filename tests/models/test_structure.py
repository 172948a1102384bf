"""Which layer sees the raw input, which one gives the logits: found by watching, not by names."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.models import first_linear, input_affine, last_linear, load_model
from leakgauge.models.layers import Normalize
from leakgauge.models.structure import has_kinks, last_listed_linear
from leakgauge.types import DataSpec

X = torch.rand(1, 3, 4, 4)


class Wrapped(nn.Module):
    """Runs `change` on the input, then an nn.Linear, then `finish` on its output."""

    def __init__(self, change=torch.Tensor.flatten, finish=lambda z: z, features=48):
        super().__init__()
        self.unused = nn.Linear(48, 5)  # registered first, never run: order of execution decides
        self.head = nn.Linear(features, 5)
        self.change, self.finish = change, finish

    def forward(self, x):
        return self.finish(self.head(self.change(x)))


def flat(x):
    return x.flatten(1)


def test_mlp_has_both(image, table):
    for data in (image(3, 4), table):
        model = load_model("mlp", data, seed=0)
        assert first_linear(model, torch.rand(1, *data.shape)) == "fc1"
        assert last_linear(model, torch.rand(1, *data.shape)) == "fc2"


@pytest.mark.parametrize(
    ("spec", "last"),
    [("lenet-dlg", "fc"), ("lenet5-grnn", "fc3"), ("convnet:width=2", "fc"), ("resnet18:width=2", "fc")],
)
def test_convolutional_models_have_only_the_last(image, spec, last):
    model = load_model(spec, image(), seed=0)
    example = torch.rand(1, 3, 32, 32)
    assert first_linear(model, example) is None
    assert last_linear(model, example) == last


def test_one_layer_can_be_both():
    model = Wrapped(flat)
    assert first_linear(model, X) == last_linear(model, X) == "head"


def test_constant_scale_and_shift_before_the_layer_are_found(image):
    data = image(3, 4)
    model = load_model("mlp:normalize=data", data, seed=0)
    assert first_linear(model, X) == "fc1"
    scale, shift = input_affine(model, X)
    seen = Normalize(data.mean, data.std, dims=3)(X).flatten()
    torch.testing.assert_close(scale * X.flatten() + shift, seen)


@pytest.mark.parametrize(
    ("change", "features"),
    [
        (lambda x: F.avg_pool2d(x, 2).flatten(1), 12),  # fewer numbers than pixels
        (lambda x: x.permute(0, 2, 3, 1).flatten(1), 48),  # pixels in another order
        (lambda x: flat(x) ** 2, 48),  # not affine
        (lambda x: flat(x) * 0 + flat(x).mean(), 48),  # mixed
        (lambda x: flat(x).detach(), 48),  # cut off
        (lambda x: flat(x).relu() * 0, 48),  # nothing left of the input
    ],
    ids=["pooled", "permuted", "squared", "mixed", "detached", "zeroed"],
)
def test_a_layer_that_does_not_see_the_raw_input_is_not_the_first(change, features):
    model = Wrapped(change, features=features)
    assert first_linear(model, X) is None
    assert input_affine(model, X) is None


def test_anything_with_parameters_before_the_layer_hides_the_input():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 5)).eval()
    assert first_linear(model, X) is None
    assert last_linear(model, X) == "2"


def test_a_layer_that_runs_twice_is_neither():
    shared = nn.Linear(48, 48)
    model = nn.Sequential(nn.Flatten(), shared, nn.ReLU(), shared)
    assert first_linear(model, X) is None
    assert last_linear(model, X) is None


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        (lambda z: z, "head"),
        (lambda z: F.log_softmax(z, 1), "head"),  # cross-entropy does not see the difference
        (lambda z: z / 3, None),
        (lambda z: z.softmax(1), None),
        (lambda z: z[:, :3], None),
    ],
    ids=["plain", "log_softmax", "temperature", "softmax", "sliced"],
)
def test_last_linear_gives_the_logits_themselves(finish, expected):
    assert last_linear(Wrapped(flat, finish), X) == expected


def test_a_model_that_ends_with_a_convolution_has_no_last_linear():
    model = nn.Sequential(nn.Conv2d(3, 5, 4), nn.Flatten())
    assert last_linear(model, X) is None
    assert first_linear(nn.Flatten(), X) is last_linear(nn.Flatten(), X) is None


def test_looking_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6), nn.Dropout(0.9), nn.Linear(6, 5))
    model[3].eval()  # each module's own mode must come back
    before = {n: t.clone() for n, t in model.state_dict().items()}
    stream = torch.get_rng_state()
    assert (first_linear(model, X), last_linear(model, X)) == ("1", "4")
    assert [m.training for m in model] == [True, True, True, False, True]
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert all(p.grad is None and not m._forward_hooks for m in model for p in m.parameters())
    assert torch.equal(stream, torch.get_rng_state())


def test_works_inside_no_grad_and_on_several_samples(table):
    with torch.no_grad():
        assert first_linear(load_model("mlp", table, seed=0), torch.rand(4, 30)) == "fc1"


@pytest.mark.parametrize(
    ("name", "kinks"),
    [
        ("lenet-dlg", False),
        ("lenet-dlg:activation=tanh", False),
        ("lenet-dlg:activation=relu", True),
        ("mlp", True),
        ("lenet-cpl:activation=leaky_relu", True),
        ("lenet-dlg:pooling=max", True),
        ("lenet-dlg:pooling=avg", False),
    ],
)
def test_kinks_are_found_wherever_they_are(name, kinks):
    data = DataSpec("square", (3, 16, 16), 4, "image")
    assert has_kinks(load_model(name, data, 0), torch.full((1, 3, 16, 16), 0.5)) is kinks


def test_a_kink_in_a_functional_call_is_found_too():
    class Functional(nn.Module):
        def forward(self, x):
            return torch.relu(x.flatten(1))

    assert has_kinks(Functional(), torch.ones(1, 4))


def test_the_last_linear_layer_that_is_listed_is_found_without_running_the_model():
    nested = nn.Sequential(nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Sequential(nn.Linear(6, 3), nn.Identity()))
    assert last_listed_linear(nested) == "1.0"
    assert last_listed_linear(nn.Linear(4, 2)) == ""
    assert last_listed_linear(nn.Conv2d(1, 2, 3)) is None

"""Golden counts and shapes of the LeNets (METHODS M1 to M3, M10)."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.models.lenet import LeNet5MKOR, ToRgb32
from leakgauge.types import DataSpec


@pytest.mark.parametrize(
    ("spec", "channels", "side", "classes", "expected"),
    [
        ("lenet-dlg", 3, 32, 100, 85_036),
        ("lenet-dlg", 3, 32, 10, 15_826),
        ("lenet-dlg", 1, 28, 10, 13_426),
        ("lenet-cpl", 3, 32, 106, 93_262),
        ("lenet-cpl", 3, 32, 10, 19_438),
    ],
)
def test_parameter_count(count, spec, channels, side, classes, expected):
    assert count(spec, channels, side, classes) == expected


@pytest.mark.parametrize(("spec", "tensors"), [("lenet-dlg", 8), ("lenet-cpl", 10)])
def test_gradient_list_has_the_papers_length_and_ends_with_the_dense_layer(image, spec, tensors):
    names = [n for n, _ in load_model(spec, image(), seed=0).named_parameters()]
    assert len(names) == tensors
    assert names[:2] == ["conv1.weight", "conv1.bias"]
    assert names[-2:] == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize(("side", "features"), [(64, 65_536), (128, 262_144)])
def test_cpl_versions_for_larger_images(image, side, features):
    with torch.device("meta"):
        model = load_model("lenet-cpl:filters=256,init=default", image(3, side), seed=0)
    assert model.fc.in_features == features


def test_fields_are_checked(image):
    with pytest.raises(BadInput, match="filters"):
        load_model("lenet-dlg:filters=0", image(), seed=0)
    with pytest.raises(BadInput, match="activation"):
        load_model("lenet-dlg:activation=step", image(), seed=0)


@pytest.mark.parametrize(
    "spec",
    [
        *("lenet-dlg:filters=2", "lenet-cpl:filters=2", "lenet-cpl:filters=2,pooling=avg"),
        *("lenet-cpl:filters=2,pooling=max", "lenet-cpl:filters=2,activation=leaky_relu,slope=0.5"),
    ],
)
def test_twice_differentiable(image, check_twice_differentiable, spec):
    data = image(3, 8, 3)
    check_twice_differentiable(load_model(spec, data, seed=0), data)


@pytest.mark.parametrize("pooling", ["avg", "max"])
@pytest.mark.parametrize("spec", ["lenet-dlg", "lenet-cpl"])
@pytest.mark.parametrize("side", [8, 28, 32])
def test_pooling_keeps_every_shape_for_even_sides(image, count, spec, pooling, side):
    plain, pooled = (load_model(s, image(3, side), seed=0) for s in (spec, f"{spec}:pooling={pooling}"))
    shapes = [{n: p.shape for n, p in model.named_parameters()} for model in (plain, pooled)]
    assert shapes[0] == shapes[1]
    assert count(f"{spec}:pooling={pooling}", 3, side) == count(spec, 3, side)
    assert pooled(torch.rand(2, 3, side, side)).shape == (2, 10)


@pytest.mark.parametrize(("pooling", "kind"), [("avg", nn.AvgPool2d), ("max", nn.MaxPool2d)])
def test_a_pool_stands_behind_the_activation_where_the_stride_was_two(image, pooling, kind):
    model = load_model(f"lenet-cpl:pooling={pooling}", image(), seed=0)
    names = [name for name, _ in model.named_children()]
    assert names[:6] == ["conv1", "act1", "pool1", "conv2", "act2", "pool2"]
    assert names[6:] == ["conv3", "act3", "conv4", "act4", "flatten", "fc"]
    assert [type(m) for m in model.children()].count(kind) == 2
    assert {m.stride for m in model.children() if isinstance(m, nn.Conv2d)} == {(1, 1)}


def test_without_pooling_the_convolutions_stride_as_published(image):
    model = load_model("lenet-cpl", image(), seed=0)
    assert [m.stride[0] for m in model.children() if isinstance(m, nn.Conv2d)] == [2, 2, 1, 1]


def test_pictures_too_small_to_be_pooled_twice_are_refused(image):
    with pytest.raises(NotApplicable, match="at least 4x4"):
        load_model("lenet-dlg:pooling=max", image(3, 3), seed=0)
    assert load_model("lenet-dlg:pooling=max", image(3, 5), seed=0)(torch.rand(1, 3, 5, 5)).shape == (1, 10)


@pytest.mark.parametrize(("fields", "slope"), [("", 0.01), (",slope=0.5", 0.5), (",slope=0", 0.0)])
def test_the_slope_is_that_of_leaky_relu(image, fields, slope):
    model = load_model(f"lenet-dlg:activation=leaky_relu{fields}", image(), seed=0)
    assert model.act1(torch.tensor([-1.0, 2.0])).tolist() == pytest.approx([-slope, 2.0])


def test_new_fields_are_checked(image):
    with pytest.raises(BadInput, match="pooling must be one of none, avg, max"):
        load_model("lenet-dlg:pooling=mean", image(), seed=0)
    with pytest.raises(BadInput, match="slope must be at least 0"):
        load_model("lenet-dlg:slope=-1", image(), seed=0)


@pytest.mark.parametrize(("classes", "expected"), [(10, 62_006), (100, 69_656), (5749, 549_821)])
def test_grnn_parameter_count(count, classes, expected):
    assert count("lenet5-grnn", 3, 32, classes) == expected
    assert count("lenet5-grnn", 1, 28, classes) == expected  # MNIST goes through the same network


def test_mkor_parameter_count(count):
    by_hand = (25 * 6 + 6) + (6 * 25 * 16 + 16) + (400 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10)
    assert count("lenet5-mkor", 1, 28) == by_hand == 61_706


@pytest.mark.parametrize(("height", "width"), [(28, 28), (8, 20), (32, 40)])
def test_enlargement_is_the_librarys_bilinear_resize(height, width):
    x = torch.rand(2, 1, height, width)
    size = max(height, 32), max(width, 32)
    expected = F.interpolate(x, size, mode="bilinear", align_corners=False).repeat(1, 3, 1, 1)
    torch.testing.assert_close(ToRgb32(height, width)(x), expected)


def test_colour_images_of_32_px_see_no_extra_layer(image):
    names = [n for n, _ in load_model("lenet5-grnn", image(3, 32), seed=0).named_children()]
    assert names[0] == "conv1"


def test_grnn_widens_its_first_dense_layer_for_larger_images(image):
    model = load_model("lenet5-grnn", image(3, 64), seed=0)
    assert model.fc1.in_features == 16 * 13 * 13


def test_mkor_refuses_images_that_its_pooling_would_use_up(image):
    assert load_model("lenet5-mkor", image(1, 12), seed=0)(torch.rand(1, 1, 12, 12)).shape == (1, 10)
    with pytest.raises(NotApplicable, match="at least 12x12"):
        load_model("lenet5-mkor", image(1, 8), seed=0)


@pytest.mark.parametrize(("spec", "side"), [("lenet5-grnn", 28), ("lenet5-mkor", 12)])
def test_twice_differentiable_of_lenet5(image, check_twice_differentiable, spec, side):
    data = image(1, side, 3)
    check_twice_differentiable(load_model(spec, data, seed=0), data)


def test_strides_stand_in_for_average_pooling():
    data = DataSpec("digit", (1, 28, 28), 4, "image")
    model = LeNet5MKOR(halving="stride").build(data, 0)
    assert not any(isinstance(m, nn.AvgPool2d) for m in model)
    assert model(torch.zeros(1, 1, 28, 28)).shape == (1, 4)
    pooled = LeNet5MKOR().build(data, 0)
    assert [p.shape for p in model.parameters()] == [p.shape for p in pooled.parameters()]
    with pytest.raises(BadInput, match="halving"):
        LeNet5MKOR(halving="max")

"""Golden counts and shapes of the two sigmoid LeNets (METHODS M1, M2)."""

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.models import load_model


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


@pytest.mark.parametrize("spec", ["lenet-dlg:filters=2", "lenet-cpl:filters=2"])
def test_twice_differentiable(image, check_twice_differentiable, spec):
    data = image(3, 8, 3)
    check_twice_differentiable(load_model(spec, data, seed=0), data)

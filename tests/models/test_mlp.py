"""The networks for tables and images."""

import pytest
import torch

from leakgauge.defenses.precode import Precode
from leakgauge.models import load_model, parameter_count
from leakgauge.types import DataSpec


@pytest.mark.parametrize("hidden", [128, 7])
def test_parameter_count(table, hidden):
    model = load_model(f"mlp:hidden={hidden}", table, seed=0)
    assert parameter_count(model) == 30 * hidden + hidden + hidden * 2 + 2


def test_is_two_matrix_products_with_a_relu_between(table):
    model = load_model("mlp", table, seed=0)
    x = torch.rand(3, 30)
    hidden = (x @ model.fc1.weight.T + model.fc1.bias).clamp(min=0)
    torch.testing.assert_close(model(x), hidden @ model.fc2.weight.T + model.fc2.bias)


def test_twice_differentiable(table, check_twice_differentiable):
    check_twice_differentiable(load_model("mlp:hidden=4", table, seed=0), table)


CIFAR = DataSpec("pictures", (3, 32, 32), 10, "image")


def test_parameter_count_of_mlp_precode():
    model = load_model("mlp-precode", CIFAR, seed=0)
    plain = (3072 + 1) * 1024 + (1024 + 1) * 1024 + (1024 + 1) * 10
    assert parameter_count(model) == plain == 4_206_602
    assert parameter_count(Precode().prepare(model)) == plain + (1024 + 1) * 512 + (256 + 1) * 1024


def test_is_three_matrix_products_with_relus_between(table):
    model = load_model("mlp-precode:hidden=9", table, seed=0)
    x = torch.rand(3, 30, generator=torch.Generator().manual_seed(0))
    hidden = x
    for layer in (model.fc1, model.fc2):
        hidden = (hidden @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(model(x), hidden @ model.fc3.weight.T + model.fc3.bias)


def test_twice_differentiable_of_mlp_precode(table, check_twice_differentiable):
    check_twice_differentiable(load_model("mlp-precode:hidden=4", table, seed=0), table)

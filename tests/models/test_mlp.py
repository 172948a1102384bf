"""The one-hidden-layer network for tables and images."""

import pytest
import torch

from leakgauge.models import load_model, parameter_count


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

"""What the known network says about a sample, against torch's own backward pass, one sample and one label at a time."""

import pytest
import torch
from torch import nn

from leakgauge.attacks.peeling import BehindFirstLayer, linear_behind_relu
from leakgauge.types import CROSS_ENTROPY, NLL_ON_LOGITS


def network(activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 20), activation(), nn.Linear(20, 9), nn.Tanh(), nn.Linear(9, 4)
    ).double()


def loop(net, x, y, loss):
    """(H,) the first layer's bias gradient of one sample."""
    logits = net(x[None])
    value = nn.functional.cross_entropy(logits, y[None]) if loss == CROSS_ENTROPY else -logits[0, y]
    return torch.autograd.grad(value, net[1].bias)[0]


@pytest.mark.parametrize("loss", [CROSS_ENTROPY, NLL_ON_LOGITS])
def test_slopes_and_coefficients_are_those_of_a_slow_loop(loss):
    net, samples = network(), 5
    behind = BehindFirstLayer(net, "1", (3, 4), samples, loss)
    x = torch.rand(6, 3, 4, dtype=torch.float64)
    labels, units = torch.tensor([0, 1, 2, 3, 0, 1]), torch.arange(6)
    slopes = behind.slopes(x, units)
    found, out = behind.coefficients(x, labels)
    torch.testing.assert_close(out, net[1](x.flatten(1)))
    torch.testing.assert_close(out, behind.outputs(x))
    for k in range(6):
        torch.testing.assert_close(found[k], loop(net, x[k], labels[k], loss) / samples)
        for y in range(4):
            torch.testing.assert_close(slopes[k, y], loop(net, x[k], torch.tensor(y), loss)[units[k]] / samples)


@pytest.mark.parametrize(
    ("activation", "expected"), [(nn.ReLU, True), (nn.Sigmoid, False), (nn.LeakyReLU, False), (nn.Identity, False)]
)
def test_tells_whether_a_relu_follows(activation, expected):
    assert BehindFirstLayer(network(activation), "1", (3, 4), 1, CROSS_ENTROPY).rectified() is expected


def test_the_linear_layer_behind_the_relu_is_found_where_it_is():
    assert linear_behind_relu(network(), "1", (3, 4)) == "3"
    assert linear_behind_relu(network(nn.Sigmoid), "1", (3, 4)) is None


@pytest.mark.parametrize("loss", [CROSS_ENTROPY, NLL_ON_LOGITS])
def test_rows_of_units_that_are_off_hold_what_they_would_have_sent_back(loss):
    """Against the same network without its ReLU's zeros: on and off together are what an always-on unit sends back."""
    net, samples = network(), 5
    behind = BehindFirstLayer(net, "1", (3, 4), samples, loss, "3")
    plain = BehindFirstLayer(net, "1", (3, 4), samples, loss)
    x, labels = torch.rand(6, 3, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    both, out = behind.coefficients(x, labels)
    on, off = both[:, :20], both[:, 20:]
    torch.testing.assert_close(on, plain.coefficients(x, labels)[0])
    assert (off[out > 0] == 0).all()
    middle = torch.relu(out).detach().requires_grad_()
    logits = net[5](torch.tanh(net[3](middle)))
    value = (
        nn.functional.cross_entropy(logits, labels, reduction="sum")
        if loss == CROSS_ENTROPY
        else -logits.gather(1, labels[:, None]).sum()
    )
    torch.testing.assert_close(on + off, torch.autograd.grad(value, middle)[0] / samples)
    rows = torch.tensor([0, 21, 2, 23, 4, 25])
    slopes = behind.slopes(x, rows)
    torch.testing.assert_close(slopes.gather(1, labels[:, None])[:, 0], both.gather(1, rows[:, None])[:, 0])

"""What noise on an update is in the gradient that an attack matches."""

import pytest

from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.errors import NotApplicable
from leakgauge.matching.noise import noise_in_gradient
from leakgauge.models import load_model
from leakgauge.types import Client, threat_model


@pytest.fixture(scope="module")
def model():
    return load_model("mlp:hidden=8", load("digits").spec, 0)


@pytest.fixture(scope="module")
def batch():
    return draw_victims(load("digits"), trials=2, batch_size=3, seed=0)


@pytest.mark.parametrize(
    ("local", "noised", "expected"),
    [
        (Client(), "sum", 1 / 3),
        (Client(), "joint-sum", 2 / 3),  # four tensors
        (Client(), "update", 1),
        (Client("fedavg", epochs=4, lr=0.1), "sum", 1 / (3 * 2)),
        (Client("fedavg", batch_size=2, lr=0.1), "sum", (1 / 4 + 1) ** 0.5 / 2),  # steps of 2 samples and of 1
        (Client("fedavg", epochs=4, lr=0.1), "update", 1 / 0.4),
        (Client("fedavg", epochs=2, lr=0.1, momentum=0.5), "update", 1 / 0.25),  # 1.5 and 1 times the rate
        (Client("fedavg", epochs=2, lr=0.1, momentum=0.5), "sum", (1.5**2 + 1) ** 0.5 / (3 * 2.5)),
        (Client("fedavg", batch_size=2, accumulate=2, lr=0.1), "sum", (1 / 4 + 1) ** 0.5 / 2),
    ],
)
def test_noise_on_its_way_into_the_matched_gradient(model, batch, local, noised, expected):
    update = client_step(local)(model, batch, (0, 1))
    spec = load("digits").spec
    seen = observe(model, update, threat_model("honest-but-curious"), facts_about(model, batch, spec, local, None))
    assert noise_in_gradient(noised, seen) == pytest.approx(expected)


def test_rules_that_divide_by_sizes_have_no_such_factor(model, batch):
    local, spec = Client("fedavg", optimizer="adam"), load("digits").spec
    update = client_step(local)(model, batch, (0, 1))
    seen = observe(model, update, threat_model("honest-but-curious"), facts_about(model, batch, spec, local, None))
    with pytest.raises(NotApplicable, match="adam moves weights by signs"):
        noise_in_gradient("update", seen)

"""An encrypted round gives what a plain one gives, to the stated bound."""

import pytest
import torch

from leakgauge.client.sums import weighted_mean
from leakgauge.defenses.mixing import evenly_spread
from leakgauge.federation.encryption.ckks import Ckks
from leakgauge.federation.encryption.paillier import Paillier
from leakgauge.federation.exchange import EncryptedExchange, PlainExchange, flattened, unflattened
from leakgauge.types import SharedUpdate

G = torch.Generator().manual_seed(0)
UPDATES = SharedUpdate(
    "weight_delta",
    {"w": torch.randn(4, 3, 2, generator=G), "b": torch.randn(4, 5, generator=G)},
    {"mean": torch.randn(4, 3, generator=G), "count": torch.tensor([2, 2, 2, 2])},
)
MIXED = evenly_spread(torch.full((4,), 0.9, dtype=torch.float64))
WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


def plain() -> PlainExchange:
    return PlainExchange(UPDATES, weighted_mean)


@pytest.fixture(scope="module", params=[Paillier(bits=256, insecure_demo=True), Ckks()], ids=lambda s: s.name)
def scheme(request):
    return request.param


@pytest.fixture(scope="module")
def encrypted(scheme):
    return EncryptedExchange(UPDATES, scheme.keys(), scheme.pieces, [5, 1, 0, 2], number=3)


def close(found: SharedUpdate, expected: SharedUpdate, bound: float) -> None:
    assert found.trials == expected.trials
    for name, tensor in (*expected.tensors.items(), *expected.buffers.items()):
        torch.testing.assert_close({**found.tensors, **found.buffers}[name], tensor, rtol=0, atol=bound)


def test_the_mean_is_the_weighted_one(scheme, encrypted):
    close(plain().mean(WEIGHTS), weighted_mean(UPDATES, WEIGHTS.tolist()), 1e-6)
    rounding = 4 / scheme.pieces * 4  # of the weights, at values of at most 4
    close(encrypted.mean(WEIGHTS), weighted_mean(UPDATES, WEIGHTS.tolist()), scheme.error_bound() + rounding)


def test_a_server_that_asks_is_told_by_which_weights_rows_are_scaled():
    asked = []

    def mean_of(rows, weights):
        asked.append(weights)
        return weighted_mean(rows)

    found = PlainExchange(UPDATES, weighted_mean, mean_of).mean(WEIGHTS)
    close(found, weighted_mean(UPDATES, WEIGHTS.tolist()), 1e-6)
    assert torch.equal(asked[0], WEIGHTS)


@pytest.mark.parametrize(
    "weights", [None, evenly_spread(torch.full((4,), 0.9, dtype=torch.float64))], ids=["apart", "mixed"]
)
def test_the_mixtures_are_the_same(scheme, encrypted, weights):
    close(encrypted.mixtures(weights), plain().mixtures(weights), scheme.error_bound() + 16 / scheme.pieces)


def test_flat_and_back():
    rows = flattened(UPDATES)
    assert rows.shape == (4, 6 + 5 + 3)
    close(unflattened(rows, UPDATES), UPDATES, 0)

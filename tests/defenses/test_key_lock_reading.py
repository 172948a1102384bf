"""The key stands in the lock's own gradient: whatever the batch, the steps and the activation."""

import pytest
import torch

from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.data import draw_victims, load
from leakgauge.defenses.key_lock import KeyLock, misfit, read_key
from leakgauge.models import load_model
from leakgauge.models.locked_norm import draw_locks
from leakgauge.types import Client

SEEDS = tuple(range(8))


def read(local, batch_size=1, net="lenet-dlg:filters=4", **fields):
    data = load("digits")
    defense = KeyLock(told="gradient", **fields)
    model = load_model(net, data.spec, 0)
    update = chain(client_step(local), defense)(
        prepared(model, defense), draw_victims(data, len(SEEDS), batch_size, 0), SEEDS
    )
    weight, bias = (update.tensors[f"conv1.lock.{part}"] for part in ("weight", "bias"))
    key = read_key(weight, bias)
    true = draw_locks(SEEDS, prepared(model, defense).conv1.lock, "default")["key"]
    return (key - true).abs().amax(1), misfit(weight, bias, key)


@pytest.mark.parametrize("activation", ["identity", "sigmoid", "relu"])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("first_lock", ["server", "client"])
def test_the_key_of_1024_numbers_comes_out_to_one_in_a_million(activation, batch_size, first_lock):
    error, left = read(Client(batchnorm="train"), batch_size, activation=activation, first_lock=first_lock)
    assert error.max() < 1e-6
    assert left.max() < 1e-6


def test_the_weight_difference_of_several_local_steps_gives_it_too():
    """Less exactly: what moves is small beside the weights, whose rounding it keeps."""
    error, _ = read(Client("fedavg", epochs=3, lr=0.1, batchnorm="train"), 4)
    assert error.max() < 1e-2


def test_it_is_the_quotient_of_one_row():
    key, slope = torch.rand(2, 5), torch.tensor([[3e-20, 0.0, -1e-20], [2.0, 1.0, 0.0]])
    weight = slope[..., None] * key[:, None]
    torch.testing.assert_close(read_key(weight, slope), key)
    torch.testing.assert_close(read_key(weight, slope), weight[:, 0] / slope[:, :1])
    assert (misfit(weight, slope, key) < 1e-6).all()


def test_without_any_slope_there_is_no_key():
    """As with a ReLU that has switched every channel off."""
    nothing = torch.zeros(1, 4, 3)
    assert read_key(nothing, nothing[..., 0]).abs().max() == 0
    assert misfit(nothing, nothing[..., 0], nothing[:, 0]).tolist() == [1.0]

"""A replay is what the client would have shared, in the arithmetic and with the draws that are asked for."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.models import load_model
from leakgauge.recording.replays import SINGLE, ReplayedClient, rounded
from leakgauge.types import Client

SEEDS = (3, 4)
EPOCHS = Client(kind="fedavg", lr=0.1, epochs=2, batch_size=2)


@pytest.fixture(scope="module")
def batch():
    return draw_victims(load("digits"), trials=2, batch_size=4, seed=0)


def client(local=None, defenses=(), model=None):
    model = model or load_model("mlp:hidden=16", load("digits").spec, 0)
    return ReplayedClient(model, local or Client(), defenses, tuple(n for n, _ in model.named_parameters()))


def largest_gap(one, other):
    return max(float((one[n] - other[n]).abs().max()) for n in one)


@pytest.mark.parametrize("local", [Client(), EPOCHS], ids=lambda local: local.kind)
def test_it_is_the_client_step_in_double_precision_and_coarser_ones_are_near(batch, local):
    own = client(local)
    exact = own.replay(batch, SEEDS)
    shared = client_step(local)(own.model, batch, SEEDS)
    assert all(rows.dtype == torch.float64 and len(rows) == 2 for rows in exact.values())
    for name, rows in exact.items():
        assert torch.allclose(rows.float(), shared.tensors[name].flatten(1), atol=1e-5)
    gaps = [largest_gap(own.replay(batch, SEEDS, bits=bits), exact) for bits in (SINGLE, 10, 7)]
    assert 0 < gaps[0] < gaps[1] < gaps[2] < 0.1


def test_rounding_is_that_of_the_formats():
    x = torch.randn(1000, dtype=torch.float64)
    assert torch.equal(rounded(x, 7), x.bfloat16().double())
    assert torch.equal(rounded(x, SINGLE), x.float().double())


def test_only_defenses_that_draw_are_found_to_draw(batch):
    noise = Gaussian(std=0.1)
    assert client(defenses=(Clip(norm=1.0), noise)).drawing(batch, SEEDS) == (noise,)


def test_the_order_of_mini_batches_is_drawn_if_there_are_several(batch):
    own = client(EPOCHS)
    assert own.shuffles(4)
    assert not own.shuffles(2)
    assert not client().shuffles(4)
    plain, shuffled = own.replay(batch, SEEDS), own.replay(batch, SEEDS, shuffled=True)
    assert largest_gap(plain, shuffled) > 1e-4
    assert largest_gap(shuffled, own.replay(batch, SEEDS, shuffled=True)) == 0


def test_dropout_is_drawn_from_the_seed_and_the_model_stays_as_it_was(batch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 10)).eval()
    own, state = client(model=model), torch.get_rng_state()
    assert own.drops()
    assert not client().drops()
    one, again, other = (own.replay(batch, seeds, drops=True) for seeds in (SEEDS, SEEDS, (9, 9)))
    assert largest_gap(one, again) == 0
    assert largest_gap(one, other) > 1e-3
    assert largest_gap(one, own.replay(batch, SEEDS)) > 1e-3
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(model[2], nn.Dropout)


def test_shaken_replays_round_in_other_ways_and_stay_near(batch):
    own = client(EPOCHS)
    exact, plain = own.replay(batch, SEEDS), own.replay(batch, SEEDS, bits=SINGLE)
    one, again, other = (own.replay(batch, SEEDS, bits=SINGLE, shaken=k) for k in (0, 0, 1))
    assert largest_gap(one, again) == 0
    assert largest_gap(one, other) > 0
    assert 0 < largest_gap(one, exact) < 30 * largest_gap(plain, exact)


def test_what_was_sent_as_16_bits_is_replayed_without(batch):
    local = dataclasses.replace(EPOCHS, shared_as="bfloat16")
    assert largest_gap(client(local).replay(batch, SEEDS), client(EPOCHS).replay(batch, SEEDS)) == 0


def test_an_own_training_draws_by_itself_and_hides_no_defense(batch, tmp_path):
    (tmp_path / "my.py").write_text(
        "import torch\n\ndef fit(model, loader, config):\n"
        "    for p in model.parameters():\n        p.data += config['lr'] * torch.randn_like(p)\n"
    )
    own = client(Client(kind="fedavg", fit=f"{tmp_path / 'my.py'}:fit"), defenses=(Clip(norm=1.0),))
    assert own.draws_itself(batch, SEEDS)
    assert own.drawing(batch, SEEDS) == ()
    assert not client(EPOCHS).draws_itself(batch, SEEDS)
    assert not own.shuffles(4)

"""Layers written out in plain operations against torch's own; the zoo tests their derivatives."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint as checkpointing
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from leakgauge.engine.written_out import WrittenOut, nothing_computed_again, recurrent_written_out, without_stale_graphs

LAYERS = {
    "lstm": lambda: nn.LSTM(4, 3, 2, bidirectional=True),
    "lstm-projected": lambda: nn.LSTM(4, 3, 2, proj_size=2, batch_first=True),
    "lstm-without-bias": lambda: nn.LSTM(4, 3, bias=False, proj_size=1, bidirectional=True),
    "gru": lambda: nn.GRU(4, 3, 2, bidirectional=True, batch_first=True),
    "gru-without-bias": lambda: nn.GRU(4, 3, bias=False),
    "rnn-tanh": lambda: nn.RNN(4, 3, 2),
    "rnn-relu": lambda: nn.RNN(4, 3, nonlinearity="relu", bidirectional=True),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_are_torchs(name):
    torch.manual_seed(0)
    layer, x = LAYERS[name]().double(), torch.randn(2, 5, 4, dtype=torch.float64)
    expected, states = layer(x)
    with recurrent_written_out():
        found, own = layer(x)
        alone, _ = layer(x[0])  # without an axis of samples
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(own, states)
    torch.testing.assert_close(alone, layer(x[0])[0])
    begun = tuple(torch.randn_like(s) for s in (states if isinstance(states, tuple) else (states,)))
    begun = begun if isinstance(states, tuple) else begun[0]
    with WrittenOut():
        found, own = layer(x, begun)
    torch.testing.assert_close((found, own), layer(x, begun))


def test_packed_sequences_and_units_dropped_at_random_are_left_to_torch():
    torch.manual_seed(0)
    layer, x = nn.GRU(4, 3, 2, dropout=0.5), torch.randn(5, 2, 4)
    rows = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]))
    layer.eval()
    with WrittenOut():
        torch.testing.assert_close(layer(rows)[1], layer(rows)[1])
    layer.train()
    torch.manual_seed(1)
    expected = layer(x)[0]
    torch.manual_seed(1)
    with WrittenOut():
        torch.testing.assert_close(layer(x)[0], expected)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_is_torchs(dim):
    layer = weight_norm(nn.Linear(5, 3), dim=dim)
    with torch.no_grad():
        layer.parametrizations.weight.original0 *= 1.7
    x = torch.randn(2, 5)
    expected = layer(x)
    with WrittenOut():
        torch.testing.assert_close(layer(x), expected)


def test_bilinear_layers_are_torchs():
    for bias in (True, False):
        layer, left, right = nn.Bilinear(3, 4, 2, bias=bias), torch.randn(5, 6, 3), torch.randn(5, 6, 4)
        expected = layer(left, right)
        with WrittenOut():
            torch.testing.assert_close(layer(left, right), expected)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings_are_torchs(mode):
    layer, numbers = nn.EmbeddingBag(6, 3, mode=mode), torch.tensor([[0, 5, 5], [2, 1, 0]])
    weights = torch.rand(2, 3) if mode == "sum" else None
    one_behind_another = (numbers.flatten(), torch.tensor([0, 2]))
    with WrittenOut():
        found, others = layer(numbers, per_sample_weights=weights), layer(*one_behind_another)
    torch.testing.assert_close(found, layer(numbers, per_sample_weights=weights))
    torch.testing.assert_close(others, layer(*one_behind_another))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_parts_run_once_and_afterwards_torch_is_as_it_was(reentrant):
    calls, own = [], checkpointing.CheckpointFunction

    def part(x):
        calls.append(1)
        return x.sin()

    x = torch.randn(3, requires_grad=True)
    with nothing_computed_again():
        y = checkpointing.checkpoint(part, x, use_reentrant=reentrant)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope, x.cos())
    assert len(calls) == 1
    assert checkpointing.CheckpointFunction is own
    checkpointing.checkpoint(part, x, use_reentrant=reentrant).sum().backward()
    assert len(calls) == 3


def test_a_layer_that_keeps_a_tensor_it_made_can_be_copied():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = nn.utils.weight_norm(nn.Linear(3, 2))
    x = torch.randn(1, 3)
    expected = layer(x)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(layer)
    without_stale_graphs(layer)
    torch.testing.assert_close(copy.deepcopy(layer)(x), expected)


def test_functions_without_a_form_of_their_own_are_untouched():
    x = torch.randn(2, 3)
    with WrittenOut():
        assert torch.equal(F.softmax(x, -1), torch.softmax(x, -1))

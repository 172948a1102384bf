"""Look-ups of categories have slopes in their shares, and give what whole numbers give."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.engine.soft_categories import SoftCategories

SIZE = 5


@pytest.mark.parametrize(
    "look_up",
    [
        lambda words, e: e(words),
        lambda words, e: e(words.unsqueeze(-1)).squeeze(-2),
        lambda words, e: e(words.transpose(0, 1)).transpose(0, 1),
        lambda words, e: torch.stack([e(column) for column in words.unbind(1)], 1),
        lambda words, e: e(words.view(-1)).view(*words.shape, -1),
        lambda words, e: torch.cat([e(part) for part in words.split(1, dim=1)], 1),
        lambda words, e: e(words.long().contiguous()),
        lambda words, e: F.one_hot(words, e.num_embeddings).float() @ e.weight,
        lambda words, e: e(words.flatten()).unflatten(0, words.shape),
        lambda words, e: e(words[..., :]),
    ],
)
def test_a_look_up_keeps_its_slopes_behind_what_moves_the_numbers_about(look_up):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(5, 3)

        def forward(self, words):
            return look_up(words, self.e).sum(1)

    torch.manual_seed(0)
    model, words = Own(), torch.tensor([[0, 1, 4], [2, 2, 3]])
    shares = F.one_hot(words, SIZE).float().requires_grad_()
    with SoftCategories([shares]) as mode:
        found = model(mode.numbers[0])
    torch.testing.assert_close(found, model(words))
    (slope,) = torch.autograd.grad(found.square().sum(), shares)
    assert (slope != 0).all()


def test_numbers_that_are_added_to_move_the_rows():
    """Columns that share one embedding, each behind its own offset."""
    e, words, offsets = nn.Embedding(9, 3), torch.tensor([[0, 1], [2, 3]]), torch.tensor([0, 4])
    shares = F.one_hot(words, SIZE).float().requires_grad_()
    with SoftCategories([shares]) as mode:
        found = e(mode.numbers[0] + offsets)
    torch.testing.assert_close(found, e(words + offsets))
    assert torch.autograd.grad(found.square().sum(), shares)[0].any()


def test_behind_anything_else_they_are_whole_numbers():
    e, words = nn.Embedding(9, 3), torch.tensor([[0, 1], [2, 3]])
    shares = F.one_hot(words, SIZE).float().requires_grad_()
    with SoftCategories([shares]) as mode:
        found = e(mode.numbers[0] * 2)
    torch.testing.assert_close(found, e(words * 2))

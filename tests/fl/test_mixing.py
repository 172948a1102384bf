"""Mixing, and why it is not privacy."""

import torch

from leakgauge.fl.mixing import mixed, mixing_matrix, unmixed
from leakgauge.types import SharedUpdate

UPDATES = SharedUpdate(
    "weight_delta",
    {"w": torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0))},
    {"mean": torch.arange(4.0)[:, None], "count": torch.tensor([7, 7, 7, 7])},
)


def test_a_mixture_is_mostly_its_own_update():
    matrix = mixing_matrix(4, 0.9)
    torch.testing.assert_close(matrix.sum(1), torch.ones(4, dtype=torch.float64))
    out = mixed(UPDATES, 0.9)
    w = UPDATES.tensors["w"]
    torch.testing.assert_close(out.tensors["w"][1], 0.9 * w[1] + 0.1 / 3 * (w[0] + w[2] + w[3]))
    torch.testing.assert_close(out.buffers["mean"][0, 0], torch.tensor(0.1 / 3 * 6))
    assert torch.equal(out.buffers["count"], UPDATES.buffers["count"])


def test_who_sees_all_mixtures_has_all_updates():
    torch.testing.assert_close(unmixed(mixed(UPDATES, 0.9), 0.9).tensors["w"], UPDATES.tensors["w"])


def test_no_mixing_and_one_client_change_nothing():
    assert mixed(UPDATES, 1.0) is UPDATES
    alone = UPDATES.take([2])
    assert torch.equal(mixed(alone, 0.5).tensors["w"], alone.tensors["w"])

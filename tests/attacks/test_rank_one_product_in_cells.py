"""A product of two vectors, from bounds on its entries."""

import torch

from leakgauge.attacks._product_in_cells import factors_in
from leakgauge.attacks.rank_one import RankOne
from leakgauge.types import Client


def bounded(values, limit, width=0.02):
    """Entries up to `limit` between two bounds, larger ones beyond it."""
    size, sign = values.abs(), values.sign()
    near, far = (1 - width) * size, (1 + width) * size
    near, far = torch.where(size > limit, limit, near), torch.where(size > limit, torch.inf, far)
    return torch.minimum(sign * near, sign * far), torch.maximum(sign * near, sign * far)


def test_small_entries_give_the_whole_factor():
    g = torch.Generator().manual_seed(0)
    right = torch.rand(2, 40, generator=g) * 2 - 1
    left = torch.randn(2, 60, generator=g)
    product = left[:, :, None] * right[:, None]
    least, most = bounded(product, 0.3)
    ends = torch.full((40,), -1.0), torch.full((40,), 1.0)
    found = factors_in(least, most, bounded(left, 0.3), *ends)
    assert (found.entered - right).abs().mean() < 0.02
    assert (found.known > 0.9).all()
    assert (found.residual < 0.05).all()


def test_signs_alone_say_so():
    product = torch.ones(1, 5, 4)
    found = factors_in(*bounded(product, 1e-9), bounded(torch.ones(1, 5), 1e-9), torch.zeros(4), torch.ones(4))
    assert float(found.known) == 0
    assert float(found.residual) == 1


def test_one_step_of_an_adaptive_rule_shows_the_sample(scene):
    local = Client.from_text("kind=fedavg,optimizer=rmsprop,lr=0.01")
    made = scene("mlp:hidden=64,activation=relu", trials=3, local=local)
    found = RankOne()(made.seen, (0, 1, 2))
    assert made.psnr(found).mean() > 30
    assert "by the sizes that rounding leaves" in found.notes[0]
    assert not found.certified.any()

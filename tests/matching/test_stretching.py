"""A picture is stretched only where its scale is invisible."""

import dataclasses

import torch
from leakgauge.matching.stretching import stretched

from leakgauge.data import load
from leakgauge.defenses.batchnorm_only import BatchNormOnly
from leakgauge.engine.gradients import working_model
from leakgauge.matching.problem import Puzzle
from leakgauge.models import load_model

NET = BatchNormOnly().prepare(load_model("lenet-dlg:filters=4", load("digits").spec, 0))


def puzzle(batchnorm="train", samples=1):
    return Puzzle(
        working_model(NET, batchnorm), {}, (samples, 1, 8, 8), 10, None, "l2", lambda _, x, __: x.new_zeros(len(x))
    )


def test_each_picture_uses_the_whole_range():
    x = torch.randn(3, 1, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 7 - 2
    out = stretched(x, puzzle())
    assert torch.equal(out.amin((1, 2, 3, 4)), torch.zeros(3))
    torch.testing.assert_close(out.amax((1, 2, 3, 4)), torch.ones(3))
    torch.testing.assert_close(stretched(3 * x + 1, puzzle()), out)


def test_a_constant_picture_stays():
    x = torch.full((1, 1, 1, 8, 8), 0.3)
    assert torch.equal(stretched(x, puzzle()), x)


def test_it_stays_out_where_the_scale_shows():
    x = torch.rand(2, 1, 1, 8, 8)
    assert stretched(x, puzzle("eval")) is x
    assert stretched(x, dataclasses.replace(puzzle(), shape=(2, 1, 8, 8))) is x

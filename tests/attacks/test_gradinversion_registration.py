"""Consensus: shifts are found and undone, and one trial's rows never touch another's."""

import pytest
import torch

from leakgauge.attacks.gradinversion import consensus, mean_by_trial, moved, shifts


def picture(side=16):
    """(1, 1, 3, side, side): a bright patch on a dim random ground."""
    x = 0.1 * torch.rand(1, 1, 3, side, side, generator=torch.Generator().manual_seed(0))
    x[..., 5:9, 6:11] += 0.8
    return x


@pytest.mark.parametrize("by", [(0, 0), (2, -3), (-4, 1), (0, 4)])
def test_a_shift_is_found_and_undone(by):
    x = picture()
    elsewhere = torch.roll(x, by, (-2, -1))
    found = shifts(elsewhere, x)
    assert found.tolist() == [[[-by[0], -by[1]]]]
    torch.testing.assert_close(moved(elsewhere, found), x)


def test_each_picture_of_a_batch_has_its_own_shift():
    x = picture().expand(1, 2, -1, -1, -1)
    elsewhere = torch.stack((torch.roll(x[:, 0], (1, 2), (-2, -1)), torch.roll(x[:, 1], (-3, 0), (-2, -1))), 1)
    torch.testing.assert_close(moved(elsewhere, shifts(elsewhere, x)), x.contiguous())


def test_a_shift_over_half_the_picture_is_not_believed():
    x = picture()
    found = shifts(torch.roll(x, (8, 8), (-2, -1)), x)
    assert found.abs().max() <= 4


def test_shifted_copies_agree_on_a_sharp_picture_and_their_plain_mean_is_blurred():
    x = picture()
    rows = torch.cat([x, x, x, torch.roll(x, (2, 0), (-2, -1))])
    trials = torch.zeros(4, dtype=torch.long)
    registered, plain = consensus(rows, trials), consensus(rows, trials, "mean")
    assert (registered[0] - x[0]).abs().max() < 1e-6
    assert (plain[0] - x[0]).abs().max() > 0.1


def test_trials_are_kept_apart():
    rows = torch.rand(4, 1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    trials = torch.tensor([0, 0, 1, 1])
    for kind in ("registered", "mean"):
        together = consensus(rows, trials, kind)
        assert torch.equal(together[:2], consensus(rows[:2], trials[:2], kind))
        assert torch.equal(together[2:], consensus(rows[2:], trials[2:], kind))


def test_tables_agree_on_their_mean():
    rows = torch.tensor([[[1.0, 2.0]], [[3.0, 6.0]]])
    assert consensus(rows, torch.tensor([0, 0]))[0].tolist() == [[2.0, 4.0]]
    assert mean_by_trial(rows, torch.tensor([0, 1]))[0].tolist() == [[1.0, 2.0]]

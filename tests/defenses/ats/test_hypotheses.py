"""All ways of a policy, the pixels they show, and the way back for someone who was not told which one it was."""

import pytest
import torch

from leakgauge.data import draw_victims, load
from leakgauge.defenses.ats.operations import OPERATIONS, applied, draw, parse
from leakgauge.defenses.ats.undoing import filled_in, gone, originals, visible, ways, ways_drawn


@pytest.fixture(scope="module")
def photos():
    return draw_victims(load("photos32"), 1, 12, 0).inputs[0]


@pytest.mark.parametrize(
    ("policy", "count"),
    [("3-1-7", 8), ("43-18-18", 8), ("9", 1), ("28-39", 1), ("3-1-7/43-18-18", 16), ("9/16/17", 1), ("7/7-8", 4)],
)
def test_every_way_is_there_once(policy, count):
    found = ways(parse(policy))
    assert len(found) == len(set(found)) == count


def test_the_way_that_was_drawn_is_one_of_them_and_leads_there(photos):
    policies = parse("3-1-7/43-18-18")
    drawn = draw(policies, [5], len(photos))
    went = ways_drawn(drawn)
    assert set(went) <= set(ways(policies))
    each = torch.cat([gone(photo[None], way) for photo, way in zip(photos, went, strict=True)])
    assert torch.equal(each, applied(photos, drawn))


def test_pixels_that_leave_the_frame_are_not_visible():
    right = ((OPERATIONS[3], 1),)  # the picture moves left by 14.5 pixels: its left part is gone
    seen = visible(right, 32, 32)
    assert not seen[:, :14].any()
    assert seen[:, 15:].all()
    assert visible(((OPERATIONS[1], 1),), 32, 32).all()
    assert visible((), 8, 8).all()


def test_unseen_pixels_are_filled_from_their_neighbours_and_seen_ones_stay():
    pictures = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    known = torch.ones(2, 16, 16, dtype=torch.bool)
    known[0, :, :6] = False
    filled = filled_in(pictures, known)
    assert torch.equal(filled[1], pictures[1])
    assert torch.equal(filled[0, :, :, 6:], pictures[0, :, :, 6:])
    assert torch.allclose(filled[0, :, :, :6].mean(), pictures[0, :, :, 6:9].mean(), atol=0.1)


@pytest.mark.parametrize("policy", ["43-18-18", "7-4-15", "43-18-18/7-4-15", "21-13-3/7-4-15"])
def test_the_way_back_is_found_from_the_pictures_alone(photos, policy):
    """Not told the signs nor which policy, it comes close to what someone who was told them makes of it."""
    drawn = draw(parse(policy), [1], len(photos))
    came_out = applied(photos, drawn)
    found = originals(came_out, parse(policy))
    with_all = torch.stack([visible(way, 32, 32) for way in ways_drawn(drawn)])[:, None].expand_as(photos)
    before = (came_out - photos).square().mean((1, 2, 3))
    after = (found - photos).square().where(with_all, torch.zeros(())).mean((1, 2, 3))
    assert after.median() < 0.01 < before.median()
    assert (after < before).float().mean() > 0.8


def test_noise_on_what_was_recovered_does_not_lead_astray(photos):
    policy = parse("43-18-18")
    came_out = applied(photos, draw(policy, [2], len(photos)))
    noisy = (came_out + 0.03 * torch.randn(came_out.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    exact, guessed = originals(came_out, policy), originals(noisy, policy)
    assert (exact - guessed).square().mean((1, 2, 3)).median() < 0.01

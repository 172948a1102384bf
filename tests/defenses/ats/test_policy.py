"""Policies: read, drawn, applied, undone."""

import pytest
import torch

from leakgauge.defenses.ats.operations import NOTHING, OPERATIONS, applied, draw, effect, parse, undone, written
from leakgauge.errors import BadInput


@pytest.mark.parametrize("text", ["3-1-7", "3-1-7/43-18-18", "0", "28-39"])
def test_what_is_read_is_written(text):
    assert written(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("50", "0 to 49"),
        ("3-1-50", "50 in"),
        ("", "numbers with dashes"),
        ("1-2-3-4", "one to 3"),
        ("a-b", "numbers"),
        ("3--1", "numbers"),
        ("3-1-7/", "numbers"),
        ("-1", "numbers"),
        ("²", "numbers"),
        ("٣-1", "numbers"),
    ],
)
def test_bad_policies_are_refused(text, said):
    with pytest.raises(BadInput, match=said):
        parse(text)


def test_a_policy_is_its_operations_one_after_another():
    x = torch.rand(6, 3, 16, 16)
    drawn = draw(parse("3-1-7"), [0, 1], 3)
    by_hand = x
    for place, index in enumerate((3, 1, 7)):
        by_hand = OPERATIONS[index](by_hand, drawn.signs[:, place])
    assert torch.equal(applied(x, drawn), by_hand)


def test_a_hybrid_gives_each_picture_one_of_its_policies():
    x, drawn = torch.rand(40, 1, 8, 8), draw(parse("0/28"), [5], 40)
    inverted = drawn.operations[:, 0] == 0
    assert 5 < inverted.sum() < 35
    assert torch.equal(applied(x, drawn), torch.where(inverted.view(-1, 1, 1, 1), 1 - x, x))
    assert (drawn.operations[:, 1:] == NOTHING).all()


def test_pictures_of_one_seed_do_not_depend_on_the_others():
    together, alone = draw(parse("3-1-7/0"), [1, 2], 5), draw(parse("3-1-7/0"), [2], 5)
    assert torch.equal(together.signs[5:10], alone.signs)
    assert torch.equal(together.operations[5:10], alone.operations)


def test_as_released_crops_and_mirrors_first():
    x = torch.rand(20, 3, 32, 32)
    hidden = draw(parse("28"), [0], 20, as_released=True)
    plain = draw(parse("28"), [0], 20)
    assert torch.equal(applied(x, plain), x)
    moved = applied(x, hidden)
    assert not torch.equal(moved, x)
    back = undone(moved, hidden)
    assert torch.equal(back[..., 4:-4, 4:-4], x[..., 4:-4, 4:-4])


def test_policies_are_differentiable_in_the_picture():
    x = torch.rand(8, 3, 12, 12, dtype=torch.float64, requires_grad=True)
    out = applied(x, draw(parse("3-1-7/43-18-18"), [3], 8))
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert torch.isfinite(slope).all()
    assert slope.abs().sum() > 0


def test_inverting_twice_comes_back():
    x, drawn = torch.rand(3, 1, 8, 8), draw(parse("0-29-47"), [0], 3)
    assert torch.allclose(undone(applied(x, drawn), drawn), x)


def test_policies_with_the_same_effect_show_the_same_pictures():
    """Equal operations under other numbers, and those that change nothing, on the same draws of signs."""
    pictures = torch.rand(6, 3, 12, 12)

    def shown(*triple):
        return applied(pictures, draw([triple], [3], len(pictures)))

    for one, other in (((9, 3, 1), (16, 3, 1)), ((28, 3, 39), (39, 3)), ((9, 28, 8), (9, 23)), ((39,), ())):
        assert effect(one) == effect(other)
        assert torch.equal(shown(*one), shown(*other))
    for one, other in (((28, 3), (3,)), ((3, 1), (1, 3)), ((3,), (21,))):  # another sign is drawn for another place
        assert effect(one) != effect(other)
        assert not torch.equal(shown(*one), shown(*other))

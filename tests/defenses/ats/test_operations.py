"""The list of fifty (G17)."""

import pytest
import torch

from leakgauge.defenses.ats.operations import COUNT, OPERATIONS, Operation

UP, DOWN = torch.ones(4), -torch.ones(4)


def test_fifty_operations_of_which_29_differ():
    assert len(OPERATIONS) == COUNT
    assert len(set(OPERATIONS)) == 29


@pytest.mark.parametrize("index", [28, 39])
def test_two_change_nothing(index):
    x = torch.rand(4, 3, 16, 16)
    assert torch.equal(OPERATIONS[index](x, UP), x)
    assert torch.equal(OPERATIONS[index].undone(x, UP), x)


@pytest.mark.parametrize("index", [i for i in range(COUNT) if i not in (28, 39)])
def test_the_others_change_pictures_and_keep_their_range(index):
    x = torch.rand(4, 3, 32, 32)
    y = OPERATIONS[index](x, UP)
    assert y.shape == x.shape
    assert not torch.allclose(x, y)
    assert 0 <= y.min() <= y.max() <= 1


@pytest.mark.parametrize("operation", sorted({o for o in OPERATIONS if o.signed and not o.changes_nothing}, key=str))
def test_the_sign_decides_the_direction(operation):
    x = torch.rand(4, 3, 32, 32)
    assert not torch.allclose(operation(x, UP), operation(x, DOWN))


@pytest.mark.parametrize(
    ("operation", "levels"),
    [
        (Operation("invert"), 0.01),
        (Operation("contrast", 6), 1),
        (Operation("color", 5), 1.5),
        (Operation("brightness", 5), 0.01),
        (Operation("sharpness", 5), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("signs", [UP, DOWN], ids=["up", "down"])
def test_what_keeps_its_information_is_undone(operation, levels, signs):
    smooth = torch.nn.functional.avg_pool2d(torch.rand(4, 3, 20, 20), 5, 1)  # no pixel leaves [0, 1] on the way
    back = operation.undone(operation(0.3 + 0.3 * smooth, signs), signs)
    assert (back - (0.3 + 0.3 * smooth)).abs().max() * 255 < levels


@pytest.mark.parametrize("kind", ["translateX", "translateY"])
def test_a_shift_is_undone_where_pixels_stayed_inside(kind):
    x, operation = torch.rand(4, 1, 32, 32), Operation(kind, 3)
    back = operation.undone(operation(x, UP), UP)
    middle = (slice(None), slice(None), slice(6, -6), slice(6, -6))
    assert torch.equal(back[middle], x[middle])


def test_names_say_kind_and_level():
    assert [str(OPERATIONS[i]) for i in (0, 3, 9, 28)] == ["invert", "translateX9", "equalize", "solarize0"]
    assert OPERATIONS[3].moves_pixels
    assert not OPERATIONS[1].moves_pixels

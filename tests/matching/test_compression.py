"""The distance to the nearest gradient that would have been sent like this; each defense has its own rule beside it."""

from dataclasses import dataclass

import pytest
import torch

from leakgauge.matching.compression import Cells, Compression, beside, compressed_distance


@dataclass(frozen=True)
class AtLeast(Compression):
    """Every entry was rounded down to a whole number: it may have been up to one more."""

    def against(self, observed, distance):
        def compared(gradients):
            mine = {name: gradients[name] for name in observed}
            return mine, {name: torch.clamp(mine[name], t, t + 1) for name, t in observed.items()}

        return compared


SENT = {"w": torch.tensor([[0.0, 1.0, 3.0]])}


@pytest.mark.parametrize(("distance", "expected"), [("l2", 0.25 + 4), ("l1", 0.5 + 2)])
def test_what_would_have_been_sent_alike_costs_nothing_and_the_rest_its_distance(distance, expected):
    measured = compressed_distance(AtLeast(), SENT, distance)
    assert measured({"w": torch.tensor([[0.5, 2.0, 3.9]])}).item() < 1e-9
    assert measured({"w": torch.tensor([[-0.5, 1.5, 6.0]])}).item() == pytest.approx(expected, rel=1e-3)


def test_entries_that_were_not_sent_can_be_left_out_too():
    known = {"w": SENT["w"] != 0}
    wild = {"w": torch.tensor([[9.0, 1.0, 3.0]])}
    assert compressed_distance(AtLeast(), SENT, "l2", known)(wild).item() == 0
    assert compressed_distance(AtLeast(), SENT, "l2")(wild).item() == 64


def test_a_distance_of_an_attacks_own_sees_the_nearest_gradient():
    def own(observed, counting):
        return lambda mine: sum(((a - b) ** 4).sum(1) for a, b in zip(mine, observed, strict=True))

    guess = {"w": torch.tensor([[-2.0, 1.5, 3.0]], requires_grad=True)}
    value = compressed_distance(AtLeast(), SENT, own)(guess)
    (slope,) = torch.autograd.grad(value.sum(), guess["w"])
    assert value.item() == 16
    assert slope.tolist() == [[-32, 0, 0]]


def test_one_number_per_row_stands_beside_its_tensor():
    assert beside(torch.ones(4), torch.zeros(4, 2, 3)).shape == (4, 1, 1)


def test_cells_cost_nothing_inside_and_the_more_the_farther_outside():
    least, most = torch.tensor([[-1.0, 0.5, -torch.inf]]), torch.tensor([[-0.5, torch.inf, torch.inf]])
    rule, shared = Cells(lambda *_: (least, most)), {"w": torch.zeros(1, 3)}
    for distance in ("l2", "cosine", "relative-l1"):
        measured = compressed_distance(rule, shared, distance)
        inside, near, far = (
            float(measured({"w": torch.tensor([w])})) for w in ([-0.7, 3, -9], [-0.4, 3, -9], [0.4, -3, -9])
        )
        assert abs(inside) < 1e-6
        assert inside < near < far

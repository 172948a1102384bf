"""Levels: evenly spaced, the ends exact, the nearest or unbiased, and each a cell that holds the entry."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.defenses.quantize import Levels, Quantize
from leakgauge.errors import BadInput
from leakgauge.matching.compression import compressed_distance
from leakgauge.setup.plan import informed_by
from leakgauge.types import Known

TENSORS = {
    "w": torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0)),
    "b": torch.randn(3, 10, generator=torch.Generator().manual_seed(1)),
    "scalar": torch.tensor([-2.0, 0.5, 0.0]),
}
ROUNDINGS = ("nearest", "stochastic")


def test_by_hand(defended):
    tensor = {"w": torch.tensor([[-1.0, -0.6, 0.1, 0.4, 2.0]])}
    assert defended(Quantize(bits=2), tensor)["w"].tolist() == [[-1, -1, 0, 0, 2]]
    assert defended(Quantize(bits=1), tensor)["w"].tolist() == [[-1, -1, -1, -1, 2]]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", [1, 2, 5])
def test_there_are_so_many_levels_evenly_spaced_and_the_ends_are_exact(defended, bits, rounding):
    shared = defended(Quantize(bits=bits, rounding=rounding), TENSORS, range(3))
    for name in ("w", "b"):
        for t in range(3):
            mine, sent = TENSORS[name][t], shared[name][t]
            assert sent.min() == mine.min()
            assert sent.max() == mine.max()
            place = (sent - mine.min()) / (mine.max() - mine.min()) * (2**bits - 1)
            torch.testing.assert_close(place, place.round(), rtol=0, atol=1e-4)
    assert torch.equal(shared["scalar"], TENSORS["scalar"])


@pytest.mark.parametrize(("rounding", "steps"), [("nearest", 0.5), ("stochastic", 1.0)])
@pytest.mark.parametrize("bits", [1, 3, 8, 16])
def test_an_entry_lies_within_half_a_step_of_its_level_or_a_whole_one(defended, bits, rounding, steps):
    shared = defended(Quantize(bits=bits, rounding=rounding), TENSORS, range(3))["w"]
    rows = TENSORS["w"].flatten(1)
    step = (rows.amax(1) - rows.amin(1)) / (2**bits - 1)
    assert ((shared.flatten(1) - rows).abs().amax(1) <= steps * step * (1 + 1e-4) + 1e-6).all()


@pytest.mark.parametrize("bits", [1, 2])
def test_random_rounding_is_unbiased_over_10000_draws(defended, bits):
    g = torch.tensor([1.0, -2.0, 0.3, -0.45])
    draws = defended(Quantize(bits=bits, rounding="stochastic"), {"w": g.expand(10_000, 4)}, range(10_000))["w"]
    torch.testing.assert_close(draws.mean(0), g, rtol=0, atol=4 * 1.5 / 100)


def test_the_seed_decides_random_rounding_and_a_trial_is_the_same_alone(defended):
    defense = Quantize(bits=2, rounding="stochastic")
    one, again, other = (defended(defense, TENSORS, seeds)["w"] for seeds in (range(3), range(3), range(3, 6)))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    alone = defended(defense, {"w": TENSORS["w"][2:]}, (2,))["w"]
    assert torch.equal(alone[0], one[2])


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_a_tensor_of_one_value_stays(defended, rounding):
    constant = {"w": torch.full((2, 5), 0.1)}
    assert torch.equal(defended(Quantize(rounding=rounding), constant, range(2))["w"], constant["w"])


def test_it_costs_so_many_bits_per_entry_and_the_range():
    shapes = {n: t.shape[1:] for n, t in TENSORS.items()}
    assert Quantize(bits=3).bytes_up(shapes) == 24 + 4 + 1 + 3 * 8
    assert Quantize(bits=3).bytes_up(shapes, number_bytes=2) == 24 + 4 + 1 + 3 * 4


@pytest.mark.parametrize("bits", [0, 17])
def test_bits_outside_1_to_16_are_refused(bits):
    with pytest.raises(BadInput, match="quantize: bits must be at least 1 and at most 16"):
        Quantize(bits=bits)


@pytest.mark.parametrize("attack", [DLG(), InvertingGradients()], ids=lambda a: a.name)
def test_the_attacker_who_knows_asks_for_the_cells_only(scene, attack):
    defense = Quantize(bits=3, rounding="stochastic")
    assert defense.ways(attack) == ("",)
    made = scene(defense)
    posed = made.posed(attack, Known(defense))
    assert posed.compression == Levels(bits=3, rounding="stochastic")
    assert posed.variation > made.posed(attack).variation


def test_a_first_layer_is_fitted_to_all_rows_and_a_floor_has_nothing_to_know(first_layer):
    known = first_layer(Quantize())
    assert (known.combine, known.match_nonzero) == ("least-squares", False)
    assert Quantize().ways(RandomGuess()) == ()


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_knowing_it_helps(attacked, rounding):
    defense, attack = Quantize(bits=2, rounding=rounding), DLG(steps=5, restarts=1, labels="infer")
    (known,) = informed_by(attack, (defense,))
    plain, adaptive = (attacked(defense, attack, "lenet-dlg:filters=6", k) for k in ((), known))
    assert adaptive.mean() > plain.mean() + 2


def test_fitting_all_rows_averages_the_rounding(attacked):
    defense = Quantize(bits=4)
    plain, fitted = (attacked(defense, Linear(), "mlp:hidden=32", k).mean() for k in ((), (Known(defense),)))
    assert fitted > plain - 0.5


def test_a_cell_by_hand():
    sent = torch.tensor([[0.0, 1.0, 3.0]])
    low, high = Levels(2, "nearest").cell(sent)
    assert low.tolist() == [[0, 0.5, 2.5]]
    assert high.tolist() == [[0.5, 1.5, 3]]  # never outside the ends


def test_the_distance_is_zero_in_the_cell_and_grows_outside():
    sent = {"w": torch.tensor([[0.0, 1.0, 3.0]]).expand(4, 3)}
    guesses = torch.tensor([[0.5, 0.5, 2.5], [0.0, 1.5, 3.0], [0.0, 1.75, 3.0], [-1.0, 2.5, 5.0]])
    measured = compressed_distance(Levels(2, "nearest"), sent, "l2")
    assert measured({"w": guesses}).tolist() == [0, 0, 0.0625, 1 + 1 + 4]


def test_after_random_rounding_a_tensor_is_measured_in_units_of_its_step():
    sent = {"w": torch.tensor([[0.0, 2.0, 6.0]]), "b": torch.tensor([[0.0, 30.0]]), "one": torch.tensor([[5.0]])}
    guess = {"w": torch.tensor([[0.0, 3.0, 6.0]]), "b": torch.tensor([[0.0, 35.0]]), "one": torch.tensor([[5.5]])}
    measured = compressed_distance(Levels(2, "stochastic"), sent, "l2")
    assert measured(guess).item() == pytest.approx(0.25 + 0.25 + 0.25)  # a tensor of one value is exact

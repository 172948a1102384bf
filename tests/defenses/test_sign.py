"""Signs and one number: what is sent, what it costs, and that it still says a lot."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.defenses.sign import Sign, Signs
from leakgauge.errors import BadInput
from leakgauge.matching.compression import compressed_distance
from leakgauge.setup.plan import informed_by
from leakgauge.types import Known

TENSORS = {
    "w": torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0)),
    "b": torch.randn(3, 10, generator=torch.Generator().manual_seed(1)),
    "scalar": torch.tensor([-2.0, 0.5, 0.0]),
}


def test_by_hand(defended):
    tensor = {"w": torch.tensor([[3.0, -1.0, 0.0, -4.0]])}
    assert defended(Sign(), tensor)["w"].tolist() == [[2, -2, 2, -2]]
    assert defended(Sign(scale="none"), tensor)["w"].tolist() == [[1, -1, 1, -1]]


def test_one_magnitude_per_tensor_and_trial_and_it_is_the_mean(defended):
    shared = defended(Sign(), TENSORS, range(3))
    for name in ("w", "b"):
        for t in range(3):
            torch.testing.assert_close(shared[name][t].abs(), TENSORS[name][t].abs().mean().expand_as(shared[name][t]))
            assert torch.equal(shared[name][t].sign(), TENSORS[name][t].sign())
    assert shared["scalar"].tolist() == [-2, 0.5, 0]


def test_the_mean_is_the_nearest_scale(defended):
    row = TENSORS["b"][0]
    errors = {k: ((k * defended(Sign(), TENSORS, range(3))["b"][0] - row) ** 2).sum() for k in (0.9, 1.0, 1.1)}
    assert min(errors, key=errors.get) == 1.0


def test_a_tensor_of_zeros_stays_zero(defended):
    assert (defended(Sign(), {"w": torch.zeros(1, 5)})["w"] == 0).all()


@pytest.mark.parametrize(("scale", "bytes_up"), [("mean", 8 + 2 + 1 + 3 * 4), ("none", 8 + 2 + 1)])
def test_it_costs_a_bit_per_entry_and_a_number_per_tensor(scale, bytes_up):
    assert Sign(scale=scale).bytes_up({n: t.shape[1:] for n, t in TENSORS.items()}) == bytes_up


def test_an_unknown_scale_is_refused():
    with pytest.raises(BadInput, match="sign: scale must be one of mean, none"):
        Sign(scale="median")


@pytest.mark.parametrize("attack", [DLG(), InvertingGradients()], ids=lambda a: a.name)
def test_the_attacker_who_knows_asks_for_the_signs_only(scene, attack):
    defense = Sign(scale="none")
    assert defense.ways(attack) == ("",)
    assert scene(defense).posed(attack, Known(defense)).compression == Signs(scale="none")


def test_a_first_layer_is_fitted_to_all_rows_and_a_floor_has_nothing_to_know(first_layer):
    known = first_layer(Sign())
    assert (known.combine, known.match_nonzero) == ("least-squares", False)
    assert Sign().ways(RandomGuess()) == ()


@pytest.mark.parametrize("scale", ["mean", "none"])
def test_knowing_it_helps(attacked, scale):
    defense, attack = Sign(scale=scale), DLG(steps=5, restarts=1, labels="infer")
    (known,) = informed_by(attack, (defense,))
    plain, adaptive = (attacked(defense, attack, "lenet-dlg:filters=6", k) for k in ((), known))
    assert adaptive.mean() > plain.mean() + 2


def test_it_promises_nothing():
    assert Sign().guarantee() is None


def test_wrong_signs_cost_what_they_weigh_in_units_of_the_mean():
    sent = {"w": torch.tensor([[2.0, -2.0, 2.0, -2.0]]).expand(2, 4)}
    guesses = {"w": torch.tensor([[1.0, -2.0, 3.0, -2.0], [-1.0, -2.0, 3.0, -2.0]])}
    assert compressed_distance(Signs("mean"), sent, "l2")(guesses).tolist() == [0, 0.25]
    halved = {"w": guesses["w"] / 2}
    assert compressed_distance(Signs("mean"), sent, "l2")(halved).tolist() == [
        0.25,
        0.5,
    ]  # (1/2)^2: the size is one entry more
    assert compressed_distance(Signs("none"), sent, "l2")(halved).tolist() == [0, 0.25]


def test_no_gradient_at_all_does_not_satisfy_every_sign():
    sent = {"w": torch.ones(1, 4)}
    zero = {"w": torch.zeros(1, 4, requires_grad=True)}
    value = compressed_distance(Signs("mean"), sent, "l2")(zero)
    assert value.item() == 1
    assert torch.isfinite(torch.autograd.grad(value.sum(), zero["w"])[0]).all()

"""A random mask: exactly so many entries go, any of them, and the server's mean is unbiased."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.grnn import GRNN
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.defenses.random_mask import RandomMask
from leakgauge.errors import BadInput
from leakgauge.setup.plan import informed_by
from leakgauge.types import Known, SharedUpdate

TENSORS = {
    "w": torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0)),
    "b": torch.randn(3, 10, generator=torch.Generator().manual_seed(1)),
    "scalar": torch.tensor([-2.0, 0.5, 1.0]),
}


@pytest.mark.parametrize("share", [0.1, 0.29, 0.9, 1.0])
def test_exactly_the_floor_of_the_share_is_left_out_and_the_rest_is_exact(defended, share):
    shared = defended(RandomMask(share=share), TENSORS, range(3))
    for name, tensor in TENSORS.items():
        gone = shared[name] == 0
        assert (gone.reshape(3, -1).sum(1) == int(share * tensor[0].numel() + 1e-9)).all()
        assert torch.equal(shared[name][~gone], tensor[~gone])


def test_every_entry_is_left_out_equally_often(defended):
    shared = defended(RandomMask(share=0.7), {"w": torch.ones(4000, 10)}, range(4000))["w"]
    assert ((shared.mean(0) - 0.3).abs() < 4 * (0.3 * 0.7 / 4000) ** 0.5).all()


def test_the_servers_mean_is_unbiased_over_10000_clients(defended):
    g = torch.tensor([1.0, -2.0, 0.5])
    defense = RandomMask(share=0.5)  # one of three is left out
    sent = defended(defense, {"w": g.expand(10_000, 3)}, range(10_000))
    mean = defense.aggregate(SharedUpdate("gradient", sent)).tensors["w"]
    torch.testing.assert_close(mean[0], g, rtol=0, atol=4 * 1.5 / 100)


def test_each_client_has_a_mask_of_its_own_the_same_alone_and_among_others(defended):
    together = defended(RandomMask(), TENSORS, (3, 4, 5))
    alone = defended(RandomMask(), {n: t[2:] for n, t in TENSORS.items()}, (5,))
    assert all(torch.equal(alone[n][0], together[n][2]) for n in TENSORS)
    assert not torch.equal(together["w"][0] != 0, together["w"][1] != 0)


def test_zero_is_the_identity_and_has_no_adaptive_attack(defended):
    assert torch.equal(defended(RandomMask(share=0), TENSORS, range(3))["w"], TENSORS["w"])
    assert RandomMask(share=0).ways(DLG()) == ()
    mean = RandomMask(share=0).aggregate(SharedUpdate("gradient", TENSORS)).tensors["w"]
    torch.testing.assert_close(mean[0], TENSORS["w"].mean(0))


def test_an_empty_message_can_be_averaged():
    nothing = SharedUpdate("gradient", {"w": torch.zeros(2, 5)})
    assert (RandomMask(share=1).aggregate(nothing).tensors["w"] == 0).all()


def test_it_costs_what_is_sent_and_no_indices():
    assert RandomMask(share=0.9).bytes_up({n: t.shape[1:] for n, t in TENSORS.items()}) == 4 * (7 + 1 + 1)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(BadInput, match="random-mask: share must be at least 0 and at most 1"):
        RandomMask(share=share)


@pytest.mark.parametrize("attack", [DLG(labels="infer"), InvertingGradients()], ids=lambda a: a.name)
def test_the_attacker_who_knows_matches_what_was_sent_and_does_not_read_the_label(scene, attack):
    assert RandomMask().ways(attack) == ("",)
    made = scene(RandomMask())
    posed = made.posed(attack, Known(RandomMask()))
    assert posed.match_nonzero
    assert posed.variation > made.posed(attack).variation
    assert made.posed(attack).labels is not None
    assert posed.labels is None


def test_a_generator_makes_the_labels_itself(scene):
    posed = scene(RandomMask()).posed(GRNN(), Known(RandomMask()))
    assert (posed.match_nonzero, posed.variation) == (True, max(GRNN().tv, 3e-4))


def test_a_first_layer_is_fitted_to_what_was_sent_and_a_floor_has_nothing_to_know(first_layer):
    known = first_layer(RandomMask())
    assert (known.combine, known.match_nonzero) == ("least-squares", True)
    assert RandomMask().ways(RandomGuess()) == ()


def test_knowing_it_helps(attacked):
    defense, attack = RandomMask(share=0.8), DLG(steps=5, restarts=1)
    (known,) = informed_by(attack, (defense,))
    plain, adaptive = (attacked(defense, attack, "lenet-dlg:filters=6", k) for k in ((), known))
    assert adaptive.mean() > plain.mean() + 2

"""METHODS D2: exactly so many entries go, the smallest, and the zeros are visible to who looks."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.defenses.prune import Prune, drop_smallest
from leakgauge.errors import BadInput
from leakgauge.setup.plan import informed_by
from leakgauge.types import Known

TENSORS = {
    "w": torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0)),
    "b": 0.01 * torch.randn(3, 10, generator=torch.Generator().manual_seed(1)),
}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99, 1.0])
def test_exactly_the_floor_of_the_share_is_dropped_from_each_tensor(defended, share):
    shared = defended(Prune(share=share), TENSORS, range(3))
    for name, tensor in TENSORS.items():
        entries = tensor[0].numel()
        assert ((shared[name] == 0).flatten(1).sum(1) == int(share * entries)).all()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_exactly_the_floor_of_the_share_is_dropped_from_the_whole(defended, share):
    shared = defended(Prune(share=share, scope="global"), TENSORS, range(3))
    zeros = sum((t == 0).flatten(1).sum(1) for t in shared.values())
    assert (zeros == int(share * (63 + 10))).all()


def test_a_global_share_can_empty_a_tensor_and_a_share_per_tensor_cannot(defended):
    everywhere, each = (defended(Prune(share=0.5, scope=s), TENSORS, range(3)) for s in ("global", "tensor"))
    assert (everywhere["b"] == 0).all()
    assert ((each["b"] != 0).sum(1) == 5).all()


@pytest.mark.parametrize("scope", ["tensor", "global"])
def test_what_stays_is_unchanged_and_larger_than_what_went(defended, scope):
    shared = defended(Prune(share=0.6, scope=scope), TENSORS, range(3))
    for t in range(3):
        kept_least, dropped_most = [], []
        for name, tensor in TENSORS.items():
            kept = shared[name][t] != 0
            assert torch.equal(shared[name][t][kept], tensor[t][kept])
            kept_least.append(tensor[t][kept].abs().min().item() if kept.any() else float("inf"))
            dropped_most.append(tensor[t][~kept].abs().max().item())
        if scope == "global":
            assert max(dropped_most) <= min(kept_least)
        else:
            assert all(d <= k for d, k in zip(dropped_most, kept_least, strict=True))


def test_trials_are_pruned_apart(defended):
    together = defended(Prune(share=0.5, scope="global"), TENSORS, range(3))
    for t in range(3):
        alone = defended(Prune(share=0.5, scope="global"), {n: v[t : t + 1] for n, v in TENSORS.items()})
        assert all(torch.equal(alone[n][0], together[n][t]) for n in TENSORS)


def test_ties_fall_by_position_and_the_count_stays_exact():
    rows = torch.tensor([[1.0, -1.0, 1.0, -1.0, 2.0], [3.0, 3.0, 3.0, 3.0, 3.0]])
    assert drop_smallest(rows, 0.4).tolist() == [[0, 0, 1, -1, 2], [0, 0, 3, 3, 3]]


def test_zero_is_the_identity_and_has_no_adaptive_attack(defended):
    assert torch.equal(defended(Prune(share=0), TENSORS, range(3))["w"], TENSORS["w"])
    assert Prune(share=0).ways(DLG()) == ()


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(BadInput, match="prune: share must be at least 0 and at most 1"):
        Prune(share=share)


def test_an_unknown_scope_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'global'"):
        Prune(scope="globl")


def test_the_attacker_who_knows_matches_only_what_survived(scene, first_layer):
    assert Prune().ways(DLG()) == ("",)
    posed = scene(Prune()).posed(DLG(), Known(Prune()))
    assert posed.match_nonzero
    assert posed.variation == 1e-4
    known = first_layer(Prune())
    assert (known.combine, known.match_nonzero) == ("least-squares", True)
    assert Prune().ways(RandomGuess()) == ()


def test_adaptive_beats_plain_on_digits(attacked):
    defense, attack = Prune(share=0.9), DLG(steps=5, restarts=1)
    (known,) = informed_by(attack, (defense,))
    plain, adaptive = (attacked(defense, attack, "lenet-dlg:filters=6", k) for k in ((), known))
    assert adaptive.mean() > plain.mean() + 2


@pytest.mark.parametrize(
    ("share", "scope", "bytes_up"),
    [(0.9, "tensor", 8 * (7 + 1)), (0.9, "global", 8 * 8), (0.1, "tensor", 4 * 73), (0.5, "tensor", 4 * 73)],
)
def test_it_costs_values_and_indices_or_all_values_where_that_is_less(share, scope, bytes_up):
    shapes = {n: t.shape[1:] for n, t in TENSORS.items()}
    assert Prune(share=share, scope=scope).bytes_up(shapes) == bytes_up


def test_the_attacked_gradient_is_the_pruned_one(attacked):
    clean, pruned = (attacked(Prune(share=s), Linear(), "mlp:hidden=32").mean() for s in (0.0, 0.97))
    assert clean > pruned + 10

"""Low rank: what is sent has it, small tensors are whole, and one sample's dense layer loses nothing."""

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.defenses.low_rank import LowRank, LowRankMatrices
from leakgauge.errors import BadInput
from leakgauge.matching.compression import compressed_distance
from leakgauge.setup.plan import informed_by
from leakgauge.types import Known

TENSORS = {
    "w": torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0)),
    "k": torch.randn(3, 6, 2, 3, 3, generator=torch.Generator().manual_seed(1)),
    "b": torch.randn(3, 10, generator=torch.Generator().manual_seed(2)),
    "scalar": torch.randn(3, generator=torch.Generator().manual_seed(3)),
}


@pytest.mark.parametrize("iterations", [0, 1, 3])
@pytest.mark.parametrize("rank", [1, 2])
def test_matrices_and_kernels_have_the_rank_and_vectors_are_whole(defended, rank, iterations):
    shared = defended(LowRank(rank=rank, iterations=iterations), TENSORS, range(3))
    for name in ("w", "k"):
        values = torch.linalg.svdvals(shared[name].flatten(2))
        assert (values[:, rank - 1] > 0.1).all()
        assert (values[:, rank:] < 1e-5).all()
    assert torch.equal(shared["b"], TENSORS["b"])
    assert torch.equal(shared["scalar"], TENSORS["scalar"])


def test_a_matrix_that_is_shorter_as_it_is_is_sent_as_it_is(defended):
    shared = defended(LowRank(rank=4), TENSORS, range(3))  # 4 (7 + 9) > 63, but 4 (6 + 18) < 108
    assert torch.equal(shared["w"], TENSORS["w"])
    assert not torch.equal(shared["k"], TENSORS["k"])


@pytest.mark.parametrize("iterations", [0, 1])
def test_one_samples_outer_product_loses_nothing(defended, iterations):
    one = {"w": torch.einsum("ti,tj->tij", TENSORS["w"][:, :, 0], TENSORS["b"])}
    shared = defended(LowRank(rank=1, iterations=iterations), one, range(3))
    torch.testing.assert_close(shared["w"], one["w"])


def test_power_iteration_starts_from_the_trials_own_seed(defended):
    defense = LowRank(iterations=1)
    one, again, other = (defended(defense, TENSORS, seeds)["w"] for seeds in (range(3), range(3), range(3, 6)))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)
    torch.testing.assert_close(defended(defense, {"w": TENSORS["w"][1:2]}, (1,))["w"][0], one[1])


def test_it_costs_two_thin_factors():
    shapes = {n: t.shape[1:] for n, t in TENSORS.items()}
    assert LowRank(rank=2).bytes_up(shapes) == 4 * (2 * 16 + 2 * 24 + 10 + 1)
    assert LowRank(rank=4).bytes_up(shapes) == 4 * (63 + 4 * 24 + 10 + 1)


@pytest.mark.parametrize(("field", "value"), [("rank", 0), ("iterations", -1)])
def test_fields_are_checked(field, value):
    with pytest.raises(BadInput, match=f"low-rank: {field}"):
        LowRank(**{field: value})


@pytest.mark.parametrize("attack", [DLG(), InvertingGradients()], ids=lambda a: a.name)
def test_the_attacker_who_knows_compares_what_the_factors_say(scene, attack):
    defense = LowRank(rank=3, iterations=2)
    assert defense.ways(attack) == ("",)
    assert scene(defense).posed(attack, Known(defense)).compression == LowRankMatrices(rank=3, exact=False)
    best = LowRank(rank=3)
    assert scene(best).posed(attack, Known(best)).compression == LowRankMatrices(rank=3, exact=True)


def test_a_first_layer_is_fitted_to_all_rows_and_a_floor_has_nothing_to_know(first_layer):
    known = first_layer(LowRank())
    assert (known.combine, known.match_nonzero) == ("least-squares", False)
    assert LowRank().ways(RandomGuess()) == ()


@pytest.mark.parametrize("iterations", [0, 1])
def test_knowing_it_helps(attacked, iterations):
    defense, attack = LowRank(rank=1, iterations=iterations), DLG(steps=5, restarts=1, labels="infer")
    (known,) = informed_by(attack, (defense,))
    plain, adaptive = (attacked(defense, attack, "lenet-dlg:filters=6", k) for k in ((), known))
    assert adaptive.mean() > plain.mean() + 2


def test_a_first_dense_layer_is_no_better_hidden_than_without_it(attacked):
    assert attacked(LowRank(rank=1), Linear(), "mlp:hidden=32").mean() > 60


def test_only_what_no_factor_says_is_free():
    matrix = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    sent = {"w": values[:, :1, None] * left[..., :1] @ right[:, :1]}
    measured = compressed_distance(LowRankMatrices(1, exact=True), sent, "l2")
    free = left[..., 1:2] @ right[:, 3:4]
    assert measured({"w": sent["w"] + 5 * free}).item() < 1e-20
    for bound in (left[..., :1] @ right[:, 3:4], left[..., 2:3] @ right[:, :1], left[..., :1] @ right[:, :1]):
        assert measured({"w": sent["w"] + bound}).item() == pytest.approx(1)
    columns_only = compressed_distance(LowRankMatrices(1, exact=False), sent, "l2")
    assert columns_only({"w": sent["w"] + left[..., 2:3] @ right[:, :1]}).item() < 1e-20
    assert columns_only({"w": sent["w"] + left[..., :1] @ right[:, 3:4]}).item() == pytest.approx(1)


def test_a_message_of_lower_rank_is_the_whole_matrix():
    one = torch.einsum("i,j->ij", torch.arange(1.0, 7), torch.arange(1.0, 9))[None].double()
    other = one + torch.einsum("i,j->ij", torch.eye(6)[0] - torch.eye(6)[1] / 2, torch.eye(8)[2] - torch.eye(8)[5] / 2)
    assert compressed_distance(LowRankMatrices(2, exact=True), {"w": one}, "l2")({"w": other}).item() > 1

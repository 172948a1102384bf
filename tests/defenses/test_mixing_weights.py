"""Mixing, and why it is not privacy."""

import pytest
import torch

from leakgauge.defenses.mixing import FUSINGS, along_clients, check_fusing, evenly_spread, fusing_weights
from leakgauge.errors import BadInput
from leakgauge.types import SharedUpdate

UPDATES = SharedUpdate(
    "weight_delta",
    {"w": torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0))},
    {"mean": torch.arange(4.0)[:, None], "count": torch.tensor([7, 7, 7, 7])},
)


def drawn(fusing: str, share: float = 0.5, clients: int = 4, seed: int = 0) -> torch.Tensor:
    return fusing_weights(clients, share, fusing, torch.Generator().manual_seed(seed))


def test_a_mixture_is_mostly_its_own_update():
    matrix = drawn("fixed", 0.9)
    torch.testing.assert_close(matrix.sum(1), torch.ones(4, dtype=torch.float64))
    out = along_clients(UPDATES, matrix[None])
    w = UPDATES.tensors["w"]
    torch.testing.assert_close(out.tensors["w"][1], 0.9 * w[1] + 0.1 / 3 * (w[0] + w[2] + w[3]))
    torch.testing.assert_close(out.buffers["mean"][0, 0], torch.tensor(0.1 / 3 * 6))
    assert torch.equal(out.buffers["count"], UPDATES.buffers["count"])


@pytest.mark.parametrize("fusing", FUSINGS)
def test_rows_add_up_to_one_and_the_own_share_is_the_largest_of_its_row(fusing):
    for seed in range(20):
        weights = drawn(fusing, seed=seed)
        torch.testing.assert_close(weights.sum(1), torch.ones(4, dtype=torch.float64))
        assert (weights >= 0).all()
        assert torch.equal(weights.argmax(1), torch.arange(4))
        assert (weights.diagonal() >= 0.5).all()


def test_random_ones_have_the_form_of_the_equation_and_free_ones_do_not():
    random, free = drawn("random"), drawn("free")
    torch.testing.assert_close(random, evenly_spread(random.diagonal()))
    assert len(set(random.diagonal().tolist())) == 4
    assert (free - evenly_spread(free.diagonal())).abs().max() > 0.01
    assert not torch.equal(random, drawn("random", seed=1))
    torch.testing.assert_close(drawn("fixed", 0.9).diagonal(), torch.full((4,), 0.9, dtype=torch.float64))


def test_a_drawn_share_is_at_least_a_half():
    check_fusing("mix", 0.2, "fixed")
    for fusing in ("random", "free"):
        check_fusing("mix", 0.5, fusing)
        with pytest.raises(BadInput, match=r"mix must be at least 0\.5.*got 0\.2; raise it, or set fusing=fixed"):
            check_fusing("mix", 0.2, fusing)


@pytest.mark.parametrize("fusing", FUSINGS)
def test_who_sees_all_mixtures_and_knows_the_weights_has_all_updates(fusing):
    weights = drawn(fusing)
    solved = along_clients(along_clients(UPDATES, weights[None]), torch.linalg.inv(weights)[None])
    torch.testing.assert_close(solved.tensors["w"], UPDATES.tensors["w"])


def test_groups_are_mixed_apart():
    both = SharedUpdate("gradient", {"w": torch.arange(8.0).view(4, 2)}, {"n": torch.tensor([1, 2, 3, 4])})
    weights = torch.stack([drawn("random", clients=2, seed=s) for s in (1, 2)])
    out = along_clients(both, weights)
    for group in (0, 1):
        alone = along_clients(both.take([2 * group, 2 * group + 1]), weights[[group]])
        torch.testing.assert_close(out.tensors["w"][2 * group : 2 * group + 2], alone.tensors["w"])
    firsts = along_clients(both, weights[:, :1])
    assert torch.equal(firsts.tensors["w"], out.tensors["w"][::2])
    assert firsts.buffers["n"].tolist() == [1, 3]


def test_one_client_changes_nothing():
    alone = UPDATES.take([2])
    for fusing in FUSINGS:
        assert torch.equal(along_clients(alone, drawn(fusing, clients=1)[None]).tensors["w"], alone.tensors["w"])

"""METHODS G13: slices partition the update, each is chosen with probability d / s; everyone cuts alike."""

import heapq

import pytest
import torch
from torch import nn

from leakgauge.defenses.sensitivity import Sensitivity
from leakgauge.defenses.sensitivity.slicing import flattened, packed, reservoir, swept, unflattened
from leakgauge.errors import BadInput, NotApplicable

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, 10))


@pytest.mark.parametrize(
    "rule",
    [Sensitivity(), Sensitivity(packing="sweep"), Sensitivity(packing="size"), Sensitivity(as_released=True)],
    ids=repr,
)
def test_slices_cover_every_entry_once(net, rule):
    cut = rule.cut(net, SHAPE)
    assert len(cut.of_entry) == sum(p.numel() for p in net.parameters())
    assert cut.sizes.min() > 0
    one_each = torch.stack([cut.touched(torch.tensor([[s]]))[0] for s in range(cut.slices)]).sum(0)
    if not cut.overlap:
        assert (one_each == 1).all()
    else:  # the released code's bounds share an entry
        assert one_each.sum() == len(cut.of_entry) + cut.slices - 1


def test_balanced_slices_have_equal_risk_and_a_part_of_every_tensor(net):
    cut = Sensitivity(slices=4).cut(net, SHAPE)
    sizes = [p.numel() for p in net.parameters()]
    for part in torch.split(cut.of_entry, sizes):
        counts = torch.bincount(part, minlength=4)
        if len(part) >= 36:
            assert counts.max() - counts.min() <= 12


def test_packing_equals_one_block_at_a_time():
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        share, blocks = torch.rand(5, generator=g, dtype=torch.float64), [7, 1, 12, 3, 30]
        loads = [(0.0, s) for s in range(4)]
        heapq.heapify(loads)
        for tensor in torch.argsort(share, descending=True).tolist():
            for _ in range(blocks[tensor]):
                load, s = heapq.heappop(loads)
                heapq.heappush(loads, (load + float(share[tensor]), s))
        mine = packed(share, blocks, 4)
        risk = torch.zeros(4, dtype=torch.float64).index_add(0, mine, share.repeat_interleave(torch.tensor(blocks)))
        torch.testing.assert_close(risk.sort().values, torch.tensor(sorted(load for load, _ in loads)).double())


def test_blocks_without_risk_even_out_the_sizes():
    mine = packed(torch.tensor([0.0, 1.0], dtype=torch.float64), [40, 4], 4)
    assert torch.bincount(mine).tolist() == [11] * 4


def test_a_sweep_goes_left_to_right_and_the_last_has_the_rest():
    share = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert swept(share, [6, 3], 3).tolist() == [0, 1, 2, 2, 2, 2, 2, 2, 2]  # two blocks would reach the mean
    assert swept(torch.tensor([9.0, 0.1]), [1, 5], 3).tolist() == [0, 1, 1, 1, 1, 2]


def test_slices_by_size_go_left_to_right_and_are_of_one_size(net):
    cut = Sensitivity(slices=3, packing="size").cut(net, SHAPE)
    assert (cut.of_entry.diff() >= 0).all()
    assert cut.sizes.max() - cut.sizes.min() <= 2  # a block: the greatest common divisor of 36, 4, 1440 and 10


def test_each_kind_of_root_samples_gives_another_risk(net):
    kinds = ({}, {"roots": "real", "root_data": "digits"}, {"roots": "distilled", "root_data": "digits"})
    risks = [tuple(Sensitivity(**kind).risk(net, SHAPE).mean.values()) for kind in kinds]
    assert len(set(risks)) == 3


def test_real_roots_cut_other_slices_by_a_sweep(net):
    made_up, real = Sensitivity(packing="sweep"), Sensitivity(packing="sweep", roots="real", root_data="digits")
    assert not torch.equal(made_up.cut(net, SHAPE).of_entry, real.cut(net, SHAPE).of_entry)


@pytest.mark.parametrize(("field", "value"), [("probes", -1), ("bias", 1.5), ("bias", -0.1), ("roots", "stolen")])
def test_root_fields_out_of_range_are_refused(field, value):
    with pytest.raises(BadInput, match=f"sensitivity: {field} must be"):
        Sensitivity(**{field: value})


def test_more_slices_than_blocks_are_refused(net):
    with pytest.raises(BadInput, match="slices must be at most"):
        Sensitivity(slices=5000).cut(net, SHAPE)


def test_the_reservoir_takes_every_slice_with_probability_d_over_s():
    """Chi-square over 20,000 clients; 9 degrees of freedom, 27.9 is the 99.9 % point."""
    chosen = reservoir(range(20_000), 10, 3)
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    counts = torch.bincount(chosen.flatten(), minlength=10).double()
    expected = 20_000 * 3 / 10
    assert ((counts - expected) ** 2 / (expected * 0.7)).sum() < 27.9


def test_a_client_chooses_the_same_alone_and_among_others():
    together = reservoir((3, 4, 5), 10, 3)
    assert torch.equal(reservoir((5,), 10, 3)[0], together[2])


def test_an_open_choice_is_the_same_for_everyone():
    chosen = Sensitivity(secret=False).chosen(range(5))
    assert (chosen == chosen[0]).all()
    assert not (Sensitivity().chosen(range(5)) == chosen[0]).all()


def test_everybody_cuts_alike(net):
    first, second = Sensitivity().cut(net, SHAPE), Sensitivity().cut(net, SHAPE)
    assert torch.equal(first.of_entry, second.of_entry)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(NotApplicable, match="trainable"):
        Sensitivity().cut(nn.Flatten(), SHAPE)


def test_flat_rows_come_back_as_tensors():
    tensors = {"a": torch.arange(12.0).reshape(2, 3, 2), "b": torch.ones(2, 4)}
    back = unflattened(flattened(tensors), tensors)
    assert all(torch.equal(back[n], t) for n, t in tensors.items())

"""The type that numbers went through, by the numbers alone."""

import pytest
import torch

from leakgauge.matching.shared_precision import shared_precision


def numbers(scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(50, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("held", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e-5])  # the smaller ones are subnormal in float16
def test_sixteen_bits_are_seen_in_wider_tensors(held, shared, scale):
    found = shared_precision([numbers(scale).to(shared).to(held), numbers(scale)[:3].to(shared).to(held)])
    assert found.is_coarse
    assert found.relative == torch.finfo(shared).eps
    rounded = numbers(scale).to(shared).double()
    allowed = torch.maximum(found.relative * numbers(scale).abs(), torch.tensor(found.spacing)) / 2
    assert ((rounded - numbers(scale)).abs() <= 1.01 * allowed).all()


@pytest.mark.parametrize("held", [torch.float16, torch.float32, torch.float64])
def test_numbers_of_full_length_are_as_fine_as_their_type(held):
    found = shared_precision([numbers().to(held)])
    assert found.relative == torch.finfo(held).eps
    assert found.is_coarse is (held == torch.float16)


def test_one_tensor_of_full_length_is_enough():
    assert not shared_precision([numbers().bfloat16().float(), numbers().float()]).is_coarse


def test_zeros_and_a_few_round_numbers_say_nothing():
    assert not shared_precision([torch.zeros(100), torch.ones(5)]).is_coarse

"""Samples for all trials at once, with shared weights or a trial's own; what does not fit is refused."""

import dataclasses

import pytest
import torch

from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.generators.generator import Generator, fingerprints, fitted

DIGITS = load("digits").spec


@pytest.fixture
def generator(decoder) -> Generator:
    return Generator(decoder, 6, (1, 8, 8), 10, "a test")


def test_rows_and_samples_keep_their_places(generator, decoder):
    z, y = torch.randn(3, 2, 6), torch.tensor([[0, 1], [2, 3], [4, 5]])
    made = generator.samples(z, y)
    assert made.shape == (3, 2, 1, 8, 8)
    torch.testing.assert_close(made[1, 1], decoder(z[1, 1:], y[1, 1:])[0])


def test_own_weights_equal_a_generator_with_those_weights(generator, decoder):
    z, y = torch.randn(2, 1, 6), torch.tensor([[3], [4]])
    shared = {n: p.expand(2, *p.shape) for n, p in decoder.named_parameters()}
    torch.testing.assert_close(generator.own_samples(shared, z, y), generator.samples(z, y), rtol=1e-4, atol=1e-5)
    moved = {n: p + torch.tensor([0.0, 0.1]).view(2, *[1] * (p.dim() - 1)) for n, p in shared.items()}
    made = generator.own_samples(moved, z, y)
    torch.testing.assert_close(made[0], generator.samples(z, y)[0], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(made[1], generator.samples(z, y)[1])


def test_larger_pictures_are_averaged_down(generator):
    small = dataclasses.replace(DIGITS, shape=(1, 4, 4))
    z, y = torch.randn(1, 1, 6), torch.tensor([[1]])
    made = fitted(generator, small, "g").samples(z, y)
    whole = generator.samples(z, y)
    torch.testing.assert_close(made[0, 0, 0, 0, 0], whole[0, 0, 0, :2, :2].mean())
    assert fitted(generator, DIGITS, "g") is generator


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (1, 16, 16)}, "1x16x16 or larger.*got 1x8x8"),
        ({"shape": (3, 8, 8)}, "3x8x8"),
        ({"shape": (30,), "kind": "tabular"}, "30 or larger"),
        ({"classes": 11}, "11 classes.*got one for 10"),
    ],
)
def test_another_kind_of_data_is_refused(generator, change, message):
    with pytest.raises(BadInput, match=message):
        fitted(generator, dataclasses.replace(DIGITS, **change), "generator 'x'")


def test_a_generator_without_labels_fits_any_number_of_classes(generator):
    free = dataclasses.replace(generator, classes=0)
    assert fitted(free, dataclasses.replace(DIGITS, classes=77), "g") is free


def test_precision_and_bytes_do_not_matter_and_contents_do():
    bytes_ = torch.randint(0, 256, (5, 1, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    single, double = bytes_.float() / 255, bytes_.double() / 255
    assert torch.equal(fingerprints(single), fingerprints(double))
    assert len(set(fingerprints(single).tolist())) == 5
    changed = single.clone()
    changed[2, 0, 0, 0] = (changed[2, 0, 0, 0] + 0.5) % 1
    same = fingerprints(changed) == fingerprints(single)
    assert same.tolist() == [True, True, False, True, True]

"""The decoder draws pictures of any size, each for itself, and its mirror reads them."""

import pytest
import torch

from leakgauge.generators.architecture import Architecture, Decoder, Encoder


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 48), (3, 5, 7), (2, 30, 17)])
def test_pictures_have_the_datas_shape_and_range(shape):
    plan = Architecture(shape, 3, latent=4, width=4)
    latents, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    made = Decoder(plan)(latents, labels)
    assert made.shape == (5, *shape)
    assert made.min() >= 0
    assert made.max() <= 1
    mean, spread = Encoder(plan)(made, labels)
    assert mean.shape == spread.shape == (5, 4)


def test_a_picture_does_not_depend_on_its_neighbours(decoder):
    latents, labels = torch.randn(3, 6), torch.tensor([1, 2, 3])
    together = decoder(latents, labels)
    for i in range(3):
        torch.testing.assert_close(decoder(latents[[i]], labels[[i]]), together[[i]])


def test_label_and_latent_both_matter(decoder):
    z = torch.randn(2, 6)
    one, other = decoder(z, torch.tensor([1, 1])), decoder(z, torch.tensor([2, 2]))
    assert not torch.allclose(one, other)
    assert not torch.allclose(one[0], one[1])

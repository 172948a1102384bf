"""Means and principal components of public samples: equal to scikit-learn's, whatever labels are missing."""

import torch
from sklearn.decomposition import PCA

from leakgauge.data import load, public_batch
from leakgauge.generators.principal import principal_generator
from leakgauge.types import Batch


def test_its_directions_are_those_of_another_library():
    public = public_batch(load("digits", "train"), 200, seed=0)
    data = load("digits").spec
    found = principal_generator(Batch(public.inputs, torch.zeros_like(public.labels)), data)  # one label: one mean
    known = PCA(found.latent, svd_solver="full").fit(public.inputs[0].flatten(1).double().numpy())
    sizes = found.net.directions.norm(dim=1).double()
    torch.testing.assert_close(sizes, torch.from_numpy(known.explained_variance_).sqrt(), rtol=1e-4, atol=1e-5)
    mean = found.net(torch.zeros(1, found.latent), torch.tensor([0]))
    torch.testing.assert_close(mean[0], public.inputs[0].mean(0))


def test_each_label_has_its_mean_and_a_missing_one_that_of_all():
    public = public_batch(load("digits", "train"), 64, seed=0)
    kept = public.labels[0] != 3
    some = Batch(public.inputs[:, kept], public.labels[:, kept])
    net = principal_generator(some, load("digits").spec).net
    torch.testing.assert_close(net.mean[3], some.inputs[0].flatten(1).mean(0))
    torch.testing.assert_close(net.mean[5], some.inputs[0][some.labels[0] == 5].flatten(1).mean(0))


def test_two_samples_are_enough():
    public = public_batch(load("digits", "train"), 2, seed=0)
    found = principal_generator(public, load("digits").spec)
    assert found.latent == 1
    assert torch.isfinite(found.samples(torch.ones(1, 1, 1), torch.tensor([[0]]))).all()

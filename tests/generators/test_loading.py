"""Generators by name; what a file has seen is compared with the victims; the public one equals scikit-learn's."""

import dataclasses

import pytest
import torch
from sklearn.decomposition import PCA

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.ggl import GGL
from leakgauge.data import load, public_batch
from leakgauge.errors import BadInput, MissingExtra, NotApplicable
from leakgauge.generators.loading import doubts_about, generator_content, load_generator, named_by, principal_generator
from leakgauge.types import Batch

DIGITS = load("digits").spec


def test_public_is_made_from_the_public_samples_alone():
    public = public_batch(load("digits", "train"), 32, seed=0)
    assert load_generator("public", DIGITS, public).shape == (1, 8, 8)
    with pytest.raises(NotApplicable, match="train generator --data digits"):
        load_generator("public", DIGITS, None)


def test_a_file_is_held_against_the_data(saved):
    assert load_generator(str(saved), DIGITS).latent == 6
    with pytest.raises(BadInput, match="16x16"):
        load_generator(str(saved), dataclasses.replace(DIGITS, shape=(1, 16, 16)))


def test_only_attacks_with_a_decoy_name_a_generator():
    assert named_by(GGL(generator="x.safetensors")) == "x.safetensors"
    assert named_by(DLG()) is None


def test_a_changed_file_has_another_content(saved):
    before = generator_content(str(saved))
    saved.write_bytes(saved.read_bytes() + b" ")
    assert before
    assert generator_content(str(saved)) != before
    assert generator_content("public") == generator_content("nowhere") == ""


def test_victims_that_the_generator_has_seen_raise_a_flag(saved):
    victims, public = load("digits", "test").take([0, 1])[0], load("digits", "train").take([7])[0]
    assert doubts_about(str(saved), victims) == ()
    assert doubts_about(str(saved), torch.cat((victims, public))) == ("generator-saw-victims",)
    assert doubts_about("public", public) == ()


def test_who_does_not_say_what_it_has_seen_is_doubted(saved, monkeypatch):
    from leakgauge.generators import loading

    read = loading.read_generator
    monkeypatch.setattr(loading, "read_generator", lambda path: dataclasses.replace(read(path), seen=None))
    assert doubts_about(str(saved), torch.zeros(1, 1, 8, 8)) == ("generator-data-unknown",)


def test_faces_that_are_not_here_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKGAUGE_DATA", str(tmp_path))
    with pytest.raises(MissingExtra, match="data fetch dcgan-faces"):
        load_generator("dcgan-faces", dataclasses.replace(DIGITS, shape=(3, 64, 64)))


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

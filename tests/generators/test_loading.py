"""Generators by name; what a file has seen is held against the victims."""

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.ggl import GGL
from leakgauge.data import load, public_batch
from leakgauge.errors import BadInput, MissingExtra, NotApplicable
from leakgauge.generators.loading import doubts_about, generator_content, load_generator, named_by

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

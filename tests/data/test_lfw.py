import numpy as np
import pytest
from PIL import Image

from leakgauge.data import load
from leakgauge.errors import BadInput


def write_person(folder, name, pictures, grey=100, size=250):
    (folder / name).mkdir(parents=True)
    for i in range(pictures):
        Image.new("RGB", (size, size), (grey, i, 0)).save(folder / name / f"{name}_{i:04d}.jpg", quality=100)


def test_people_with_14_pictures_or_more_are_the_classes_and_one_in_four_is_a_victim(tmp_path):
    write_person(tmp_path / "lfw", "Zoe", 16, grey=200)
    write_person(tmp_path / "lfw", "Ann", 14, grey=50)
    write_person(tmp_path / "lfw", "Rare", 13)
    train, test = load("lfw", "train", tmp_path), load("lfw", "test", tmp_path)
    assert train.spec.classes == 2
    assert test.labels.tolist() == [0] * 4 + [1] * 4
    assert train.labels.tolist() == [0] * 10 + [1] * 12
    assert abs(int(test.inputs[0, 0, 0, 0]) - 50) < 3
    assert test.inputs[:4, 1, 0, 0].tolist() == pytest.approx([0, 4, 8, 12], abs=2)


def test_the_middle_128_pixels_become_32(tmp_path):
    picture = np.zeros((250, 250, 3), dtype=np.uint8)
    picture[61:189, 61:189] = 255
    for i in range(14):
        (tmp_path / "lfw" / "Ann").mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "lfw" / "Ann" / f"{i}.jpg", quality=100)
    inputs = load("lfw", "test", tmp_path).inputs
    assert inputs.shape[1:] == (3, 32, 32)
    assert int(inputs.min()) > 200


def test_a_size_behind_the_name_comes_from_the_128_pixel_crop(tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (250, 250, 3), dtype=np.uint8)
    (tmp_path / "lfw" / "Ann").mkdir(parents=True)
    for i in range(14):
        Image.fromarray(picture).save(tmp_path / "lfw" / "Ann" / f"{i}.jpg", quality=100)
    with Image.open(tmp_path / "lfw" / "Ann" / "0.jpg") as stored:
        crop = np.asarray(stored)[61:189, 61:189]
    whole = load("lfw:size=128", "test", tmp_path)
    assert (whole.spec.name, whole.spec.shape) == ("lfw:size=128", (3, 128, 128))
    np.testing.assert_array_equal(whole.inputs[0].permute(1, 2, 0), crop)
    half = load("lfw:size=64", "test", tmp_path)
    by_pillow = np.asarray(Image.fromarray(crop).resize((64, 64), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(half.inputs[0].permute(1, 2, 0), by_pillow)  # no detour over 32 pixels
    assert half.take([0])[0].shape == (1, 3, 64, 64)
    assert load("lfw:size=32", "test", tmp_path).inputs.equal(load("lfw", "test", tmp_path).inputs)
    large = load("lfw:size=256", "test", tmp_path)
    assert large.inputs.shape[2:] == (128, 128)  # enlarged when it is taken, not before
    assert large.take([0])[0].shape == (1, 3, 256, 256)


def test_broken_missing_and_odd_pictures_are_refused(tmp_path):
    with pytest.raises(BadInput, match="leakgauge data fetch lfw"):
        load("lfw", "test", tmp_path)
    write_person(tmp_path / "lfw", "Ann", 5)
    with pytest.raises(BadInput, match="14 images or more"):
        load("lfw", "test", tmp_path)
    write_person(tmp_path / "lfw", "Bob", 14, size=100)
    with pytest.raises(BadInput, match="250 x 250 pixels, got 100 x 100"):
        load("lfw", "test", tmp_path)
    (tmp_path / "lfw" / "Bob" / "Bob_0000.jpg").write_text("not an image")
    with pytest.raises(BadInput, match="readable image"):
        load("lfw", "test", tmp_path)


def test_real_lfw(real_data):
    root = real_data("lfw")
    train, test = load("lfw", "train", root), load("lfw", "test", root)
    assert len(train) > 2.5 * len(test)
    assert train.labels.unique().tolist() == test.labels.unique().tolist() == list(range(test.spec.classes))

"""LFW and Tiny ImageNet as folders of pictures."""

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


def picture(path, grey, size=64):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (grey, grey, grey)).save(path, "JPEG", quality=100)


@pytest.fixture
def official(tmp_path):
    folder = tmp_path / "tiny-imagenet-200"
    for at, wnid in enumerate(("n02", "n01")):
        for i in range(2):
            picture(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", 100 * at + i * 10)
    picture(folder / "val" / "images" / "val_0.JPEG", 200)
    picture(folder / "val" / "images" / "val_1.JPEG", 20)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n")
    return tmp_path


@pytest.fixture
def reduced(tmp_path):
    folder = tmp_path / "tiny-imagenet"
    rows = ["file,wnid,class,words"]
    for i in range(6):
        picture(folder / "images" / f"val_{i}.JPEG", 40 * i)
        rows.append(f'val_{i}.JPEG,n{i // 3},{i // 3},"a fish, big"')
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_the_official_folder(official):
    train, test = load("tiny-imagenet", "train", official), load("tiny-imagenet", "test", official)
    assert train.labels.tolist() == [0, 0, 1, 1]  # classes by sorted WordNet id
    assert train.inputs[:, 0, 0, 0].tolist() == pytest.approx([100, 110, 0, 10], abs=2)
    assert test.labels.tolist() == [1, 0]
    assert test.inputs[:, 0, 0, 0].tolist() == pytest.approx([200, 20], abs=2)


def test_the_reduced_folder_is_halved_by_class(reduced):
    train, test = load("tiny-imagenet", "train", reduced), load("tiny-imagenet", "test", reduced)
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert train.labels.tolist() == [0, 1]
    assert train.inputs[:, 0, 0, 0].tolist() == pytest.approx([40, 160], abs=2)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("file,wnid,class\n../../secret.JPEG,n0,0\n", "plain file names"),
        ("file,wnid,class\n/etc/passwd,n0,0\n", "plain file names"),
        ("file,wnid,class\nval_0.JPEG,n0,200\n", "class below 200"),
        ("file,wnid,class\nval_0.JPEG\n", "class below 200"),
        ("file,wnid,class\nval_9.JPEG,n0,0\n", "readable image"),
        ("file,wnid,class\n", "none"),
    ],
)
def test_wrong_lists_are_refused_and_cannot_point_outside(reduced, table, words):
    (reduced / "tiny-imagenet" / "labels.csv").write_text(table)
    with pytest.raises(BadInput, match=words):
        load("tiny-imagenet", "test", reduced)


def test_wrong_official_lists_are_refused(official):
    folder = official / "tiny-imagenet-200"
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn77\n")
    with pytest.raises(BadInput, match="class in wnids"):
        load("tiny-imagenet", "test", official)
    (folder / "val" / "val_annotations.txt").write_text("../val_0.JPEG\tn01\n")
    with pytest.raises(BadInput, match="plain file names"):
        load("tiny-imagenet", "test", official)
    (folder / "wnids.txt").write_text("..\n")
    with pytest.raises(BadInput, match="plain file names"):
        load("tiny-imagenet", "train", official)


def test_odd_sizes_and_missing_folders_are_refused(reduced, tmp_path_factory):
    picture(reduced / "tiny-imagenet" / "images" / "val_0.JPEG", 3, size=32)
    with pytest.raises(BadInput, match="64 x 64 pixels, got 32 x 32"):
        load("tiny-imagenet", "test", reduced)
    with pytest.raises(BadInput, match="leakgauge data fetch tiny-imagenet"):
        load("tiny-imagenet", "test", tmp_path_factory.mktemp("empty"))


def test_real_tiny_imagenet(real_data):
    test = load("tiny-imagenet", "test", real_data("tiny-imagenet"))
    assert test.labels.unique().tolist() == list(range(200))

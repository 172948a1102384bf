import gzip
import struct

import numpy as np
import pytest

from leakgauge.data import load, verify
from leakgauge.errors import BadInput


def write_split(folder, prefix, images, labels, suffix=".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    pack = gzip.compress if suffix == ".gz" else bytes
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
        (folder / f"{prefix}-{kind}-ubyte{suffix}").write_bytes(pack(header + array.tobytes()))


IMAGES = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
LABELS = np.array([9, 0, 4], dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "folder", "suffix"),
    [
        ("mnist", "mnist", ".gz"),
        ("mnist", "MNIST/raw", ""),
        ("fashion-mnist", "fashion-mnist", ""),
        ("fashion-mnist", "FashionMNIST/raw", ".gz"),
    ],
)
def test_files_are_found_in_the_usual_folders(tmp_path, name, folder, suffix):
    write_split(tmp_path / folder, "t10k", IMAGES, LABELS, suffix)
    data = load(name, "test", tmp_path)
    assert np.array_equal(data.inputs[:, 0].numpy(), IMAGES)
    assert data.labels.tolist() == [9, 0, 4]
    assert data.spec.name == name


def test_missing_files_say_where_and_how_to_get_them(tmp_path):
    with pytest.raises(BadInput, match="leakgauge data fetch mnist") as caught:
        load("mnist", "test", tmp_path)
    assert str(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz") in str(caught.value)


@pytest.mark.parametrize(("images", "labels"), [(IMAGES[:2], LABELS), (IMAGES[:, :27], LABELS)])
def test_counts_and_sizes_must_fit(tmp_path, images, labels):
    write_split(tmp_path / "mnist", "t10k", np.ascontiguousarray(images), labels)
    with pytest.raises(BadInput, match="3 images of 28 x 28"):
        load("mnist", "test", tmp_path)


def test_a_label_above_9_is_refused(tmp_path):
    write_split(tmp_path / "mnist", "t10k", IMAGES, np.array([1, 2, 10], dtype=np.uint8))
    with pytest.raises(BadInput, match="between 0 and 9"):
        load("mnist", "test", tmp_path)


def test_real_mnist_is_the_published_one(real_data):
    root = real_data("mnist")
    assert {check.status for check in verify("mnist", root)} == {"ok"}
    test = load("mnist", "test", root)
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    train = load("mnist", "train", root)
    assert len(train) == 60000
    assert float(train.inputs.float().mean()) / 255 == pytest.approx(train.spec.mean[0], abs=1e-4)
    assert float(train.inputs.float().std()) / 255 == pytest.approx(train.spec.std[0], abs=1e-4)


def test_real_fashion_mnist_is_the_published_one(real_data):
    root = real_data("fashion-mnist")
    assert {check.status for check in verify("fashion-mnist", root)} == {"ok"}
    train = load("fashion-mnist", "train", root)
    assert float(train.inputs.float().mean()) / 255 == pytest.approx(train.spec.mean[0], abs=1e-3)
    assert float(train.inputs.float().std()) / 255 == pytest.approx(train.spec.std[0], abs=1e-3)

import contextlib
import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data import load, verify
from leakgauge.data.mnist import read_idx
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


# --- the IDX format ---


def idx_bytes(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


SMALL = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("zipped", [False, True])
def test_plain_and_gzipped_files_give_the_array(tmp_path, zipped):
    path = tmp_path / ("images.gz" if zipped else "images")
    path.write_bytes(gzip.compress(idx_bytes(SMALL)) if zipped else idx_bytes(SMALL))
    assert np.array_equal(read_idx(path, 3), SMALL)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a", b"", "empty file"),
        ("a", b"\x89PNG....", "starts with 89504e47"),
        ("a", idx_bytes(SMALL)[:9], "IDX with 3 dimensions"),
        ("a", idx_bytes(SMALL[0]), "IDX with 3 dimensions"),
        ("a", idx_bytes(SMALL)[:-1], "24 bytes behind its header, got 23"),
        ("a", idx_bytes(SMALL) + b"x", "24 bytes behind its header, got 25"),
        ("a.gz", gzip.compress(idx_bytes(SMALL))[:-9], "readable"),
        ("a.gz", idx_bytes(SMALL), "readable"),
        ("a", b"\0\0\x08\x03" + b"\xff" * 12, "bytes behind its header"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=words) as caught:
        read_idx(tmp_path / name, 3)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_give_an_array_or_bad_input(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(content)
    with contextlib.suppress(BadInput):
        assert read_idx(path, 1).ndim == 1

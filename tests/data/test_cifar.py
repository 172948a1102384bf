import pickle

import numpy as np
import pytest

from leakgauge.data import load, verify
from leakgauge.errors import BadInput


def write_batch(path, numbers, key=b"labels", **changes):
    path.parent.mkdir(exist_ok=True)
    data = np.arange(len(numbers) * 3072, dtype=np.uint32).astype(np.uint8).reshape(-1, 3072)
    content = {b"data": data, key: numbers} | {k.encode(): v for k, v in changes.items()}
    path.write_bytes(pickle.dumps(content, protocol=2))
    return data


def test_cifar10_train_takes_the_batches_that_are_there(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    first = write_batch(folder / "data_batch_1", [3, 9])
    write_batch(folder / "data_batch_4", [0])
    data = load("cifar10", "train", tmp_path)
    assert data.labels.tolist() == [3, 9, 0]
    assert np.array_equal(data.inputs[:2].numpy(), first.reshape(2, 3, 32, 32))


def test_cifar100_has_fine_labels(tmp_path):
    write_batch(tmp_path / "cifar-100-python" / "test", [99, 5], key=b"fine_labels", coarse_labels=[1, 1])
    data = load("cifar100", "test", tmp_path)
    assert data.labels.tolist() == [99, 5]
    assert data.spec.classes == 100


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": [1, 2]}, r"\(M, 3072\) as its data, got a list of 2"),
        ({"data": np.zeros((2, 3072), dtype=np.int64)}, "int64"),
        ({"data": np.zeros((3, 3072), dtype=np.uint8)}, "with 3 labels, got a list of 2"),
        ({"labels": ["a", "b"]}, "with 2 labels"),
        ({"labels": [0, 10]}, "between 0 and 9"),
        ({"labels": None}, "NoneType"),
    ],
)
def test_wrong_contents_are_refused(tmp_path, changes, words):
    write_batch(tmp_path / "cifar-10-batches-py" / "test_batch", [0, 1], **changes)
    with pytest.raises(BadInput, match=words):
        load("cifar10", "test", tmp_path)


@pytest.mark.parametrize(("name", "split"), [("cifar10", "train"), ("cifar10", "test"), ("cifar100", "test")])
def test_missing_files_say_how_to_get_them(tmp_path, name, split):
    with pytest.raises(BadInput, match=f"leakgauge data fetch {name}"):
        load(name, split, tmp_path)


def test_real_cifar10_is_the_published_one(real_data):
    root = real_data("cifar10")
    assert {check.status for check in verify("cifar10", root)} <= {"ok", "missing"}
    test = load("cifar10", "test", root)
    assert test.labels[:6].tolist() == [3, 8, 8, 0, 6, 6]
    mean = test.inputs.float().mean((0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx(test.spec.mean, abs=0.01)


def test_real_cifar100_has_all_classes(real_data):
    test = load("cifar100", "test", real_data("cifar100"))
    assert test.labels.bincount().tolist() == [100] * 100
    mean = test.inputs.float().mean((0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx(test.spec.mean, abs=0.01)

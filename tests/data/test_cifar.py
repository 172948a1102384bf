import contextlib
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data import load, verify
from leakgauge.data.cifar import read_pickle
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


# --- the pickles ---

# {"data": array [[7]] of bytes, "labels": [3]} as Python 2 with an old NumPy wrote it
PYTHON2 = (
    b"\x80\x02}q\x01(U\x06labels]K\x03aU\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b"
    b"\x87R(K\x01K\x01K\x01\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
    b"K\x00tb\x89U\x01\x07tbu."
)


class Runs:
    """Unpickled by a trusting reader, it makes a folder."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_lists_of_every_protocol_are_read(tmp_path, protocol):
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": array, "labels": [1, 2], b"name": b"\xff\x00"}, protocol=protocol))
    if protocol == 5:  # NumPy writes these with another helper, which CIFAR never needed
        with pytest.raises(BadInput, match="refused"):
            read_pickle(path)
        return
    content = read_pickle(path)
    assert np.array_equal(content[b"data"], array)
    assert content[b"labels"] == [1, 2]
    assert content[b"name"] == b"\xff\x00"


def test_the_python_2_pickles_that_cifar_comes_in_are_read(tmp_path):
    (tmp_path / "batch").write_bytes(PYTHON2)
    content = read_pickle(tmp_path / "batch")
    assert content[b"data"].tolist() == [[7]]
    assert content[b"labels"] == [3]


@pytest.mark.parametrize("function", [os.mkdir, os.system, eval, exec, np.load, getattr, __import__])
def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path, function, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argument = "ran" if function is os.mkdir else "__import__('os').mkdir('ran')"
    (tmp_path / "batch").write_bytes(pickle.dumps({b"data": Runs(function, argument)}))
    with pytest.raises(BadInput, match="refused") as caught:
        read_pickle(tmp_path / "batch")
    assert not (tmp_path / "ran").exists()
    assert "\n" not in str(caught.value)


def test_dotted_names_do_not_slip_through_an_allowed_module(tmp_path):
    (tmp_path / "batch").write_bytes(b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.")
    with pytest.raises(BadInput, match="refused"):
        read_pickle(tmp_path / "batch")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (PYTHON2[:-20], "pickle of arrays"),
        (b"", "pickle of arrays"),
        (pickle.dumps([1, 2]), "dictionary"),
        (PYTHON2.replace(b"U\x02u1", b"U\x02|O"), "objects"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.", "codec"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, words):
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(BadInput, match=words):
        read_pickle(tmp_path / "batch")


@settings(deadline=None)
@given(st.integers(0, len(PYTHON2) - 1), st.integers(0, 255))
def test_one_wrong_byte_gives_data_or_bad_input_never_anything_else(tmp_path_factory, at, value):
    path = tmp_path_factory.mktemp("pickle") / "batch"
    path.write_bytes(PYTHON2[:at] + bytes([value]) + PYTHON2[at + 1 :])
    with contextlib.suppress(BadInput):
        assert isinstance(read_pickle(path), dict)

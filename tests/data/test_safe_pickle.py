import contextlib
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data._safe_pickle import read_pickle
from leakgauge.errors import BadInput

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

import io
import zipfile

import numpy as np
import pytest

from leakgauge.errors import Unreadable
from leakgauge.reading.npz import read_npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        np.arange(3, dtype=">f4"),
        np.zeros((0, 4)),
        np.array(3),
        np.array(["a", "bc"]),
    ],
    ids=["floats", "by column", "other byte order", "empty", "one number", "texts"],
)
def test_arrays_come_back_as_numpy_reads_them(tmp_path, save, array):
    save(tmp_path / "a.npz", x=array, y=np.arange(2))
    read = read_npz(tmp_path / "a.npz")
    assert read.keys() == {"x", "y"}
    assert read["x"].dtype.isnative
    assert read["x"].flags.writeable
    with np.load(tmp_path / "a.npz") as whole:
        assert np.array_equal(read["x"], whole["x"])


def members(path, **contents):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"{name}.npy", content)


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_more_than_there_is_is_not_believed(tmp_path):
    members(tmp_path / "a.npz", x=npy(np.zeros(10, np.uint8)).replace(b"(10,)", b"(99,)"))
    with pytest.raises(Unreadable, match=r"declares \(99,\) and holds 10 bytes"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY\x03\x00", npy(np.zeros(3))[:-1], npy(np.zeros(3)) + b"x", npy(np.zeros(2, "V0"))]
)
def test_damaged_members_are_refused(tmp_path, content):
    members(tmp_path / "a.npz", x=content)
    with pytest.raises(Unreadable):
        read_npz(tmp_path / "a.npz")


def test_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    with pytest.raises(Unreadable, match="not run"):
        read_npz(tmp_path / "a.npz")


def test_what_is_no_archive_is_refused(tmp_path):
    with pytest.raises(Unreadable, match="FileNotFoundError"):
        read_npz(tmp_path / "none.npz")
    (tmp_path / "a.npz").write_bytes(b"no zip")
    with pytest.raises(Unreadable, match="BadZipFile"):
        read_npz(tmp_path / "a.npz")

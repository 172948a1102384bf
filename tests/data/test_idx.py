import contextlib
import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data._idx import read_idx
from leakgauge.errors import BadInput


def idx_bytes(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("zipped", [False, True])
def test_plain_and_gzipped_files_give_the_array(tmp_path, zipped):
    path = tmp_path / ("images.gz" if zipped else "images")
    path.write_bytes(gzip.compress(idx_bytes(IMAGES)) if zipped else idx_bytes(IMAGES))
    assert np.array_equal(read_idx(path, 3), IMAGES)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a", b"", "empty file"),
        ("a", b"\x89PNG....", "starts with 89504e47"),
        ("a", idx_bytes(IMAGES)[:9], "IDX with 3 dimensions"),
        ("a", idx_bytes(IMAGES[0]), "IDX with 3 dimensions"),
        ("a", idx_bytes(IMAGES)[:-1], "24 bytes behind its header, got 23"),
        ("a", idx_bytes(IMAGES) + b"x", "24 bytes behind its header, got 25"),
        ("a.gz", gzip.compress(idx_bytes(IMAGES))[:-9], "readable"),
        ("a.gz", idx_bytes(IMAGES), "readable"),
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

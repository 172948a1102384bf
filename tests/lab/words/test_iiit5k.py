"""Real words if they are in the data folder, one clear line if they are not; and the reader of the published list."""

import struct

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from leakgauge.errors import BadInput, Unreadable
from leakgauge.lab.words.iiit5k import read_records, real_words


def test_words_are_read_from_their_list(tmp_path):
    folder = tmp_path / "iiit5k" / "test"
    folder.mkdir(parents=True)
    for name in ("1_1.png", "1_2.png"):
        Image.new("RGB", (60, 20), "red").save(folder / name)
    (tmp_path / "iiit5k" / "test.tags").write_text("test/1_1.png Bank\ntest/1_2.png FARTOOLONGAWORD\n")
    found = real_words(64, 8, tmp_path)
    assert found.words == ("Bank",)
    assert found.images.shape == (1, 3, 32, 64)


def test_the_published_list(tmp_path):
    folder = tmp_path / "iiit5k" / "test"
    folder.mkdir(parents=True)
    Image.new("RGB", (60, 20), "red").save(folder / "1_1.png")
    Image.new("RGB", (60, 20), "blue").save(folder / "1_2.png")
    kinds = [("ImgName", object), ("GroundTruth", object)]
    records = np.array([("test/1_1.png", "BANK"), ("test/1_2.png", "7UP")], dtype=kinds)
    savemat(tmp_path / "iiit5k" / "testdata.mat", {"testdata": records})
    assert real_words(64, 8, tmp_path).words == ("BANK", "7UP")
    (tmp_path / "iiit5k" / "testdata.mat").write_bytes(b"broken")
    with pytest.raises(BadInput, match="published list"):
        real_words(64, 8, tmp_path)


def test_none_there_or_a_broken_list(tmp_path):
    with pytest.raises(BadInput, match="nothing there"):
        real_words(64, 8, tmp_path)
    (tmp_path / "iiit5k").mkdir()
    (tmp_path / "iiit5k" / "test.tags").write_text("test/1_1.png\n")
    with pytest.raises(BadInput, match="a file and its word"):
        real_words(64, 8, tmp_path)


def test_the_real_set(real_data):
    found = real_words(100, 10, real_data("iiit5k"))
    assert len(found.words) > 300


KINDS = [("name", "O"), ("more", "O"), ("word", "O")]
RECORDS = np.array([("a.png", 1.5, "ONE"), ("b.png", np.zeros(3), "")], dtype=KINDS)


@pytest.mark.parametrize("packed", [False, True])
def test_the_named_fields_of_every_record_come_back(tmp_path, packed):
    savemat(tmp_path / "a.mat", {"other": np.arange(3), "list": RECORDS}, do_compression=packed)
    assert read_records(tmp_path / "a.mat", "list", ("word", "name")) == [("ONE", "a.png"), ("", "b.png")]


def test_what_is_not_there_is_refused(tmp_path):
    savemat(tmp_path / "a.mat", {"list": RECORDS, "numbers": np.arange(3)})
    for variable, field in (("none", "name"), ("list", "none"), ("list", "more"), ("numbers", "name")):
        with pytest.raises(Unreadable):
            read_records(tmp_path / "a.mat", variable, (field,))


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path):
    savemat(tmp_path / "a.mat", {"list": RECORDS}, do_compression=True)
    whole = (tmp_path / "a.mat").read_bytes()
    for end in range(0, len(whole), 7):
        (tmp_path / "a.mat").write_bytes(whole[:end])
        with pytest.raises(Unreadable):
            read_records(tmp_path / "a.mat", "list", ("name",))


def test_declared_sizes_get_no_memory(tmp_path):
    savemat(tmp_path / "a.mat", {"list": RECORDS})
    whole = (tmp_path / "a.mat").read_bytes()
    shape = struct.pack("<ii", 1, 2)
    assert shape in whole
    (tmp_path / "a.mat").write_bytes(whole.replace(shape, struct.pack("<ii", 2**30, 2**30), 1))
    with pytest.raises(Unreadable, match="in records of shape"):
        read_records(tmp_path / "a.mat", "list", ("name",))

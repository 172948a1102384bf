import struct

import numpy as np
import pytest
from scipy.io import savemat

from leakgauge.errors import Unreadable
from leakgauge.lab.words.matlab import read_records

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

"""Real words where they are; one clear line where they are not."""

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from leakgauge.errors import BadInput
from leakgauge.lab.words.iiit5k import real_words


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

import numpy as np
import pytest
import torch
from PIL import Image

from leakgauge.data import load, photos


@pytest.mark.parametrize(("name", "size"), [("photos32", 32), ("photos64", 64)])
def test_there_are_hundreds_of_crops_of_every_photograph(name, size):
    test = load(name)
    assert test.spec.shape == (3, size, size)
    assert len(test) >= 400
    counts = test.labels.bincount(minlength=test.spec.classes)
    assert int(counts.min()) >= 15
    assert int(counts.max()) <= photos.MOST_CROPS


def test_reading_twice_gives_the_same():
    once, twice = load("photos32"), load("photos32")
    assert torch.equal(once.inputs, twice.inputs)
    assert torch.equal(once.labels, twice.labels)


def test_public_and_private_parts_make_up_the_photograph_and_share_no_pixel():
    for photo in photos._PHOTOS:
        test, train = photos._part(photo, "test"), photos._part(photo, "train")
        along = 0 if photo.test_part in ("left", "right") else 1
        first, second = (test, train) if photo.test_part in ("left", "top") else (train, test)
        whole = np.concatenate([np.asarray(first), np.asarray(second)], axis=1 - along)
        package = __import__(photo.package)
        with Image.open(f"{package.__path__[0]}/{photo.file}") as image:
            assert np.array_equal(whole, np.asarray(image.convert("RGB")))


def test_no_crop_is_flat():
    deviations = load("photos32").take(range(400))[0].flatten(2).std(2).max(1).values
    assert float(deviations.min()) > 0.07


def test_windows_reach_both_edges_and_stay_inside():
    starts = photos._starts(100, 40)
    assert starts[0] == 0
    assert starts[-1] == 60
    assert photos._starts(40, 40) == [0]

"""Tensors become the pictures they stand for."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from leakgauge.report.pictures import SHOWN_SIDE, comparison_png, data_uri, pairs_png, png_bytes


def opened(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)))


def test_colour_pixels_survive():
    image = torch.tensor([1.0, 0.5, 0.0]).view(3, 1, 1).expand(3, 2, 4)
    assert opened(png_bytes(image)).shape == (2, 4, 3)
    assert opened(png_bytes(image))[0, 0].tolist() == [255, 128, 0]


def test_grey_pixels_survive():
    assert opened(png_bytes(torch.tensor([[[0.0, 1.0]]]))).tolist() == [[0, 255]]


def test_two_channels_are_averaged_to_grey():
    assert opened(png_bytes(torch.tensor([[[0.0]], [[1.0]]]))).tolist() == [[128]]


def test_values_outside_the_range_and_not_a_number_are_drawn():
    image = torch.tensor([[[-3.0, 7.0, float("nan"), float("inf")]]])
    assert opened(png_bytes(image)).tolist() == [[0, 255, 0, 255]]


@pytest.mark.parametrize(("side", "shown"), [(8, 8), (SHOWN_SIDE, SHOWN_SIDE), (300, SHOWN_SIDE)])
def test_data_uri_holds_a_png_no_larger_than_is_shown(side, shown):
    head, content = data_uri(torch.rand(3, side, side)).split(",")
    assert head == "data:image/png;base64"
    assert opened(base64.b64decode(content)).shape == (shown, shown, 3)


@pytest.mark.parametrize("channels", [1, 3])
def test_contact_sheet_shows_every_pair_enlarged(channels):
    true = torch.zeros(10, channels, 8, 8)
    scores = [{"psnr": 12.0, "ssim": -0.5}] * 9 + [{"psnr": None, "ssim": None}]
    sheet = opened(pairs_png(true, true + 0.5, scores))
    black = (sheet == 0).all(-1)
    grey = (sheet == 128).all(-1)
    assert grey.sum() >= 10 * 96 * 96  # captions have a few grey pixels of their own
    assert black.sum() >= 10 * 96 * 96
    assert sheet.shape[1] > 8 * 96


def test_contact_sheet_is_deterministic():
    true = torch.rand(2, 3, 8, 8)
    scores = [{"psnr": 12.0, "ssim": 0.5}] * 2
    assert pairs_png(true, true, scores) == pairs_png(true, true, scores)


def test_contact_sheet_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        pairs_png(torch.zeros(0, 3, 8, 8), torch.zeros(0, 3, 8, 8), [])


def test_comparison_has_the_truth_and_a_row_for_every_attack():
    true = torch.zeros(3, 1, 8, 8)
    scores = {"one": [{"psnr": 12.0, "ssim": 0.5}] * 3, "another": [{"psnr": None, "ssim": None}] * 3}
    sheet = opened(comparison_png(true, {"one": true + 0.5, "another": true + 0.5}, scores))
    grey, black = (sheet == 128).all(-1), (sheet == 0).all(-1)
    assert grey.sum() >= 6 * 96 * 96
    assert black.sum() >= 3 * 96 * 96
    assert not (sheet[-1] == 128).any(), "the last row of pictures has its scores below it"


def test_comparison_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        comparison_png(torch.zeros(0, 3, 8, 8), {}, {})

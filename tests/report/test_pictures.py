"""Tensors become the pictures they stand for."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from leakgauge.report.pictures import SHOWN_SIDE, comparison_png, data_uri, pairs_png, png_bytes, write_reconstructions
from leakgauge.types import BLANK, Finding, Pictures


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


# --- what was recovered without the truth ---------------------------------------------------------

NAME = "dlg | none | plain"


def finding(trial, attack="dlg", labels=(3, None), **more):
    return Finding(attack, "none", False, trial, 0, {}, labels=labels, **more)


def test_tensors_labels_and_a_sheet_are_written_for_the_owner(blind, tmp_path):
    made = blind(finding(0), finding(1))
    (path,) = write_reconstructions(made.report, made.pictures, tmp_path)
    kept = load_file(path)
    assert torch.equal(kept["inputs"], made.pictures.recovered[NAME])
    assert kept["labels"].tolist() == [[3, -1], [3, -1]]
    assert kept["claimed"].all()
    assert path.name == "reconstruction-dlg.safetensors"
    assert (tmp_path / "reconstruction-dlg.png").read_bytes().startswith(b"\x89PNG")
    assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.iterdir())


def test_the_one_attack_that_was_asked_for_has_the_plain_name(blind, tmp_path):
    made = blind(finding(0), finding(1))
    (path,) = write_reconstructions(made.report, made.pictures, tmp_path, single=True)
    assert path.name == "reconstruction.safetensors"


def test_all_answers_are_kept_and_what_is_not_claimed_is_marked(blind, tmp_path):
    made = blind(finding(0, labels=None), finding(1, labels=None))
    first = made.pictures.recovered[NAME].clone()
    first[1, 0] = torch.nan
    answers = torch.rand(2, 3, 2, 1, 4, 4)
    kept = torch.cat((first, answers.flatten(1, 2)), 1)
    (path,) = write_reconstructions(made.report, Pictures(made.pictures.true, {NAME: kept}), tmp_path)
    tensors = load_file(path)
    assert torch.equal(tensors["answers"], answers)
    assert tensors["claimed"].tolist() == [[True, True], [False, True]]
    assert (tensors["inputs"][1, 0] == BLANK).all()
    assert "labels" not in tensors


def test_names_of_attacks_stay_inside_the_folder_and_what_broke_off_leaves_no_file(blind, tmp_path):
    odd = "../own.py:Mine #2"
    made = blind(finding(0, odd), finding(1, odd), finding(0, "linear", error="does not fit"))
    (path,) = write_reconstructions(made.report, made.pictures, tmp_path)
    assert path.parent == tmp_path
    assert path.is_file()

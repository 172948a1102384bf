"""What an attack made of updates whose samples nobody has is kept whole, for its owner only."""

from __future__ import annotations

import torch
from safetensors.torch import load_file

from leakgauge.report.sheets import write_reconstructions
from leakgauge.types import BLANK, Finding, Pictures

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

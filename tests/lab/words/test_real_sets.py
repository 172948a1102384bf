"""The real words of a test: those of the data folder and of folders that were named, each in two sizes."""

import pytest
import torch
from PIL import Image

from leakgauge.errors import BadInput
from leakgauge.lab.words.comparing import compare
from leakgauge.lab.words.network import build
from leakgauge.lab.words.real_sets import read_of, real_sets
from leakgauge.lab.words.training import Reading, results

HOW = Reading(rounds=1, words=30, tested=10, batch_size=10, longest=4, image_width=48, width=2)
CPU = torch.device("cpu")


def made(folder, words=("BANK", "UP", "TAXI")):
    folder.mkdir(parents=True)
    for number in range(len(words)):
        Image.new("RGB", (60 + 40 * number, 20), "red").save(folder / f"{number}.png")
    (folder / "list.txt").write_text("".join(f"{n}.png {w}\n" for n, w in enumerate(words)))
    return folder


def test_sets_are_found_by_name_and_by_folder(tmp_path):
    made(tmp_path / "data" / "svt")
    sets, left_out = real_sets(HOW, CPU, tmp_path / "data", [made(tmp_path / "mine")])
    assert {name: [len(s) for s in groups] for name, groups in sets.items()} == {
        "svt": [3],
        "svt, in proportion": [1, 1],
        "mine": [3],
        "mine, in proportion": [1, 1],
    }
    assert "iiit5k" in left_out


def test_groups_of_a_set_count_by_their_words(tmp_path):
    sets, _ = real_sets(HOW, CPU, tmp_path, [made(tmp_path / "mine")])
    model = build(2, 0)
    (whole,) = sets["mine"]
    assert read_of(model, [whole]) == pytest.approx(results(model, whole)[1])


def test_a_study_reads_them(tmp_path):
    study = compare(("centralised",), how=HOW, device="cpu", data_root=tmp_path, folders=[made(tmp_path / "mine")])
    (run,) = study.runs
    assert run.words["mine, in proportion"] == 2
    assert run.weights == (1.0,)


def test_bad_input_is_refused(tmp_path):
    mine = made(tmp_path / "mine")
    with pytest.raises(BadInput, match="'mine' twice"):
        real_sets(HOW, CPU, tmp_path, [mine, made(tmp_path / "other" / "mine")])
    with pytest.raises(BadInput, match="words of 'long'"):
        real_sets(HOW, CPU, tmp_path, [made(tmp_path / "long", ("TOOLONGAWORD",))])
    with pytest.raises(BadInput, match="none with centralised"):
        compare(("centralised",), "ckks", HOW, data_root=tmp_path)

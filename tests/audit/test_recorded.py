"""Recorded updates are attacked side by side; what cannot be read or does not apply stays in the result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from leakgauge.attacks.linear import Linear
from leakgauge.attacks.rgap import RGAP
from leakgauge.audit.recorded import Assumed, audit_group, findings, pictures
from leakgauge.data import load
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.recording.recorded_folder import Origin, read_folder, side_by_side
from leakgauge.recording.recorder import Recorder
from leakgauge.types import LocalTraining

CPU = torch.device("cpu")
DIGITS = load("digits", "train", None)
ASSUMED = Assumed("mlp", DIGITS)


def record(folder: Path, clients: int = 3, keep: bool = True, lr: float | None = 0.1) -> None:
    private, recorder = load("digits", "test", None), Recorder(folder, keep_private=keep)
    for client in range(clients):
        model = load_model("mlp", DIGITS.spec, 0)
        inputs, labels = private.take(torch.tensor([client]))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with recorder.weight_delta(model, samples=1, lr=lr, client=f"c{client}", private=(inputs, labels)):
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def test_an_ordinary_training_loop_gives_its_pictures_away(tmp_path: Path) -> None:
    record(tmp_path)
    (entries,) = side_by_side(read_folder(tmp_path))
    group = audit_group(entries, ASSUMED, [Linear()], CPU)
    found = findings(group, "unknown")
    assert [f["client"] for f in found] == ["c0", "c1", "c2"]
    assert all(f["scores"]["psnr_mean_per_image"] > 60 for f in found)
    assert all(f["scores"]["label_accuracy"] == 1 for f in found)
    shown = pictures(group, group.attacked[0])
    assert shown is not None
    assert shown.shape == (3, 1, 8, 8)
    assert any(clue.id == "first-layer" and clue.severity == "exposed" for clue in group.clues)


def test_without_the_truth_nothing_is_scored_and_a_flag_says_so(tmp_path: Path) -> None:
    record(tmp_path, keep=False)
    (entries,) = side_by_side(read_folder(tmp_path))
    group = audit_group(entries, ASSUMED, [Linear()], CPU)
    assert group.truth is None
    assert all(f["scores"] == {} and f["flags"] == ["no-ground-truth"] for f in findings(group, "unknown"))


def test_an_update_that_cannot_be_read_is_counted_and_the_others_are_attacked(tmp_path: Path) -> None:
    record(tmp_path)
    model = load_model("mlp", DIGITS.spec, 0)
    Recorder(tmp_path).add(
        "weight_delta",
        {n: torch.zeros_like(p) for n, p in model.named_parameters()},
        Origin(samples=1, lr=0.1),
        weights=model.state_dict(),
    )
    everyone = read_folder(tmp_path)
    group = audit_group(everyone, ASSUMED, [Linear()], CPU)
    assert len(group.entries) == 3
    assert group.unreadable[0][0] == "update-00003"
    assert "zeros only" in group.unreadable[0][1]
    nobody = audit_group(everyone[3:], ASSUMED, [Linear()], CPU)
    assert nobody.entries == ()
    assert len(nobody.unreadable) == 1


def test_an_attack_that_does_not_apply_stays_with_its_reason(tmp_path: Path) -> None:
    record(tmp_path, clients=1)
    group = audit_group(read_folder(tmp_path), ASSUMED, [RGAP()], CPU)
    (finding,) = findings(group, "unknown")
    assert "activation without an inverse" in finding["error"]
    assert pictures(group, group.attacked[0]) is None


def test_who_knows_the_defence_is_played_too(tmp_path: Path) -> None:
    record(tmp_path, clients=1)
    assumed = Assumed("mlp", DIGITS, defenses=(Gaussian(std=0.01),))
    group = audit_group(read_folder(tmp_path), assumed, [Linear()], CPU)
    assert [a.label for a in group.attacked] == ["linear", "linear-informed"]
    assert [f["adaptive"] for f in findings(group, "gaussian:std=0.01")] == [False, True]


def test_the_users_word_goes_before_the_recorders(tmp_path: Path) -> None:
    record(tmp_path, clients=1, lr=None)
    entries = read_folder(tmp_path)
    with pytest.raises(BadInput, match="lr must be known"):
        audit_group(entries, ASSUMED, [Linear()], CPU)
    told = Assumed("mlp", DIGITS, local=LocalTraining(kind="fedavg", lr=0.1))
    assert findings(audit_group(entries, told, [Linear()], CPU), "unknown")[0]["scores"]["psnr_mean_per_image"] > 60
    with pytest.raises(BadInput, match="--local kind must be fedavg"):
        audit_group(entries, Assumed("mlp", DIGITS, local=LocalTraining()), [Linear()], CPU)


def test_unknown_numbers_of_samples_are_asked_for(tmp_path: Path) -> None:
    model = load_model("mlp", DIGITS.spec, 0)
    Recorder(tmp_path).add("gradient", {n: torch.ones_like(p) for n, p in model.named_parameters()}, Origin())
    with pytest.raises(BadInput, match="--batch-size"):
        audit_group(read_folder(tmp_path), ASSUMED, [Linear()], CPU)

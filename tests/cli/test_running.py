"""Interrupted runs keep what is finished and go on from there; a full disk leaves nothing half-written."""

from __future__ import annotations

import dataclasses
import errno
import importlib
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from leakgauge import catalog
from leakgauge.attacks.linear import Linear
from leakgauge.cli import running
from leakgauge.cli.options import Places
from leakgauge.cli.running import STEP_SUMMARY, append_step_summary, executing
from leakgauge.errors import BadInput
from leakgauge.execution.local import Workers

AUDIT = ("audit", "--attacks", "linear", "--defenses", "gaussian prune", "--plain", "--out", "run", "--json")


@pytest.fixture
def linear(monkeypatch):
    """Counts the calls of `linear`, and stops the one it is told to with what it is told to."""

    class Watch:
        calls = 0
        stop_at = 0
        stop_with: type[BaseException] = KeyboardInterrupt

    watch = Watch()
    real = Linear.solve

    def solve(self, *given):
        watch.calls += 1
        if watch.calls == watch.stop_at:
            raise watch.stop_with
        return real(self, *given)

    monkeypatch.setattr(Linear, "solve", solve)
    return watch


def attacked(report):
    return [row["defense"] for row in report["summary"] if row["attack"] == "linear"]


def test_every_way_of_an_attacker_who_knows_the_defense_has_its_row(leakgauge):
    victim = ("--data", "digits", "--model", "mlp:hidden=8", "--trials", 1, "--defense", "soteria", "--json")
    found = leakgauge("attack", "dlg", "--steps", 1, "--restarts", 1, *victim)
    rows = [(row["attack"], row["adaptive"]) for row in found.json["summary"]]
    assert rows == [("dlg", False), ("dlg (without the layer)", True), ("dlg (visible columns)", True)]


def test_a_flag_names_the_rows_it_is_about(leakgauge, small):
    outcome = leakgauge("audit", *small, "--attacks", "linear", "--defenses", "gaussian:std=5")
    assert outcome.code == 0, outcome.err
    assert "flag no-better-than-mean (linear | gaussian:std=5 | plain" in outcome.out


def test_interrupted_run_keeps_finished_cells_and_goes_on_from_there(leakgauge, small, linear, tmp_path):
    linear.stop_at = 2  # none is finished, gaussian is under way
    first = leakgauge(*AUDIT, *small)
    assert first.code == 130
    assert first.json["interrupted"] is True
    assert attacked(first.json) == ["none"]
    assert "interrupted" in first.err
    assert "Traceback" not in first.err
    assert json.loads((tmp_path / "run" / "report.json").read_text())["interrupted"] is True

    linear.calls = linear.stop_at = 0
    second = leakgauge(*AUDIT, *small)
    assert second.code == 0
    assert second.json["interrupted"] is False
    assert attacked(second.json) == ["none", "gaussian", "prune"]
    assert linear.calls == 2, "what was finished must not be done again"
    bare = [[f for f in outcome.json["findings"] if f["defense"] == "none"] for outcome in (first, second)]
    assert bare[0] == bare[1]


def test_interrupted_before_the_first_cell_was_done(leakgauge, small, linear):
    linear.stop_at = 1
    outcome = leakgauge("attack", "linear", *small, "--out", "run")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_interrupted_while_loading(leakgauge, small, monkeypatch, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    slow = dataclasses.replace(catalog.get("data", "digits"), read=interrupt)
    monkeypatch.setitem(catalog.find("data"), "digits", slow)
    outcome = leakgauge("attack", "linear", *small, "--out", "run")
    assert outcome.code == 130
    assert not (tmp_path / "run").exists()


def test_gate_does_not_pass_on_an_interrupted_run(leakgauge, small, linear):
    linear.stop_at = 2
    outcome = leakgauge(*AUDIT, *small, "--gate", "ssim=0.5")
    assert outcome.code == 130


def test_finished_run_is_reused_unless_fresh(leakgauge, small, linear):
    first = leakgauge(*AUDIT, *small)
    again = leakgauge(*AUDIT, *small)
    assert linear.calls == 3
    assert first.json["findings"] == again.json["findings"]
    leakgauge(*AUDIT, *small, "--fresh")
    assert linear.calls == 6


def test_changed_scenario_never_meets_an_old_cell(leakgauge, small, linear):
    leakgauge("attack", "linear", *small, "--out", "run", "--json")
    for change in (("--seed", 1), ("--batch-size", 2), ("--local", "kind=fedavg"), ("--assume", "gaussian:std=0.1")):
        before = linear.calls
        assert leakgauge("attack", "linear", *small, *change, "--out", "run", "--json").code == 0
        assert linear.calls == before + 1, change


def test_own_code_in_a_module_that_was_edited_is_run_anew(leakgauge, linear, tmp_path, monkeypatch):
    (tmp_path / "edited").mkdir()
    for activation in ("Sigmoid", "Tanh"):  # the parameters stay the same, what they do does not
        (tmp_path / "edited" / "net.py").write_text(
            "from torch import nn\n"
            "def net(num_classes):\n"
            f"    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.{activation}(), nn.Linear(8, num_classes))\n"
        )
        monkeypatch.delitem(sys.modules, "edited.net", raising=False)
        importlib.invalidate_caches()
        outcome = leakgauge(
            "attack", "linear", "--model", "edited.net:net", "--data", "digits", "--trials", 1, "--out", "run", "--json"
        )
        assert outcome.code == 0, outcome.err
    monkeypatch.delitem(sys.modules, "edited.net", raising=False)
    assert linear.calls == 2, "the second run showed the first model's results"


def test_pictures_in_a_folder_that_changed_are_attacked_anew(leakgauge, linear, tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(2):
        for name in ("cats/1", "cats/2", "dogs/1", "dogs/2"):
            path = tmp_path / "pictures" / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
        outcome = leakgauge(
            "attack",
            "linear",
            "--model",
            "mlp:hidden=4",
            "--data",
            "pictures:size=8",
            "--trials",
            1,
            "--out",
            "run",
            "--json",
        )
        assert outcome.code == 0, outcome.err
    assert linear.calls == 2, "the second run showed the first pictures' results"


def test_cell_that_ran_out_of_memory_is_tried_again(leakgauge, small, linear, monkeypatch):
    def never_fits(*_):
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Linear, "solve", never_fits)
        first = leakgauge(*AUDIT, *small)
    assert first.json["summary"][2]["failed"] == 2
    second = leakgauge(*AUDIT, *small)
    assert second.json["summary"][2]["failed"] == 0, "memory that was short once need not be short again"


def test_damaged_cell_is_done_again(leakgauge, small, linear, tmp_path):
    leakgauge("attack", "linear", *small, "--out", "run", "--json")
    for cell in (tmp_path / "run" / "cells").iterdir():
        cell.write_bytes(cell.read_bytes()[:50])
    outcome = leakgauge("attack", "linear", *small, "--out", "run", "--json")
    assert outcome.code == 0
    assert linear.calls == 2


@pytest.mark.parametrize("written_before", [0, 1, 4, 6])
def test_full_disk_is_one_line_and_leaves_no_half_file(
    leakgauge, small, monkeypatch, tmp_path, files_in, written_before
):
    """The disk fills up at the n-th file behind the index: truth, three cells, the table of cells, then the reports."""
    real, count = os.replace, 0

    def replace(source, target):
        nonlocal count
        count += 1
        if count > written_before:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    outcome = leakgauge("attack", "linear", *small, "--out", "run", "--json")
    assert outcome.code == 2
    assert outcome.out == ""
    line = outcome.err.splitlines()[-1]
    assert line.startswith("leakgauge: output ")
    assert "No space left on device" in line
    assert "free some disk space" in line
    assert len(files_in(tmp_path / "run")) == 1 + written_before, "no part file stays behind"
    monkeypatch.setattr(os, "replace", real)  # undoing all would lead out of the folder of this test
    assert leakgauge("attack", "linear", *small, "--out", "run", "--json").code == 0, "it goes on once there is room"


def test_no_room_for_the_folder(leakgauge, small, monkeypatch, tmp_path, one_line):
    def mkdir(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.mkdir", mkdir)
    assert "free some disk space" in one_line(leakgauge("attack", "linear", *small, "--out", "run"))


def test_ctrl_c_in_a_real_process(tmp_path):
    """One that would run for hours: interrupted once the attack itself is under way."""
    command = (
        sys.executable,
        "-m",
        "leakgauge",
        "attack",
        "dlg",
        "--model",
        "mlp:hidden=8",
        "--data",
        "digits",
        "--trials",
        "1",
        "--restarts",
        "1000000",
        "--threshold",
        "1e-30",
        "--out",
        "run",
        "--json",
    )
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    )
    try:
        for line in running.stderr:
            if "dlg | none" in line:
                break
        running.send_signal(signal.SIGINT)
        try:
            out, err = running.communicate(timeout=30)
        except subprocess.TimeoutExpired:  # Python drops one that comes while it tidies an object up
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=30)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert json.loads(out)["interrupted"] is True
    assert len(list((tmp_path / "run" / "cells").glob("*.safetensors"))) == 2, "both floors are kept"


def test_the_verdict_is_loud_and_the_names_in_it_are_as_they_are_written(leakgauge, tmp_path):
    outcome = leakgauge(
        "audit",
        "--data",
        "digits",
        "--model",
        "mlp",
        "--attacks",
        "linear",
        "--trials",
        "6",
        "--defenses",
        "gaussian:std=5 prune:share=0.1",
        "--out",
        str(tmp_path / "run"),
    )
    (verdict,) = [line for line in outcome.out.splitlines() if line.startswith("Verdict: ")]
    assert verdict.startswith("Verdict: LEAKS WITH prune:share=0.1. With prune:share=0.1, linear ")


def test_several_attacks_are_shown_side_by_side(leakgauge, small, tmp_path, files_in):
    attacks = "linear inverting-gradients:steps=5"
    outcome = leakgauge("audit", *small, "--attacks", attacks, "--defenses", "none", "--out", "run")
    assert outcome.code == 0, outcome.err
    sheet = tmp_path / "run" / "attacks.png"
    assert sheet.read_bytes().startswith(b"\x89PNG")
    assert sheet.stat().st_mode & 0o077 == 0  # it shows private records
    assert "pairs.png" in files_in(tmp_path / "run")


def test_one_attack_needs_no_comparison(leakgauge, small, tmp_path):
    leakgauge("audit", *small, "--attacks", "linear", "--defenses", "prune", "--out", "run")
    assert not (tmp_path / "run" / "attacks.png").exists()


def test_tables_have_no_pictures(leakgauge, tmp_path):
    attacks = "linear inverting-gradients:steps=5"
    words = "audit --model mlp --data breast-cancer --trials 2 --defenses none --out run"
    outcome = leakgauge(*words.split(), "--attacks", attacks)
    assert outcome.code == 0, outcome.err
    assert not list((tmp_path / "run").glob("*.png"))


def test_nothing_happens_outside_a_workflow(monkeypatch):
    monkeypatch.delenv(STEP_SUMMARY, raising=False)
    assert not append_step_summary("text")


def test_an_audit_is_appended_to_what_is_there(leakgauge, small, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n")
    monkeypatch.setenv(STEP_SUMMARY, str(page))
    assert leakgauge("audit", *small, "--attacks", "linear", "--defenses", "none", "--out", "run").code == 0
    text = page.read_text()
    assert text.startswith("before\n### Leakage audit: ")
    assert (tmp_path / "run" / "summary.md").read_text() in text


def test_a_single_attack_is_not(leakgauge, small, tmp_path, monkeypatch):
    monkeypatch.setenv(STEP_SUMMARY, str(tmp_path / "page.md"))
    leakgauge("attack", "linear", *small, "--out", "run")
    assert not (tmp_path / "page.md").exists()


def test_a_page_that_cannot_be_written_is_said_and_fails_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(STEP_SUMMARY, str(tmp_path))
    assert not append_step_summary("text")
    assert f"{STEP_SUMMARY} could not be written" in capsys.readouterr().err


# --- who does the work ----------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """A cluster of two CPUs wherever one is looked for; holds the addresses that were asked for."""
    addresses = []

    small = SimpleNamespace(
        __version__="0", remote=lambda _: None, nodes=lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}]
    )

    @contextmanager
    def found(address):
        addresses.append(address)
        yield small

    monkeypatch.setattr(running, "connected", found)
    return addresses


def test_without_a_flag_it_is_this_process():
    with executing(Places(device="cpu")) as executor:
        assert executor is None


def test_workers_are_processes_of_this_machine():
    with executing(Places(device="cpu", workers=3, worker_memory="1GB")) as executor:
        assert isinstance(executor, Workers)
        assert executor.slots == 3


@pytest.mark.parametrize(("on", "address"), [("ray", None), ("ray=auto", "auto"), ("ray=head:6379", "head:6379")])
def test_a_cluster_is_looked_for_where_it_was_said(asked, on, address):
    with executing(Places(device="cpu", on=on)) as executor:
        assert executor.slots == 2
    assert asked == [address]


def test_workers_on_a_cluster_are_how_many_of_its_processes_are_asked_for(asked):
    with executing(Places(device="cpu", on="ray", workers=7)) as executor:
        assert executor.slots == 7


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"on": "spark"}, "--on must be ray, ray=auto or ray=HOST:PORT, got 'spark'"),
        ({"on": "ray="}, "--on must be ray, ray=auto or ray=HOST:PORT, got 'ray='"),
        ({"on": "ray", "workers": -1}, "--workers must be a whole number from 1, got -1"),
        ({"workers": 0}, "--workers must be a whole number from 1, got 0"),
        ({"on": "ray", "worker_memory": "4GB"}, "--worker-memory must be used with --workers alone, got --on"),
        ({"worker_memory": "4GB"}, "--worker-memory must be used with --workers alone, got no --workers"),
        ({"gpus_per_task": 0.5}, "--gpus-per-task must be used with --on ray, got no --on"),
        ({"on": "ray", "gpus_per_task": 2.0}, "GPUs for each task must be above 0 and at most 1, got 2.0"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(asked, flags, said):
    with pytest.raises(BadInput, match=said), executing(Places(device="cpu", **flags)):
        pass


def test_audit_and_reproduce_say_so_in_one_line(leakgauge):
    for command in (("audit", "--data", "digits"), ("lab", "reproduce", "wei2020cpl", "--quick")):
        ran = leakgauge(*command, "--on", "spark")
        assert ran.code == 2
        assert "--on must be ray, ray=auto or ray=HOST:PORT, got 'spark'" in ran.err
        assert len(ran.err.strip().splitlines()) == 1

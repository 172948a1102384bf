"""The whole pipe on digits: floors, flags, failures, tampering servers, interruption and resumption."""

import copy
import dataclasses
import json
import textwrap
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from leakgauge.attacks.linear import Linear
from leakgauge.audit import run as audit
from leakgauge.audit.run import run_audit
from leakgauge.errors import BadInput
from leakgauge.execution import work_units as units
from leakgauge.execution.store import Store
from leakgauge.execution.table_cell import FLOOR, run_cell
from leakgauge.reading.sealed import opened
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import Client, Fact, Reconstruction, Scenario, TamperingServer, cell_name
from leakgauge.verdict.credible import is_recovered

TINY = Scenario(data="digits", model="mlp:hidden=16", trials=3, attacks=("linear",))
QUICK_DLG = "dlg:steps=1,restarts=1"


def scenario(**changes) -> Scenario:
    return dataclasses.replace(TINY, **changes)


def rows(report) -> dict[str, object]:
    return {cell_name(r.attack, r.defense, r.adaptive): r for r in report.summary}


def without_clock(report) -> list:
    return [dataclasses.replace(f, seconds=0.0) for f in report.findings]


# --- the flow ---------------------------------------------------------------------------------------


def test_an_undefended_mlp_leaks_every_digit():
    report, pictures = run_audit(TINY)
    row = rows(report)["linear | none | plain"]
    assert row.success_rate.recovered == row.success_rate.records == 3
    assert row.metrics["psnr_mean_per_image"].value > 60
    assert report.verdict.leaks
    assert "Without defense, linear recovers 3 of 3 records" in report.verdict.sentence
    recovered = pictures.recovered["linear | none | plain"]
    torch.testing.assert_close(recovered, pictures.true, rtol=0, atol=1e-3)


def test_both_floors_stand_beside_every_attack():
    report, pictures = run_audit(TINY)
    floor = rows(report)["linear | none | plain"].floor
    assert set(floor) == {"random-guess", "mean-image"}
    assert 0 < floor["mean-image"]["psnr_mean_per_image"].value < 20
    assert "mean-image | none | plain" in pictures.recovered


def test_every_trial_of_every_cell_is_a_finding_with_its_seed():
    report, _ = run_audit(scenario(seed=4, defenses=("gaussian:std=0.001",)))
    found = [f for f in report.findings if f.attack == "linear"]
    assert [(f.defense, f.adaptive, f.trial, f.seed) for f in found] == [
        (defense, adaptive, t, 4 + t)
        for defense, adaptive in (("none", False), ("gaussian:std=0.001", False), ("gaussian:std=0.001", True))
        for t in range(3)
    ]
    assert all(set(f.scores) == {"detail", "mse", "psnr", "ssim", "label_accuracy"} for f in found)
    assert all(len(f.records) == 1 for f in found)


def test_strong_noise_protects_and_the_verdict_is_about_the_defended_update():
    report, _ = run_audit(scenario(defenses=("gaussian:std=10",), gate="ssim=0.9"))
    assert not report.verdict.leaks
    assert report.verdict.gate.passed
    undefended, defended = report.verdict.configurations
    assert undefended.leaks
    assert not defended.leaks
    assert "no-better-than-mean" in rows(report)["linear | gaussian:std=10 | plain"].flags


def test_the_gate_fails_for_a_leaking_configuration():
    report, _ = run_audit(dataclasses.replace(TINY, gate="ssim=0.5"))
    assert not report.verdict.gate.passed


def test_a_table_is_judged_by_its_error():
    report, _ = run_audit(scenario(data="breast-cancer"))
    assert report.verdict.leaks
    assert "mse<=0.001" in report.verdict.sentence
    assert "ssim" not in report.findings[0].scores


def test_batches_are_scored_record_by_record():
    report, _ = run_audit(scenario(batch_size=3, batch_labels="distinct", trials=2))
    found = [f for f in report.findings if f.attack == "linear"]
    assert all(len(f.records) == 3 for f in found)
    assert rows(report)["linear | none | plain"].success_rate.records == 6


def test_a_weight_difference_is_audited_too():
    report, _ = run_audit(scenario(local=Client(kind="fedavg", lr=0.1)))
    assert report.verdict.leaks


def test_extra_metrics_are_scored():
    report, _ = run_audit(scenario(metrics=("mae",)))
    assert all("mae" in f.scores for f in report.findings)


def test_the_same_seed_gives_the_same_result_and_another_does_not():
    one, again, other = (
        run_audit(scenario(attacks=("linear", QUICK_DLG), defenses=("gaussian:std=0.01",), seed=s))[0]
        for s in (1, 1, 2)
    )
    assert without_clock(one) == without_clock(again)
    assert without_clock(one) != without_clock(other)


def test_a_small_residual_network_with_one_sample_can_be_audited():
    """Its deepest BatchNorm sees one value per channel, where torch has no batch statistics."""
    report, _ = run_audit(Scenario(data="photos32", model="resnet18:width=2", trials=1, attacks=("linear",)))
    assert "nothing could be scored" in report.verdict.sentence


# --- failures stay in the table ---------------------------------------------------------------------


def test_an_attack_that_does_not_fit_is_a_counted_failure_and_the_others_go_on():
    report, _ = run_audit(scenario(model="lenet-dlg:filters=3", attacks=("linear", QUICK_DLG)))
    row = rows(report)["linear | none | plain"]
    assert row.failed == row.trials == 3
    assert row.error.startswith("not applicable: linear needs")
    assert rows(report)["dlg | none | plain"].error is None


def test_a_hidden_fact_is_a_counted_failure(monkeypatch):
    monkeypatch.setattr(Linear, "needs", frozenset({Fact.LABELS}))
    report, _ = run_audit(TINY)
    assert "needs labels" in rows(report)["linear | none | plain"].error


def test_running_out_of_memory_is_a_counted_failure(monkeypatch):
    def too_big(*_):
        raise torch.OutOfMemoryError("too big")

    monkeypatch.setattr(Linear, "solve", too_big)
    report, _ = run_audit(TINY)
    assert rows(report)["linear | none | plain"].failed == 3


def test_bad_input_ends_the_run(monkeypatch):
    def refuse(*_):
        raise BadInput("something", allowed="else", got="this", do="that")

    monkeypatch.setattr(Linear, "solve", refuse)
    with pytest.raises(BadInput, match="something must be else"):
        run_audit(TINY)


def test_an_attack_that_returns_nan_is_scored_flagged_and_counted_as_failed(monkeypatch):
    def lost(self, observation, seeds, progress):
        n = len(seeds)
        inputs = torch.full((n, 1, 1, 8, 8), torch.nan)
        return Reconstruction(inputs, None, torch.full((n,), torch.nan), torch.ones(n), torch.ones(n))

    monkeypatch.setattr(Linear, "solve", lost)
    report, _ = run_audit(TINY)
    row = rows(report)["linear | none | plain"]
    assert row.failed == 3
    assert "diverged" in row.flags
    assert all(f.objective is None for f in report.findings if f.attack == "linear")
    json.dumps(report.as_dict(), allow_nan=False)


def test_labels_alone_can_be_claimed(monkeypatch):
    def labels_only(self, observation, seeds, progress):
        n = len(seeds)
        return Reconstruction(None, torch.zeros(n, 1, dtype=torch.long), torch.zeros(n), torch.ones(n), torch.ones(n))

    monkeypatch.setattr(Linear, "solve", labels_only)
    report, pictures = run_audit(TINY)
    assert "linear | none | plain" not in pictures.recovered
    found = [f for f in report.findings if f.attack == "linear"]
    assert all(f.records == () and f.scores["label_accuracy"] is not None for f in found)


# --- flags ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("defense", ["gaussian:std=0", "prune:share=0", "laplace:scale=0"])
def test_a_declared_defense_without_effect_is_flagged(defense):
    report, _ = run_audit(scenario(defenses=(defense,)))
    assert "defense-without-effect" in rows(report)[f"linear | {defense} | plain"].flags
    assert "defense-without-effect" not in rows(report)["linear | none | plain"].flags
    assert "defense-without-effect" in {f.id for f in report.flags}


def test_a_working_defense_is_not_flagged():
    report, _ = run_audit(scenario(defenses=("gaussian:std=0.001",)))
    assert "defense-without-effect" not in {f.id for f in report.flags}


def test_given_labels_are_flagged_on_attacks_and_not_on_floors():
    report, _ = run_audit(scenario(threat_model="honest-but-curious+labels"))
    assert "labels-given" in rows(report)["linear | none | plain"].flags
    assert "labels-given" not in rows(report)["mean-image | none | plain"].flags
    assert "labels" in report.facts


def test_an_attack_that_gets_nowhere_is_flagged():
    report, _ = run_audit(scenario(attacks=("dlg:steps=1,restarts=1,lr=1e-9,line_search=fixed",)))
    flags = rows(report)["dlg | none | plain"].flags
    assert "objective-did-not-fall" in flags
    assert "no-better-than-mean" in flags


def test_an_attack_that_stops_where_it_began_is_flagged_and_its_records_are_not_believed():
    report, _ = run_audit(scenario(attacks=("dlg:absolute_threshold=1e9,restarts=1",)))
    row = rows(report)["dlg | none | plain"]
    assert {"never-moved", "objective-did-not-fall"} <= set(row.flags)
    assert not any(is_recovered(report.data, f, 0) for f in report.findings if f.attack == "dlg")


def test_floors_are_told_nothing_of_the_update():
    assert FLOOR.facts == {Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.PUBLIC_DATA}
    report, _ = run_audit(scenario(threat_model="eavesdropper"))
    assert rows(report)["mean-image | none | plain"].error is None  # a floor is for the reader, not an attacker


# --- servers that change the model ------------------------------------------------------------------


@dataclass(frozen=True)
class Shrink(TamperingServer):
    """Sends the model with its first bias raised, so that every unit is alive; reads it like `linear`."""

    name: ClassVar[str] = "shrink"
    summary: ClassVar[str] = "test"
    paper: ClassVar[str] = "none"
    needs: ClassVar[frozenset[Fact]] = Linear.needs

    def prepare(self, model: nn.Module, data, public=None) -> nn.Module:
        sent = copy.deepcopy(model)
        with torch.no_grad():
            sent.fc1.bias.add_(100.0)
        return sent

    def solve(self, observation, seeds, progress):
        assert observation.model.fc1.bias.min() > 50  # it sees the model it sent
        return Linear()(observation, seeds, progress)


class Rebuild(Shrink):
    name, changes = "rebuild", "architecture"


@pytest.mark.parametrize(
    ("server", "told", "runs"),
    [
        (Shrink(), "honest-but-curious", False),
        (Shrink(), "eavesdropper", False),
        (Shrink(), "malicious-parameters", True),
        (Shrink(), "malicious-architecture", True),
        (Rebuild(), "malicious-parameters", False),
        (Rebuild(), "malicious-architecture", True),
    ],
)
def test_a_tampering_server_runs_only_where_the_threat_model_lets_it(server, told, runs):
    setup = load_setup(scenario(threat_model=told), None, "cpu")
    before = copy.deepcopy(setup.model.state_dict())
    findings, recovered = run_cell(setup, Cell(server, "none", False, server.name), lambda _: None)
    if runs:
        assert all(f.error is None for f in findings)
        assert (recovered - setup.batch.inputs).abs().max() < 0.05
    else:
        assert all(f"may not; use --threat-model malicious-{server.changes}" in f.error for f in findings)
        assert recovered is None
    assert all(torch.equal(v, before[n]) for n, v in setup.model.state_dict().items())


# --- the user's own code ----------------------------------------------------------------------------

OWN = """
    from __future__ import annotations
    from dataclasses import dataclass
    from typing import ClassVar
    from leakgauge.attacks.linear import Linear
    from leakgauge.types import Defense

    @dataclass(frozen=True)
    class Mine(Linear):
        name: ClassVar[str] = "mine"

    @dataclass(frozen=True)
    class Scaled(Defense):
        name: ClassVar[str] = "scaled"
        summary: ClassVar[str] = "factor"
        paper: ClassVar[str] = "none"

        def wrap(self, step):
            return lambda *args: step(*args).map(lambda name, t: FACTOR * t)
"""


@pytest.fixture
def own(tmp_path):
    def write(factor: float):
        path = tmp_path / "own.py"
        path.write_text(textwrap.dedent(OWN).replace("FACTOR", str(factor)))
        return path

    return write


def test_an_own_attack_against_an_own_defense(own):
    path = own(2.0)
    report, _ = run_audit(scenario(attacks=(f"{path}:Mine",), defenses=(f"{path}:Scaled",)))
    assert rows(report)[f"mine | {path}:Scaled | plain"].success_rate.recovered == 3  # a ratio does not see a factor
    assert report.verdict.leaks


def test_an_edit_to_an_own_defense_makes_new_results(own, tmp_path):
    audited = scenario(defenses=(f"{own(2.0)}:Scaled",))
    first, _ = run_audit(audited, out=tmp_path / "run")
    own(0.0)
    second, _ = run_audit(audited, out=tmp_path / "run")
    assert first.verdict.leaks
    assert not second.verdict.leaks


# --- interruption and resumption --------------------------------------------------------------------


def interrupt_at(cell: str):
    def watch(number, cells, name, share):
        if name == cell:
            raise KeyboardInterrupt

    return watch


def count_runs(monkeypatch) -> list[str]:
    ran: list[str] = []
    original = units.run_cell

    def counting(setup, cell, *rest):
        ran.append(cell.name)
        return original(setup, cell, *rest)

    monkeypatch.setattr(units, "run_cell", counting)
    return ran


def test_an_interrupt_keeps_the_finished_cells_and_a_resume_reuses_them(tmp_path, monkeypatch):
    planned = scenario(attacks=("linear", QUICK_DLG), defenses=("prune",))
    halted, pictures = run_audit(planned, out=tmp_path, watch=interrupt_at("dlg | none | plain"))
    assert halted.interrupted
    assert set(rows(halted)) == {"mean-image | none | plain", "random-guess | none | plain", "linear | none | plain"}
    assert "linear | none | plain" in pictures.recovered

    ran = count_runs(monkeypatch)
    resumed, _ = run_audit(planned, out=tmp_path)
    assert not resumed.interrupted
    assert "linear | none | plain" not in ran
    assert "dlg | none | plain" in ran
    uninterrupted, _ = run_audit(planned)
    assert without_clock(resumed) == without_clock(uninterrupted)


def test_an_interrupt_in_the_middle_of_a_cell_loses_only_that_cell(tmp_path, monkeypatch):
    def halt(self, observation, seeds, progress):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Linear, "solve", halt)
        report, _ = run_audit(TINY, out=tmp_path)
    assert report.interrupted
    assert report.verdict.sentence == "Nothing was measured."
    assert len(list((tmp_path / "cells").iterdir())) == 2  # the floors


def test_a_finished_run_is_not_run_again_unless_asked(tmp_path, monkeypatch):
    first, _ = run_audit(TINY, out=tmp_path)
    ran = count_runs(monkeypatch)
    second, pictures = run_audit(TINY, out=tmp_path)
    assert ran == []
    assert second.findings == first.findings
    assert "linear | none | plain" in pictures.recovered
    run_audit(TINY, out=tmp_path, fresh=True)
    assert len(ran) == 3


def test_a_changed_scenario_never_meets_an_old_cell(tmp_path, monkeypatch):
    run_audit(TINY, out=tmp_path)
    ran = count_runs(monkeypatch)
    run_audit(scenario(seed=1), out=tmp_path)
    assert len(ran) == 3


def test_another_defense_reuses_the_undefended_cells(tmp_path, monkeypatch):
    run_audit(TINY, out=tmp_path)
    ran = count_runs(monkeypatch)
    run_audit(scenario(defenses=("prune",)), out=tmp_path)
    assert ran == ["linear | prune | plain", "linear | prune | adaptive"]


def test_a_broken_cell_is_done_again(tmp_path, monkeypatch):
    run_audit(TINY, out=tmp_path)
    key = opened(tmp_path / "cells.json")["linear | none | plain"]
    (path,) = (tmp_path / "cells").glob(f"{key}.*")
    path.write_bytes(path.read_bytes()[:50])
    ran, told = count_runs(monkeypatch), []
    report, _ = run_audit(TINY, out=tmp_path, notice=told.append)
    assert ran == ["linear | none | plain"]
    assert len(told) == 1
    assert f"{path} is damaged" in told[0]
    assert report.verdict.leaks


def test_the_pictures_of_a_run_can_be_read_again(tmp_path):
    _, pictures = run_audit(TINY, out=tmp_path, keep_private=True)
    again = Store(tmp_path).pictures()
    assert torch.equal(again.true, pictures.true)
    assert again.recovered.keys() == pictures.recovered.keys()


def test_progress_names_every_cell(tmp_path):
    told = []
    run_audit(TINY, watch=lambda number, cells, name, share: told.append((number, cells, name, share)))
    assert {name for _, _, name, _ in told} == set(rows(run_audit(TINY)[0]))
    assert all(cells == 3 and 0 <= number < 3 and 0 <= share <= 1 for number, cells, _, share in told)


def test_what_could_not_run_is_tried_again(tmp_path, monkeypatch):
    def too_big(*_):
        raise torch.OutOfMemoryError("too big")

    with monkeypatch.context() as patch:
        patch.setattr(Linear, "solve", too_big)
        run_audit(TINY, out=tmp_path)
    report, _ = run_audit(TINY, out=tmp_path)
    assert report.verdict.leaks


def test_a_first_defense_beside_the_default_suite_reuses_the_undefended_cells(tmp_path, monkeypatch, small_suite):
    small_suite("quick", 1, ("linear",), ())
    monkeypatch.setattr("leakgauge.audit.run.why_stopped", lambda *_: "")
    run_audit(scenario(attacks=()), out=tmp_path)
    ran = count_runs(monkeypatch)
    run_audit(scenario(attacks=(), defenses=("prune",)), out=tmp_path)
    assert ran == ["linear | prune | plain", "linear | prune | adaptive"]


def test_two_versions_of_one_attack_have_rows_and_pictures_of_their_own():
    report, pictures = run_audit(scenario(attacks=("linear", "dlg:steps=2")))
    assert rows(report)["linear | none | plain"].trials == 3
    assert rows(report)["dlg | none | plain"].trials == 3
    assert len(pictures.recovered) == 4


def test_two_rows_that_come_to_the_same_attack_are_both_run(tmp_path, monkeypatch):
    """Which has happened where a defense tells two versions of an attack the same."""
    monkeypatch.setattr(audit, "_key", lambda setup, cell: f"{cell.attack.name}-{cell.defense}")
    for out in (None, tmp_path):
        report, pictures = run_audit(scenario(attacks=("linear", "dlg:steps=2")), out=out)
        assert rows(report)["linear | none | plain"].trials == 3
        assert rows(report)["dlg | none | plain"].trials == 3
        assert len(pictures.recovered) == 4

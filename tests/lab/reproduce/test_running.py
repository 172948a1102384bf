"""Finished runs are kept and reused; what cannot run here is told and leaves no file."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from leakgauge.execution.locks import claimed
from leakgauge.lab.reproduce import running
from leakgauge.lab.reproduce.recipe import Cell, Run
from leakgauge.lab.reproduce.running import Result, findings_of, load, results_of, run_all, run_one, save


def test_a_finished_run_is_read_back_exactly_and_not_made_again(small_scenario, tmp_path, monkeypatch):
    scenario = small_scenario()
    assert run_all([scenario], tmp_path) == {}
    before = load(scenario, tmp_path)
    assert before is not None
    assert {f.attack for f in before.findings} == {"linear"}, "the floors are not kept"
    monkeypatch.setattr(running, "run_one", lambda *_: pytest.fail("ran again"))
    run_all([scenario], tmp_path)
    assert load(scenario, tmp_path) == before


def test_fresh_runs_again(small_scenario, tmp_path, monkeypatch):
    run_all([small_scenario()], tmp_path)
    calls = []
    monkeypatch.setattr(running, "run_one", lambda *a: calls.append(a) or run_one(*a))
    run_all([small_scenario()], tmp_path, fresh=True)
    assert len(calls) == 1


def test_another_scenario_is_another_file(small_scenario, tmp_path):
    run_all([small_scenario(), small_scenario(seed=1)], tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_what_cannot_run_here_is_told_and_the_rest_goes_on(small_scenario, tmp_path):
    missing = small_scenario(data="lfw")
    unfit = small_scenario(attacks=("rgap",), batch_size=2)
    refused = run_all([missing, unfit, small_scenario()], tmp_path / "runs", data_root=tmp_path / "no-data")
    assert set(refused) == {missing, unfit}
    assert "lfw" in refused[missing]
    assert "rgap solves for one sample" in refused[unfit]
    assert len(list((tmp_path / "runs").glob("*.json"))) == 1


def test_half_a_file_is_no_result(small_scenario, tmp_path):
    run_all([small_scenario()], tmp_path)
    (path,) = tmp_path.glob("*.json")
    path.write_text(path.read_text()[:100])
    assert load(small_scenario(), tmp_path) is None


def test_an_interrupt_keeps_what_is_finished(small_scenario, tmp_path, monkeypatch):
    def interrupted(scenario, *rest):
        if scenario.seed:
            raise KeyboardInterrupt
        return run_one(scenario, *rest)

    monkeypatch.setattr(running, "run_one", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_all([small_scenario(), small_scenario(seed=1)], tmp_path)
    assert load(small_scenario(), tmp_path) is not None


def test_half_a_scenario_is_an_interrupt(small_scenario, monkeypatch):
    real = running.run_audit

    def cut(*args, **more):
        report, pictures = real(*args, **more)
        return dataclasses.replace(report, interrupted=True), pictures

    monkeypatch.setattr(running, "run_audit", cut)
    with pytest.raises(KeyboardInterrupt):
        run_one(small_scenario(), "cpu", None)


def test_of_a_sum_of_clients_the_pictures_of_the_victim_are_kept(small_scenario):
    """Its findings hold the records of all clients, the pictures those of the one who is attacked."""
    found = run_one(small_scenario(defenses=("secure-aggregation:clients=3",)), "cpu", None)
    assert {len(f.records) for f in found.findings} == {3}
    assert found.exposed


def test_a_run_is_there_when_all_its_seeds_are(small_scenario, tmp_path):
    run = Run(small_scenario(), seeds=2)
    run_all(run.scenarios[:1], tmp_path)
    assert results_of(run, tmp_path) is None
    run_all(run.scenarios, tmp_path)
    both = results_of(run, tmp_path)
    assert [f.seed for f in findings_of(Cell("", "", run, {}), both)] == [0, 1, 1000, 1001]


def test_the_adaptive_cell_reads_those_who_know_the_defense(victim, small_scenario, tmp_path):
    """Of several that do, the one that recovers most."""
    run = Run(small_scenario())
    weak, strong = (
        victim(adaptive=True, attack=f"cpl ({way})", scores={"psnr": psnr}) for way, psnr in (("a", 5.0), ("b", 9.0))
    )
    save(run.scenario, tmp_path, Result((victim(), weak, strong), {"device": "cpu"}, 1.0))
    results = results_of(run, tmp_path)
    assert [f.attack for f in findings_of(Cell("", "", run, {}), results)] == [victim().attack]
    assert [f.attack for f in findings_of(Cell("", "", run, {}, variant="adaptive"), results)] == ["cpl (b)"]


def test_of_a_tables_attackers_the_one_with_the_least_error_speaks(victim, small_scenario, tmp_path):
    run = Run(small_scenario())
    ways = (("a", 0.5), ("b", 0.1))
    versions = [victim(adaptive=True, attack=f"cpl ({way})", scores={"mse": e}) for way, e in ways]
    save(run.scenario, tmp_path, Result(tuple(versions), {"device": "cpu"}, 1.0))
    found = findings_of(Cell("", "", run, {}, variant="adaptive"), results_of(run, tmp_path))
    assert [f.attack for f in found] == ["cpl (b)"]


def test_progress_of_one_run_is_its_share_among_all(small_scenario, tmp_path):
    seen = []
    run_all([small_scenario(), small_scenario(seed=1)], tmp_path, watch=lambda *told: seen.append(told))
    assert {(number, count) for number, count, _, _ in seen} == {(0, 2), (1, 2)}
    assert all(0 <= share <= 1 for *_, share in seen)
    assert len({name for _, _, name, _ in seen}) == 2


def test_what_another_process_runs_is_left_for_last_and_then_read(small_scenario, tmp_path, monkeypatch):
    """The lock is held by another handle, as another process would hold it, until its result is there."""
    theirs, ours = small_scenario(), small_scenario(seed=1)
    ran = []

    def one(scenario, *rest):
        ran.append(scenario)
        if scenario == ours:  # meanwhile the other process finishes
            save(theirs, tmp_path, Result((), {}, 1.0))
            held.close()
        return run_one(scenario, *rest)

    monkeypatch.setattr(running, "run_one", one)
    held = contextlib.ExitStack()
    assert held.enter_context(claimed(running._path(theirs, tmp_path), wait=False))
    order = []
    run_all([theirs, ours], tmp_path, finished=order.append)
    assert ran == [ours]
    assert order == [ours, theirs]

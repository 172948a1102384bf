"""Processes of a cluster are lost, of all causes; their units are not. Most of it without a cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from leakgauge.engine import memory
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution import ray as on_ray
from leakgauge.execution.ray import LOSSES, OnRay, Start, UnitTask, fit, streamed
from leakgauge.execution.scheduler import STARTS, Scheduler
from leakgauge.execution.work_units import SIZES, Callbacks, Part, UnitRunner, units_of
from leakgauge.execution.worker import Notice, Progress, Ready, Refused, SetupSource, packed
from leakgauge.setup.plan import plan
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario

SCENARIO = Scenario(data="digits", model="mlp:hidden=8", trials=6, attacks=("linear",))
SOON = {"RAY_health_check_period_ms": "500"}  # a dead node is found sooner; a slow one must not be taken for dead
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "reliability" / "ray_nodes.py"


class Lost(Exception):
    """As Ray calls every loss."""


class OutOfMemory(Lost):
    pass


class Dead(Lost):
    pass


class Broken(Lost):
    pass


def node(cpus, gpus, alive=True):
    return {"Alive": alive, "Resources": {"CPU": float(cpus), "GPU": float(gpus)}}


class Imagined:
    """A Ray without processes. `fate` says what happens to the process that gets a unit: None, or what is raised."""

    __version__ = "0"
    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=Broken, RayActorError=Dead, OutOfMemoryError=OutOfMemory)

    def __init__(self, setup, *nodes, fate=lambda *_: None, loading=lambda _: Ready("cpu")):
        self.there, self.fate, self.loading = list(nodes), fate, loading
        self.hired, self.dismissed, self.given = [], [], []
        self.runner = UnitRunner(setup)

    def nodes(self):
        return list(self.there)

    def put(self, source):
        return source

    def remote(self, _):
        def hire(asked, start, _):
            self.hired.append((asked["num_gpus"], start))
            task = SimpleNamespace(number=len(self.hired))
            task.load = streaming(lambda: iter([self.loading(task.number)]))
            task.run = streaming(lambda unit: self._said(task.number, pickle.loads(unit)))
            return task

        return SimpleNamespace(options=lambda **asked: SimpleNamespace(remote=partial(hire, asked)))

    def _said(self, task, unit):
        self.given.append(unit)
        said = [Progress(0.0), Notice("a word"), *self.runner.parts(unit, Callbacks())]
        fate = self.fate(task, unit)
        return iter(said if fate is None else [*said[:2], fate])

    def kill(self, task, no_restart):
        assert no_restart
        self.dismissed.append(task.number)

    def wait(self, streams, num_returns, timeout):
        return [streams[-1]], streams[:-1]

    def get(self, said):
        if isinstance(said, Exception):
            raise said
        return packed(said)


def streaming(call):
    return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=call))


@pytest.fixture(scope="module")
def setup():
    return load_setup(SCENARIO, None, "cpu")


@pytest.fixture
def units(setup, monkeypatch):
    """The six trials of one cell, two by two."""
    monkeypatch.setitem(SIZES, "cpu", 2)
    cell = plan(SCENARIO)[-1]
    return units_of("key", cell, range(6), 6, torch.device("cpu"), 3, {})


def came(scheduler, setup, units, callbacks=None):
    parts = scheduler.run(setup, iter(units), callbacks or Callbacks())
    return [t.finding for _, part in parts for t in part.trials]


def on(cluster, **more):
    return Scheduler(OnRay(cluster, **{"device": "cpu", **more}))


def test_every_trial_comes_back_once_though_every_unit_loses_its_first_process(setup, units):
    tried = set()

    def first_time(_, unit):
        return None if unit.name in tried else tried.add(unit.name) or Lost("its node is gone")

    cluster = Imagined(setup, node(1, 0), node(1, 0), fate=first_time)
    found = came(on(cluster), setup, units)
    assert sorted(f.trial for f in found) == list(range(6))
    assert not any(f.error for f in found)
    assert len(cluster.given) == 6
    assert len(cluster.dismissed) == 3  # one that is out of reach must not go on either


def test_a_unit_that_loses_every_process_is_given_up_and_stands_as_failed(setup, units):
    cluster = Imagined(setup, node(2, 0), fate=lambda _, unit: Lost("it died") if unit.number == 1 else None)
    found = came(on(cluster), setup, units)
    failed = {f.trial: f.error for f in found if f.error}
    text = f"given up: {LOSSES} processes on Ray were lost over it, the last one: it died"
    assert failed == {2: text, 3: text}
    assert sorted(f.trial for f in found) == list(range(6))


def test_a_unit_whose_node_ran_out_of_memory_is_run_in_smaller_lots(setup, units):
    def alone(_, unit):
        return None if unit.at_once == 1 else OutOfMemory("short of memory")

    found = came(on(Imagined(setup, node(1, 0), fate=alone)), setup, units)
    assert sorted(f.trial for f in found) == list(range(6))
    assert not any(f.error for f in found)


def test_no_more_units_are_drawn_than_there_is_room_for(setup, units):
    drawn = []
    cluster = Imagined(setup, node(2, 0))
    parts = on(cluster).run(setup, (drawn.append(c) or c for c in units), Callbacks())
    next(parts)
    assert len(drawn) == len(cluster.hired) == 2


def test_room_follows_the_nodes(setup, monkeypatch):
    monkeypatch.setattr(on_ray, "_LOOK", 0.0)
    cluster = Imagined(setup, node(2, 0), node(1, 0))
    transport = OnRay(cluster, device="cpu")
    assert transport.slots == 3
    cluster.there.pop()
    assert transport.slots == 2
    cluster.there.clear()
    assert transport.slots == 1  # somebody may come
    assert transport.environment == {"threads": "1", "ray": "0, up to 2 nodes"}


def test_a_cluster_without_a_ready_process_is_said_to_be_waited_for(setup, units, monkeypatch):
    monkeypatch.setattr(on_ray, "_LONG", -1.0)
    lines = []
    came(on(Imagined(setup, node(1, 0))), setup, units, Callbacks(notice=lines.append))
    assert lines[0] == "Ray has no process ready after -1 s (each needs 1 CPU); still waiting"


def test_as_many_processes_are_asked_for_as_somebody_said(setup):
    assert OnRay(Imagined(setup), device="cpu", at_most=4).slots == 4


def test_words_between_the_parts_are_passed_on(setup, units):
    shares, lines = [], []
    callbacks = Callbacks(lambda unit, share: shares.append((unit.number, share)), lines.append)
    came(on(Imagined(setup, node(1, 0))), setup, units, callbacks)
    assert shares == [(0, 0.0), (1, 0.0), (2, 0.0)]
    assert set(lines) == {"a word"}


def test_close_ends_all_processes_and_the_next_setup_has_its_own(setup, units):
    cluster = Imagined(setup, node(2, 0))
    scheduler = on(cluster)
    came(scheduler, setup, units)
    came(scheduler, setup, units)
    assert len(cluster.hired) == 2
    scheduler.close()
    assert sorted(cluster.dismissed) == [1, 2]
    came(scheduler, setup, units)
    assert len(cluster.hired) == 4


def test_what_every_process_would_refuse_ends_the_run(setup, units):
    for refused, kind in ((Refused("no data", True), LeakgaugeError), (Refused("a bug", False), RuntimeError)):
        cluster = Imagined(setup, node(1, 0), loading=lambda _, said=refused: said)
        with pytest.raises(kind, match=refused.text):
            came(on(cluster), setup, units)


def test_processes_that_are_lost_before_they_are_ready_are_not_started_for_ever(setup, units):
    cluster = Imagined(setup, node(1, 0), loading=lambda _: Lost("gone"))
    with pytest.raises(LeakgaugeError, match=f"{STARTS} processes on Ray in a row were lost .*: gone"):
        came(on(cluster), setup, units)
    assert len(cluster.hired) == STARTS


def test_on_gpus_a_process_asks_for_its_share_of_one(setup, units, monkeypatch):
    monkeypatch.setattr(on_ray, "pick_device", lambda _: torch.device("cuda"))
    cluster = Imagined(setup, node(16, 1), node(16, 0))
    transport = OnRay(cluster, device="cuda", gpus=0.5)
    assert transport.slots == 2
    came(Scheduler(transport), setup, units)
    assert [(gpus, start.device, start.gpus, start.processes) for gpus, start in cluster.hired] == [
        (0.5, "cuda", 0.5, 2)
    ] * 2
    with pytest.raises(BadInput, match=r"a cluster of which a node has 1 CPU and 1 GPU, got none such"):
        OnRay(Imagined(setup, node(16, 0.5)), device="cuda")
    with pytest.raises(BadInput, match="device must be auto, cpu or cuda on a cluster, got cuda:0"):
        OnRay(cluster, device="cuda:0")


@pytest.mark.parametrize("gpus", [0.0, -1.0, 1.5, float("nan")])
def test_a_process_uses_one_gpu_at_most(setup, gpus):
    with pytest.raises(BadInput, match="GPUs for each task must be above 0 and at most 1"):
        OnRay(Imagined(setup, node(1, 1)), device="cpu", gpus=gpus)


@pytest.mark.parametrize(
    ("share", "node", "processes"),
    [
        (0, (4, 0), 4),
        (0, (0.5, 2), 0),
        (1.0, (16, 2), 2),
        (0.1, (16, 1), 10),
        (0.3, (16, 1), 3),
        (0.25, (2, 1), 2),  # each has a CPU to itself
        (0.5, (16, 0), 0),
    ],
)
def test_room_on_a_node(share, node, processes):
    assert fit(*node, share) == processes


def test_nodes_that_are_gone_do_not_count(setup):
    bare = {"Alive": True, "Resources": {}}
    assert OnRay(Imagined(setup, node(4, 1), node(4, 0, alive=False), bare), device="cpu").slots == 4


def test_what_a_loss_is_called(setup, units):
    errors = pytest.importorskip("ray", reason="the package ray is not installed").exceptions
    died = errors.RayActorError(
        "id", "The actor died.\n\tpid: 1\nThe actor is dead because its node has died. More words.", False, False
    )
    ray = Imagined(setup, node(1, 0), fate=lambda *_: died)
    ray.exceptions = errors
    assert came(on(ray), setup, units[:1])[0].error.endswith("lost over it, the last one: its node has died")
    for error, lots in ((errors.ObjectLostError("0" * 56, None, ""), [None]), (errors.OutOfMemoryError("full"), [1])):
        fates = iter([error])
        ray = Imagined(setup, node(1, 0), fate=lambda *_, fates=fates: next(fates, None))
        ray.exceptions = errors
        assert not any(f.error for f in came(on(ray), setup, units[:1]))
        assert [u.at_once for u in ray.given] == [None, *lots]


def test_a_node_that_cannot_start_our_code_is_a_refusal_and_no_loss(setup, units):
    text = "The actor died because of an error raised in its creation task, ...\nModuleNotFoundError: No module 'x'"
    ray = Imagined(setup, node(1, 0), loading=lambda _: Dead(text))
    with pytest.raises(LeakgaugeError, match=r"\(ModuleNotFoundError: No module 'x'\); install it there"):
        came(on(ray), setup, units)
    assert len(ray.hired) == 1


def test_an_error_in_our_code_on_a_node_ends_the_run(setup, units):
    with pytest.raises(RuntimeError, match="Traceback of the node"):
        came(on(Imagined(setup, node(1, 0), fate=lambda *_: Broken("Traceback of the node"))), setup, units)


def test_a_cluster_whose_node_is_killed_and_whose_user_interrupts_gives_the_same_findings():
    """The benchmark, small: a real cluster of two nodes, one killed, one added, Ctrl-C, and the same run again."""
    pytest.importorskip("ray", reason="the package ray is not installed")
    small = ("--trials", "40", "--nodes", "2", "--model", "mlp:hidden=8", "--attacks", "linear dlg:steps=2,restarts=1")
    ran = subprocess.run(
        [sys.executable, str(BENCHMARK), *small, "--no-calm", "--interrupt"],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | SOON,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["nodes_killed"], told["nodes_added"], told["interrupts"]) == (1, 1, 1)
    assert told["findings"] == told["findings_expected"] == 160
    assert (told["lost"], told["twice"], told["failed"], told["different"]) == (0, 0, 0, 0)
    assert told["processes_left"] == 0


# --- what runs on a node, in this process here ------------------------------------------------------------


@pytest.fixture
def own_process(monkeypatch):
    """A task takes over its process; this one goes on."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("LEAKGAUGE_DATA", os.environ.get("LEAKGAUGE_DATA", "data"))
    for name in ("_allowed", "_processes", "_of_gpu"):
        monkeypatch.setattr(memory, name, getattr(memory, name))
    folder = Path.cwd()
    yield
    os.chdir(folder)


def messages_of(stream):
    return [pickle.loads(message) for message in stream]


def task_for(setup, **start):
    here = dataclasses.replace(Start.here("cpu", 2, 1.0), **start)
    return UnitTask(here, packed(SetupSource.of(setup, None)))


@pytest.mark.usefixtures("own_process")
def test_it_loads_the_setup_and_gives_the_trials_that_another_process_would(setup):
    task = task_for(setup)
    assert messages_of(task.load()) == [Ready("cpu")]
    (unit,) = units_of("key", plan(SCENARIO)[-1], range(6), 6, torch.device("cpu"), 1, {})
    words = messages_of(task.run(packed(unit)))
    (part,) = [w for w in words if isinstance(w, Part)]
    (expected,) = UnitRunner(setup).parts(unit, Callbacks())
    for ours, theirs in zip(part.trials, expected.trials, strict=True):
        assert dataclasses.replace(ours.finding, seconds=0) == dataclasses.replace(theirs.finding, seconds=0)
        assert torch.equal(ours.recovered, theirs.recovered)
    assert all(isinstance(w, Part | Progress | Notice) for w in words)


@pytest.mark.usefixtures("own_process")
def test_it_works_where_the_run_was_started_and_knows_how_many_share_the_node(setup, tmp_path):
    messages_of(task_for(setup, folder=str(tmp_path), processes=4, gpus=0.5).load())
    assert Path.cwd() == tmp_path
    assert sys.meta_path[-1].folder == str(tmp_path)
    assert (memory._processes, memory._of_gpu) == (4, 0.5)


@pytest.mark.usefixtures("own_process")
def test_a_node_without_that_folder_works_where_it_is(setup):
    before = Path.cwd()
    assert messages_of(task_for(setup, folder="/nowhere/at/all").load()) == [Ready("cpu")]
    assert Path.cwd() == before


@pytest.mark.usefixtures("own_process")
def test_a_node_that_says_where_its_data_lies_is_believed(setup, monkeypatch):
    monkeypatch.setenv("LEAKGAUGE_DATA", "of-the-node")
    messages_of(task_for(setup, data="of-the-starter").load())
    assert os.environ["LEAKGAUGE_DATA"] == "of-the-node"
    monkeypatch.delenv("LEAKGAUGE_DATA")
    messages_of(task_for(setup, data="of-the-starter").load())
    assert os.environ["LEAKGAUGE_DATA"] == "of-the-starter"


@pytest.mark.usefixtures("own_process")
def test_another_version_is_refused_before_anything_is_loaded(setup):
    (refused,) = messages_of(task_for(setup, version="0.0.1").load())
    assert refused.expected
    assert "the run was started with 0.0.1; install the same on all nodes" in refused.text


@pytest.mark.usefixtures("own_process")
def test_other_weights_on_a_node_are_refused(setup):
    other = dataclasses.replace(SetupSource.of(setup, None), key="another")
    (refused,) = messages_of(UnitTask(Start.here("cpu", 1, 1.0), packed(other)).load())
    assert refused.expected
    assert "loaded other samples or weights" in refused.text


@pytest.mark.usefixtures("own_process")
def test_words_come_while_the_work_goes_on():
    go_on = threading.Event()

    def work(say):
        say(Progress(0.5))
        assert go_on.wait(10)
        say(Notice("done"))

    words = streamed(work)
    assert pickle.loads(next(words)) == Progress(0.5)
    go_on.set()
    assert messages_of(words) == [Notice("done")]


@pytest.mark.usefixtures("own_process")
def test_a_mistake_is_told_with_its_traceback():
    def work(say):
        raise ZeroDivisionError

    (refused,) = messages_of(streamed(work))
    assert isinstance(refused, Refused)
    assert not refused.expected
    assert "ZeroDivisionError" in refused.text

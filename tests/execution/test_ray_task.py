"""What runs on a node: in this process here, with its words in a stream."""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
import threading
from pathlib import Path

import pytest
import torch

from leakgauge.engine import memory
from leakgauge.execution.ray_task import Start, UnitTask, streamed
from leakgauge.execution.work_units import Callbacks, Part, UnitRunner, units_of
from leakgauge.execution.worker import Notice, Progress, Ready, Refused, SetupSource, packed
from leakgauge.setup.plan import plan
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario

SCENARIO = Scenario(data="digits", model="mlp:hidden=8", trials=3, attacks=("linear",))


@pytest.fixture(autouse=True)
def afterwards(monkeypatch):
    """A task takes over its process; this one goes on."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("LEAKGAUGE_DATA", os.environ.get("LEAKGAUGE_DATA", "data"))
    for name in ("_allowed", "_processes", "_of_gpu"):
        monkeypatch.setattr(memory, name, getattr(memory, name))
    folder = Path.cwd()
    yield
    os.chdir(folder)


@pytest.fixture(scope="module")
def setup():
    return load_setup(SCENARIO, None, "cpu")


def said(stream):
    return [pickle.loads(message) for message in stream]


def task_for(setup, **start):
    here = dataclasses.replace(Start.here("cpu", 2, 1.0), **start)
    return UnitTask(here, packed(SetupSource.of(setup, None)))


def test_it_loads_the_setup_and_gives_the_trials_that_another_process_would(setup):
    task = task_for(setup)
    assert said(task.load()) == [Ready("cpu")]
    (unit,) = units_of("key", plan(SCENARIO)[-1], range(3), 3, torch.device("cpu"), 1, {})
    words = said(task.run(packed(unit)))
    (part,) = [w for w in words if isinstance(w, Part)]
    (expected,) = UnitRunner(setup).parts(unit, Callbacks())
    for ours, theirs in zip(part.trials, expected.trials, strict=True):
        assert dataclasses.replace(ours.finding, seconds=0) == dataclasses.replace(theirs.finding, seconds=0)
        assert torch.equal(ours.recovered, theirs.recovered)
    assert all(isinstance(w, Part | Progress | Notice) for w in words)


def test_it_works_where_the_run_was_started_and_knows_how_many_share_the_node(setup, tmp_path):
    said(task_for(setup, folder=str(tmp_path), processes=4, gpus=0.5).load())
    assert Path.cwd() == tmp_path
    assert sys.meta_path[-1].folder == str(tmp_path)
    assert (memory._processes, memory._of_gpu) == (4, 0.5)


def test_a_node_without_that_folder_works_where_it_is(setup):
    before = Path.cwd()
    assert said(task_for(setup, folder="/nowhere/at/all").load()) == [Ready("cpu")]
    assert Path.cwd() == before


def test_a_node_that_says_where_its_data_lies_is_believed(setup, monkeypatch):
    monkeypatch.setenv("LEAKGAUGE_DATA", "of-the-node")
    said(task_for(setup, data="of-the-starter").load())
    assert os.environ["LEAKGAUGE_DATA"] == "of-the-node"
    monkeypatch.delenv("LEAKGAUGE_DATA")
    said(task_for(setup, data="of-the-starter").load())
    assert os.environ["LEAKGAUGE_DATA"] == "of-the-starter"


def test_another_version_is_refused_before_anything_is_loaded(setup):
    (refused,) = said(task_for(setup, version="0.0.1").load())
    assert refused.expected
    assert "the run was started with 0.0.1; install the same on all nodes" in refused.text


def test_other_weights_on_a_node_are_refused(setup):
    other = dataclasses.replace(SetupSource.of(setup, None), key="another")
    (refused,) = said(UnitTask(Start.here("cpu", 1, 1.0), packed(other)).load())
    assert refused.expected
    assert "loaded other samples or weights" in refused.text


def test_words_come_while_the_work_goes_on():
    go_on = threading.Event()

    def work(say):
        say(Progress(0.5))
        assert go_on.wait(10)
        say(Notice("done"))

    words = streamed(work)
    assert pickle.loads(next(words)) == Progress(0.5)
    go_on.set()
    assert said(words) == [Notice("done")]


def test_a_mistake_is_told_with_its_traceback():
    def work(say):
        raise ZeroDivisionError

    (refused,) = said(streamed(work))
    assert isinstance(refused, Refused)
    assert not refused.expected
    assert "ZeroDivisionError" in refused.text

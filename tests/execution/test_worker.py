"""One worker: it loads what its starter loaded, answers, and refuses what it cannot know."""

from __future__ import annotations

import multiprocessing
import pickle
import threading

import pytest
import torch

from leakgauge.attacks.linear import Linear
from leakgauge.errors import LeakgaugeError
from leakgauge.execution import worker
from leakgauge.execution.work_units import Part, WorkUnit
from leakgauge.execution.worker import Finished, Notice, Progress, Ready, Refused, SetupSource, receive, send, work
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario, Training

TINY = Scenario(data="digits", model="mlp:hidden=8", trials=2, attacks=("linear",))


@pytest.fixture
def pipes(monkeypatch):
    """Our end and the worker's, in this process."""
    monkeypatch.setattr(worker, "share_memory", lambda *_: None)
    ours, theirs = multiprocessing.Pipe()
    yield ours, theirs
    ours.close()
    theirs.close()


def start(theirs, source):
    running = threading.Thread(target=work, args=(theirs, pickle.dumps(source), "cpu", 1, None))
    running.start()
    return running


def heard(pipe):
    """Messages up to the end of a unit, progress left out."""
    found = []
    while not isinstance(found[-1] if found else None, (Finished, Refused)):
        message = receive(pipe)
        if not isinstance(message, Progress):
            found.append(message)
    return found


def test_it_says_that_it_is_ready_runs_what_it_is_sent_and_stops(pipes):
    ours, theirs = pipes
    setup = load_setup(TINY, None, "cpu")
    running = start(theirs, SetupSource.of(setup, None))
    assert isinstance(receive(ours), Ready)
    send(ours, WorkUnit("key", 0, Cell(Linear(), "none", False, "linear"), (0, 1)))
    part, end = heard(ours)
    assert isinstance(part, Part)
    assert [t.finding.trial for t in part.trials] == [0, 1]
    assert isinstance(end, Finished)
    send(ours, None)
    running.join(60)
    assert not running.is_alive()


def test_it_ends_when_its_starter_is_gone(pipes):
    ours, theirs = pipes
    running = start(theirs, SetupSource.of(load_setup(TINY, None, "cpu"), None))
    receive(ours)
    ours.close()
    running.join(60)
    assert not running.is_alive()


def test_an_error_in_the_code_comes_with_its_traceback(pipes, monkeypatch):
    def broken(*_):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Linear, "solve", broken)
    ours, theirs = pipes
    running = start(theirs, SetupSource.of(load_setup(TINY, None, "cpu"), None))
    receive(ours)
    send(ours, WorkUnit("key", 0, Cell(Linear(), "none", False, "linear"), (0,)))
    said = heard(ours)[-1]
    running.join(60)
    assert isinstance(said, Refused)
    assert not said.expected
    assert "shapes do not fit" in said.text


def test_a_concern_is_passed_on(pipes, monkeypatch):
    monkeypatch.setattr(Linear, "concerns", lambda *_: ("rank-deficient",))
    ours, theirs = pipes
    running = start(theirs, SetupSource.of(load_setup(TINY, None, "cpu"), None))
    receive(ours)
    send(ours, WorkUnit("key", 0, Cell(Linear(), "none", False, "linear"), (0,)))
    notice = heard(ours)[0]
    send(ours, None)
    running.join(60)
    assert isinstance(notice, Notice)
    assert notice.line.startswith("linear: ")


def test_other_weights_or_samples_are_refused(pipes):
    source = SetupSource(TINY, None, "another key", None)
    with pytest.raises(LeakgaugeError, match="loaded other samples or weights"):
        source.load("cpu")
    ours, theirs = pipes
    running = start(theirs, source)
    said = receive(ours)
    running.join(60)
    assert isinstance(said, Refused)
    assert said.expected


def test_a_trained_model_is_handed_over_and_not_trained_again(monkeypatch):
    scenario = Scenario(data="digits", model="mlp:hidden=8", trials=2, training=Training(rounds=3))
    setup = load_setup(scenario, None, "cpu")
    source = pickle.loads(pickle.dumps(SetupSource.of(setup, None)))
    monkeypatch.setattr("leakgauge.setup.setup.train", lambda *_: pytest.fail("it was trained already"))
    loaded = source.load("cpu")
    assert loaded.key == setup.key
    for name, tensor in setup.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor)

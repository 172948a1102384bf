"""This process as the one worker: unit after unit, and an interrupt keeps what was finished."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from leakgauge.attacks.dlg import DLG
from leakgauge.execution.in_process import InProcess
from leakgauge.execution.scheduler import Scheduler
from leakgauge.execution.work_units import Callbacks, WorkUnit
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario

CELL = Cell(DLG(steps=2, restarts=1, optimizer="adam"), "none", False, "dlg")


@pytest.fixture(scope="module")
def setup():
    return load_setup(Scenario(data="digits", model="mlp:hidden=8", trials=5), None, "cpu")


def unit(number, *trials):
    return WorkUnit("key", number, CELL, trials)


def test_a_unit_is_drawn_when_the_one_before_it_is_done(setup):
    drawn, shares = [], []
    wanted = (drawn.append(u.number) or u for u in (unit(0, 0, 1), unit(1, 2)))
    callbacks = Callbacks(lambda u, share: shares.append((u.number, share)))
    for ran, part in Scheduler(InProcess()).run(setup, wanted, callbacks):
        assert drawn[-1] == ran.number == shares[-1][0]
        assert tuple(t.finding.trial for t in part.trials) == ran.trials
    assert drawn == [0, 1]


def test_an_interrupt_gives_what_was_finished_and_goes_on(setup, monkeypatch):
    original = DLG.solve

    def cut_off(self, problem, seeds, progress):
        result = original(self, problem, seeds, progress)
        return dataclasses.replace(result, finished=torch.arange(len(seeds)) < 2)

    monkeypatch.setattr(DLG, "solve", cut_off)
    running = Scheduler(InProcess()).run(setup, iter([unit(0, *range(5)), unit(1, 0)]), Callbacks())
    _, part = next(running)
    assert not part.whole
    assert [t.finding.trial for t in part.trials] == [0, 1]
    with pytest.raises(KeyboardInterrupt):
        next(running)


def test_it_can_be_used_again_after_it_was_closed(setup):
    scheduler = Scheduler(InProcess())
    for _ in range(2):
        assert len(list(scheduler.run(setup, iter([unit(0, 0)]), Callbacks()))) == 1
        scheduler.close()

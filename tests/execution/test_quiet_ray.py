"""The one process of Ray's that asks clouds gets a home folder that answers for them; all others keep theirs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leakgauge.execution.quiet_ray import quiet_ray

ASKS = ["python", "dashboard.py", "--modules-to-load=UsageStatsHead", "--disable-frontend"]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "")  # is taken back afterwards
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Any:
    """In place of Ray's own, which starts processes."""
    ray, private, found = (ModuleType(name) for name in ("ray", "ray._private", "ray._private.services"))
    ray._private, private.services = private, found
    found.start_ray_process = lambda command, kind, env_updates=None: env_updates
    for module in (ray, private, found):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def test_only_the_process_that_asks_gets_another_home(services: Any) -> None:
    before = services.start_ray_process
    with quiet_ray():
        told = services.start_ray_process(ASKS, "dashboard", env_updates={"A": "1"})
        assert services.start_ray_process(["raylet"], "raylet") is None
    assert told["A"] == "1"
    assert (Path(told["HOME"]) / "ray_bootstrap_config.yaml").read_text() == "{}\n"
    assert services.start_ray_process is before


def test_it_is_as_before_after_an_error_too(services: Any) -> None:
    before = services.start_ray_process
    with pytest.raises(OSError, match="no room"), quiet_ray():
        raise OSError("no room")
    assert services.start_ray_process is before


def test_statistics_are_off_unless_somebody_asked_for_them(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with quiet_ray():
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    with quiet_ray():
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"


def test_a_ray_that_starts_its_processes_elsewhere_is_let_be(services: Any) -> None:
    del services.start_ray_process
    with quiet_ray():
        assert not hasattr(services, "start_ray_process")


def test_without_ray_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray._private", None)
    before = dict(os.environ)
    with quiet_ray():
        assert os.environ.get("HOME") == before.get("HOME")
    assert set(os.environ) - set(before) <= {"RAY_USAGE_STATS_ENABLED"}

"""Coming to a cluster; what runs on it is in test_ray."""

from __future__ import annotations

import socket
import sys

import pytest

from leakgauge.errors import BadInput, LeakgaugeError, MissingExtra
from leakgauge.execution import ray_cluster
from leakgauge.execution.ray_cluster import connected, ray_module


def test_without_ray_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"^--on ray needs the package ray; run: pip install 'leakgauge\[ray\]'$"):
        connected("auto").__enter__()


@pytest.fixture
def ray():
    pytest.importorskip("ray", reason="the package ray is not installed")
    return ray_module()


def test_a_cluster_that_does_not_answer_is_waited_for_so_long_and_no_longer(ray, monkeypatch):
    monkeypatch.setattr(ray_cluster, "_PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = "{}:{}".format(*mute.getsockname())
        with pytest.raises(
            BadInput, match=f"--on ray must be a running cluster, got {address}: no answer within 0.5 s"
        ):
            connected(address).__enter__()
    with pytest.raises(BadInput, match=f"got {address}: .*refused"):
        connected(address).__enter__()


def test_an_address_that_is_none_is_refused_with_the_reason(ray):
    with pytest.raises(BadInput, match="got nonsense: ValueError: Invalid address format: nonsense; start one with"):
        connected("nonsense").__enter__()
    with pytest.raises(BadInput, match="ADDRESS must be auto or HOST:PORT, got ray://there:10001; run this on a node"):
        connected("ray://there:10001").__enter__()


def test_a_cluster_that_cannot_be_joined_is_refused_in_one_line(ray, monkeypatch):
    def mismatch(**_):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0\nAnd more.")

    monkeypatch.setattr(ray_cluster, "_refuse_unreachable", lambda _: None)
    monkeypatch.setattr(ray, "init", mismatch)
    with pytest.raises(BadInput, match=r"got there:1: Version mismatch: The cluster was started with: Ray: 1\.0"):
        connected("there:1").__enter__()
    with pytest.raises(LeakgaugeError, match="Ray could not be started on this machine: Version mismatch"):
        connected().__enter__()


def test_a_cluster_that_was_joined_before_is_left_as_it_was(ray, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("not ours to end"))
    with connected("auto") as joined:
        assert joined is ray

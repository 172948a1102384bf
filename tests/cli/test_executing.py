"""Who runs the chunks, by the flags of a command."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from leakgauge.cli import executing as module
from leakgauge.cli.executing import executing
from leakgauge.cli.options import Places
from leakgauge.errors import BadInput
from leakgauge.execution.local import Workers


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

    monkeypatch.setattr(module, "connected", found)
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

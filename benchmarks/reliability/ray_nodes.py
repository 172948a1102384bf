"""What a lost node costs an audit on a Ray cluster: here, on the cluster, on it with a node removed half-way.

    python benchmarks/reliability/ray_nodes.py                     # 3 nodes, one killed half-way, one added after it
    python benchmarks/reliability/ray_nodes.py --interrupt         # and Ctrl-C later on, and the same run again
    python benchmarks/reliability/ray_nodes.py --overhead          # what Ray adds to the same units, per trial

The nodes are those of `ray.cluster_utils.Cluster`: processes of this machine, one CPU each. Prints one JSON document
and exits with 1 if a finding was lost, came twice or differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from leakgauge.audit.run import run_audit
from leakgauge.execution.quiet_ray import quiet_ray
from leakgauge.execution.ray import OnRay
from leakgauge.execution.ray_cluster import connected, ray_module
from leakgauge.execution.scheduler import InProcess, Loss, Scheduler
from leakgauge.execution.work_units import Callbacks, Part, WorkUnit, units_of
from leakgauge.execution.worker import Message
from leakgauge.setup.plan import plan
from leakgauge.setup.setup import load_setup
from leakgauge.types import AuditReport, Scenario

ATTACKS = "linear dlg:steps=10,restarts=1 idlg:steps=10,restarts=1"
PATIENCE = 600.0  # seconds for what a machine with nothing else to do has done in five
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}


class Counting(OnRay):
    """Knows how many units were sent, also those that had to be sent again."""

    def __init__(self, ray: ModuleType, sent: Counter[tuple[str, int]]) -> None:
        super().__init__(ray, device="cpu")
        self._sent = sent

    def send(self, task: Any, unit: WorkUnit, callbacks: Callbacks) -> None:
        self._sent[unit.name] += 1
        super().send(task, unit, callbacks)


class Disturbed(Counting):
    """Something happens to the cluster once half of the trials are back."""

    def __init__(
        self,
        ray: ModuleType,
        sent: Counter[tuple[str, int]],
        half: int,
        fault: Callable[[], None],
        interrupt: int | None,
    ) -> None:
        super().__init__(ray, sent)
        self._half, self._fault, self._interrupt = half, fault, interrupt
        self._came = 0

    def messages(self, tasks: Sequence[Any]) -> Iterator[tuple[Any, Message | Loss]]:
        for task, message in super().messages(tasks):
            yield task, message
            if not isinstance(message, Part):
                continue
            before, self._came = self._came, self._came + len(message.trials)
            if before < self._half <= self._came:
                self._fault()
            if self._interrupt is not None and before < self._interrupt <= self._came:
                raise KeyboardInterrupt


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--trials", type=int, default=200)
    asked.add_argument("--nodes", type=int, default=3)
    asked.add_argument("--model", default="mlp:hidden=64")
    asked.add_argument("--attacks", default=ATTACKS)
    asked.add_argument("--no-calm", action="store_true", help="compare with the run in this process only")
    asked.add_argument("--interrupt", action="store_true", help="Ctrl-C after three quarters, then the same again")
    asked.add_argument("--overhead", action="store_true")
    given = asked.parse_args()
    torch.set_num_threads(1)
    scenario = Scenario(
        model=given.model, data="digits", trials=given.trials, attacks=tuple(given.attacks.split()), variants="plain"
    )
    told = (
        overhead(scenario)
        if given.overhead
        else disturbed(scenario, given.nodes, calm=not given.no_calm, interrupt=given.interrupt)
    )
    sys.stdout.write(json.dumps(told, indent=2) + "\n")
    return 1 if any(told.get(name) for name in ("lost", "twice", "failed", "different")) else 0


def disturbed(scenario: Scenario, nodes: int, *, calm: bool, interrupt: bool) -> dict[str, Any]:
    """The same audit without Ray, on it, and on it while a node is killed and another one comes."""
    half = scenario.trials * len(plan(scenario)) // 2
    here, seconds_here = timed(lambda: run_audit(scenario, device="cpu")[0])
    with machines(nodes) as machine, connected(machine.address) as ray:
        sent, faults = Counter[tuple[str, int]](), Counter[str]()
        victim = machine.worker_nodes.copy().pop()

        def fault() -> None:
            machine.remove_node(victim, allow_graceful=False)
            faults["nodes_killed"] += 1
            join(machine)
            faults["nodes_added"] += 1

        seconds_calm = None
        if calm:
            _, seconds_calm = timed(lambda: run_audit(scenario, device="cpu", executor=OnRay(ray, device="cpu")))
        with tempfile.TemporaryDirectory() as folder:
            executor: OnRay = Disturbed(ray, sent, half, fault, half * 3 // 2 if interrupt else None)
            shot, seconds = timed(lambda: run_audit(scenario, device="cpu", out=Path(folder), executor=executor)[0])
            left = alive(machine)
            if shot.interrupted:
                faults["interrupts"] += 1
                executor = Counting(ray, sent)
                shot, more = timed(lambda: run_audit(scenario, device="cpu", out=Path(folder), executor=executor)[0])
                seconds, left = seconds + more, left + alive(machine)
    expected, found = (Counter(map(_name, report.findings)) for report in (here, shot))
    return {
        "trials": scenario.trials,
        "nodes": nodes,
        **faults,
        "units": len(sent),
        "units_run_again": sum(sent.values()) - len(sent),
        "findings_expected": sum(expected.values()),
        "findings": sum(found.values()),
        "lost": sum((expected - found).values()),
        "twice": sum(n - 1 for n in found.values()),
        "failed": sum(f.error is not None for f in shot.findings),
        "different": sum(a != b for a, b in zip(_timeless(here), _timeless(shot), strict=True)),
        "processes_left": left,
        "ray": shot.environment["ray"],
        "seconds_in_this_process": round(seconds_here, 1),
        "seconds_undisturbed": None if seconds_calm is None else round(seconds_calm, 1),
        "seconds_with_the_fault": round(seconds, 1),
    }


def overhead(scenario: Scenario, repeats: int = 7) -> dict[str, Any]:
    """The units of all cells, here and by one process of a local Ray that is loaded: the fastest of each."""
    setup = load_setup(scenario, None, "cpu")
    units = [
        unit
        for number, cell in enumerate(plan(scenario))
        for unit in units_of(str(number), cell, range(scenario.trials), scenario.trials, torch.device("cpu"), 1, {})
    ]
    trials = sum(len(u.trials) for u in units)
    os.environ.setdefault("RAY_worker_niceness", "0")
    began = time.perf_counter()
    with connected() as ray:
        started = time.perf_counter() - began
        on_ray = Scheduler(OnRay(ray, device="cpu", at_most=1))
        _, first = timed(lambda: list(on_ray.run(setup, iter(units), Callbacks())))
        there = [timed(lambda: list(on_ray.run(setup, iter(units), Callbacks())))[1] for _ in range(repeats)]
        on_ray.close()
    here = [timed(lambda: list(Scheduler(InProcess()).run(setup, iter(units), Callbacks())))[1] for _ in range(repeats)]
    return {
        "trials": trials,
        "units": len(units),
        "seconds_to_start_ray": round(started, 2),
        "seconds_to_start_a_process": round(first - min(there), 2),
        "milliseconds_per_trial_here": round(1000 * min(here) / trials, 3),
        "milliseconds_per_trial_on_ray": round(1000 * min(there) / trials, 3),
        "added_per_unit_milliseconds": round(1000 * (min(there) - min(here)) / len(units), 2),
        "load_of_the_machine": round(os.getloadavg()[0], 1),
    }


@contextmanager
def machines(nodes: int) -> Iterator[Any]:
    os.environ.setdefault("RAY_worker_niceness", "0")  # as fast as the process that they are compared with
    ray_module()
    from ray.cluster_utils import Cluster

    with quiet_ray():
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(wait=False, **NODE)
        cluster.wait_for_nodes(timeout=PATIENCE)  # add_node would give up after 30 s, which a busy machine may need
        yield cluster
    finally:
        cluster.shutdown()


def join(machine: Any) -> None:
    """Another node, and the wait for it to be there."""
    node, until = machine.add_node(wait=False, **NODE), time.monotonic() + PATIENCE
    while node.node_id not in {other["NodeID"] for other in ray_module().nodes()}:
        if time.monotonic() > until:
            raise TimeoutError(f"no further node within {PATIENCE:g} s")
        time.sleep(0.1)


def alive(machine: Any) -> int:
    """Processes of this cluster that still run units, after a while to end in; other clusters have their own."""
    logs, found, until = machine.head_node.get_logs_dir_path(), 1, time.monotonic() + PATIENCE / 10
    while found and time.monotonic() < until:
        found = sum(_runs_units(process, logs) for process in Path("/proc").glob("[0-9]*"))
        time.sleep(0.25 if found else 0)
    return found


def _runs_units(process: Path, logs: str) -> bool:
    """By its title, and by where it writes."""
    try:
        if not (process / "cmdline").read_text().startswith("ray::UnitTask"):
            return False
        return os.readlink(process / "fd" / "1").startswith(logs)
    except OSError:  # gone
        return False


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return call(), time.perf_counter() - began


def _name(finding: Any) -> tuple[Any, ...]:
    return finding.attack, finding.defense, finding.adaptive, finding.trial


def _timeless(report: AuditReport) -> list[Any]:
    return [dataclasses.replace(finding, seconds=0.0) for finding in report.findings]


if __name__ == "__main__":
    sys.exit(main())

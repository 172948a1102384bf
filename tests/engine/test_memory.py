"""How many trials fit, which errors say that too many were tried, and limits of control groups and processes."""

import resource
import subprocess
import sys

import pytest
import torch

from leakgauge.engine import memory
from leakgauge.engine.memory import left_by_limits

CPU = torch.device("cpu")


def test_so_many_trials_fit_as_two_fifths_of_the_free_memory_hold(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 100)
    assert memory.fitting(20, CPU) == 2


def test_one_trial_runs_even_if_it_should_not_fit(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 1)
    assert memory.fitting(10**9, CPU) == 1


def test_what_counts_as_out_of_memory():
    cpu = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: tried to allocate 99 bytes"
    assert memory.is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert memory.is_out_of_memory(MemoryError())
    assert memory.is_out_of_memory(RuntimeError(cpu))
    assert not memory.is_out_of_memory(RuntimeError("shapes do not fit"))


def test_free_memory_of_this_machine_is_sensible():
    assert 2**24 < memory.free_bytes(CPU) < 2**50


def test_a_process_with_a_share_of_a_gpu_takes_no_more_of_it(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr(memory, "_of_gpu", 1.0)  # put back afterwards
    monkeypatch.setattr(memory, "_processes", 1)
    monkeypatch.setattr(memory, "_allowed", None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (900, 1000))
    assert memory.free_bytes(gpu) == 900
    memory.share_memory(4, None, 0.25)
    assert memory.free_bytes(gpu) == 250


def test_several_processes_share_what_is_free_and_one_with_a_limit_has_that(monkeypatch):
    monkeypatch.setattr(memory, "_processes", 1)
    monkeypatch.setattr(memory, "_allowed", None)
    cpu = torch.device("cpu")
    alone = memory.free_bytes(cpu)
    memory.share_memory(4, None)
    assert memory.free_bytes(cpu) < alone / 2
    memory.share_memory(4, 10**9)
    assert memory.free_bytes(cpu) == 10**9
    assert memory.fitting(10**8, cpu) == 4


GB = 2**30


@pytest.fixture
def system(tmp_path):
    """system(cgroup line, {file: text}): a /proc/self and the groups beside it."""

    def make(line, files, statm="1000 900 1 1 0 900 0"):
        proc, groups = tmp_path / "proc", tmp_path / "groups"
        proc.mkdir()
        (proc / "cgroup").write_text(line)
        (proc / "statm").write_text(statm)
        for name, text in files.items():
            (groups / name).parent.mkdir(parents=True, exist_ok=True)
            (groups / name).write_text(str(text))
        return proc, groups

    return make


def test_without_limits_there_is_none(system):
    files = {"memory.max": "max", "memory.current": 5, "a/memory.max": "max", "a/memory.current": 5}
    assert left_by_limits(*system("0::/a\n", files)) is None


def test_the_tightest_group_above_counts(system):
    files = {
        "a/memory.max": 2 * GB,
        "a/memory.current": GB,
        "a/b/memory.max": 4 * GB,
        "a/b/memory.current": GB // 2,
        "a/memory.stat": f"anon 5\ninactive_file {GB // 4}\n",
    }
    assert left_by_limits(*system("0::/a/b\n", files)) == GB + GB // 4


def test_the_first_version_too(system):
    files = {
        "memory/x/memory.limit_in_bytes": GB,
        "memory/x/memory.usage_in_bytes": GB // 4,
        "memory/memory.limit_in_bytes": 2**63 - 4096,
        "memory/memory.usage_in_bytes": 7,
    }
    assert left_by_limits(*system("5:cpu,cpuacct:/x\n4:memory:/x\n", files)) == GB * 3 // 4


def test_a_path_of_the_host_that_a_container_does_not_see_leaves_its_own_root(system):
    files = {"memory.max": GB, "memory.current": 0}
    assert left_by_limits(*system("0::/docker/abc\n", files)) == GB


def test_what_cannot_be_read_sets_no_limit(system, tmp_path):
    assert left_by_limits(tmp_path / "no", tmp_path / "none") is None


def test_the_address_space_of_a_process(tmp_path):
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32));"
        "from leakgauge.engine.memory import left_by_limits; print(left_by_limits())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 2**32
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 2**32

"""How many trials fit, and which errors say that too many were tried."""

import torch

from leakgauge.engine import memory

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

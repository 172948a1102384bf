"""Chunks: every trial once, in order, and never more at a time than fit."""

import torch

from leakgauge.engine import memory

CPU = torch.device("cpu")


def test_all_trials_fit_at_once_when_memory_is_plenty(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 1000)
    assert list(memory.chunks(7, 10, CPU)) == [[0, 1, 2, 3, 4, 5, 6]]


def test_chunks_cover_every_trial_once_in_order(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 100)
    parts = list(memory.chunks(9, 20, CPU))  # 40 % of 100 bytes hold two trials of 20
    assert [len(p) for p in parts] == [2, 2, 2, 2, 1]
    assert [t for p in parts for t in p] == list(range(9))


def test_one_trial_runs_even_if_it_should_not_fit(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 1)
    assert list(memory.chunks(2, 10**9, CPU)) == [[0], [1]]


def test_free_memory_of_this_machine_is_sensible():
    assert 2**24 < memory.free_bytes(CPU) < 2**50

"""Growth is timed point by point, each in a process of its own, and what does not fit is said to."""

import pytest
import torch

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.lab import growth
from leakgauge.lab.growth import Point, measure_growth, points, time_here

CPU = torch.device("cpu")
SMALL = Point("victims", "lenet-dlg:filters=2", 3, batch=2, side=8)


def test_a_point_has_speed_and_memory_and_comes_from_another_process():
    row = measure_growth(SMALL, CPU, 0.02)
    assert row.steps_per_second > 0
    assert row.bytes_per_victim >= 0  # so few victims may fit into what the process had before
    assert (row.model, row.victims, row.batch, row.side, row.device) == (SMALL.model, 3, 2, 8, "cpu")
    assert row.parameters > 0


def test_what_does_not_fit_is_a_row_without_a_rate(monkeypatch):
    def no_room(*_):
        raise MemoryError

    monkeypatch.setattr(growth, "_speed", no_room)
    row = time_here(SMALL, "cpu", 0.02, "float32")
    assert row.steps_per_second is None
    assert row.bytes_per_victim is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_four_things_grow(device):
    all_of_them = points(torch.device(device))
    assert list(dict.fromkeys(p.grows for p in all_of_them)) == ["victims", "network", "batch", "side"]
    assert max(p.victims for p in all_of_them) == 10_000
    assert min(p.victims for p in all_of_them) == 1


def test_nothing_to_time_is_refused():
    with pytest.raises(BadInput):
        measure_growth(SMALL, CPU, 0)


def test_an_unknown_network_is_refused_here_too():
    with pytest.raises(LeakgaugeError, match="lenet-of-mine"):
        measure_growth(Point("network", "lenet-of-mine", 1), CPU, 0.02)

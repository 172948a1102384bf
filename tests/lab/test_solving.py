"""Time until victims are solved: both ways solve the same victims, and the row says what was timed."""

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.lab import solving

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch):
    """A network that is solved in a moment."""
    for name, value in (("MODEL", "mlp:hidden=12,activation=sigmoid"), ("DATA", "digits"), ("THRESHOLD", 1e-3)):
        monkeypatch.setattr(solving, name, value)


def test_both_ways_solve_the_victims(small):
    row = solving.measure_solving(CPU, victims=4, loop_victims=2)
    assert (row.victims, row.loop_victims) == (4, 2)
    assert row.engine_solved == 4
    assert row.loop_solved == 2
    assert row.sooner == pytest.approx(row.loop_seconds / row.engine_seconds)
    assert row.as_dict()["device"] == "cpu"


@pytest.mark.parametrize("count", [0, 5])
def test_the_loop_is_timed_on_some_of_the_victims(small, count):
    with pytest.raises(BadInput, match="loop victims"):
        solving.measure_solving(CPU, victims=4, loop_victims=count)

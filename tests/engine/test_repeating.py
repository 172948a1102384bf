"""Without a GPU a repeated body is just called: now, every time, and its errors come through."""

import pytest
import torch

from leakgauge.engine.repeating import Repeated

CPU = torch.device("cpu")


def test_on_a_cpu_every_call_runs_the_body_once():
    calls: list[int] = []
    repeated = Repeated(lambda: calls.append(len(calls)), CPU)
    assert calls == []  # building it does nothing
    for _ in range(6):
        repeated()
    assert calls == [0, 1, 2, 3, 4, 5]


def test_the_body_works_in_place_and_sees_what_changed_in_between():
    x = torch.ones(2)
    repeated = Repeated(lambda: _double(x), CPU)
    for _ in range(5):
        repeated()
    x.fill_(1)
    repeated()
    assert x.tolist() == [2, 2]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, torch.OutOfMemoryError])
def test_what_the_body_raises_is_not_swallowed(error):
    def body():
        raise error("here")

    with pytest.raises(error, match="here"):
        Repeated(body, CPU)()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_replay_does_what_the_calls_did():
    device = torch.device("cuda")
    x = torch.ones(4, device=device)
    repeated = Repeated(lambda: _double(x), device)
    for _ in range(8):
        repeated()
    assert x.tolist() == [2.0**8] * 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_body_that_asks_the_device_for_a_value_goes_on_as_it_is():
    device = torch.device("cuda")
    x = torch.ones(4, device=device)

    def asking():
        x.mul_(2.0 if float(x[0]) > 0 else 0.0)

    repeated = Repeated(asking, device)
    for _ in range(8):
        repeated()
    assert x.tolist() == [2.0**8] * 4


def _double(x: torch.Tensor) -> None:
    x.mul_(2)

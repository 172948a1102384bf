"""Speed of the engine beside the loop of published code: victim-steps per second, same work, same run.

One victim-step is one evaluation of gradient matching: the gradient of a dummy sample, its squared distance to the
observed gradient, and the derivative of that distance in the sample. Machines differ and are noisy: read the ratio.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import runs_one_by_one, trial_gradients, working_model
from leakgauge.engine.losses import cross_entropy
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.engine.repeating import Repeated
from leakgauge.errors import BadInput
from leakgauge.matching.distance import distance_between, rows_of
from leakgauge.models import load_model
from leakgauge.types import DataSpec

CLASSES = 10
_WARM_UP = 5  # calls before the clock starts on a GPU: the engine records its launches within them


class Case(NamedTuple):
    """A model, the side of its square colour input, and how many victims run side by side on each kind of device."""

    model: str
    side: int
    on_cpu: int
    on_gpu: int


CASES = (
    Case("lenet-dlg", 32, 100, 1000),
    Case("convnet", 32, 16, 128),
    Case("resnet20-4", 32, 8, 128),
    Case("resnet18", 224, 4, 32),
)


@dataclass(frozen=True)
class BenchRow:
    """Victim-steps per second of both ways; keys are the stable ones of `bench --json`."""

    model: str
    victims: int
    device: str
    precision: str
    loop: float
    engine: float
    ratio: float

    def as_dict(self) -> dict[str, str | int | float]:
        return dataclasses.asdict(self)


def measure(
    case: Case,
    device: torch.device,
    seconds: float,
    victims: int | None = None,
    precision: str = "float32",
    seed: int = 0,
) -> BenchRow:
    """Time both ways on random samples for about `seconds` each, after one warm-up call."""
    check(seconds, victims)
    set_precision(precision)
    dtype = dtype_of(precision)
    count = victims or (case.on_gpu if device.type == "cuda" else case.on_cpu)
    data = DataSpec("bench", (3, case.side, case.side), CLASSES, "image", (0.5,) * 3, (0.25,) * 3)
    published = load_model(case.model, data, seed).to(device, dtype).eval()
    model = working_model(published, "eval")
    g = torch.Generator().manual_seed(seed)
    samples = torch.rand(count, 1, *data.shape, generator=g).to(device, dtype)
    labels = torch.randint(CLASSES, (count, 1), generator=g).to(device)
    observed = {name: t.detach() for name, t in trial_gradients(model, samples, labels).items()}
    dummies = torch.rand(count, 1, *data.shape, generator=g).to(device, dtype)
    slope, rows = torch.empty_like(dummies), rows_of(observed, observed)

    def step() -> None:
        slope.copy_(engine_step(model, dummies, labels, rows))

    engine = rate(Repeated(step, device), count, seconds, device)
    turns = itertools.cycle(range(count))
    loop = rate(lambda: loop_step(published, dummies, labels, observed, next(turns)), 1, seconds, device)
    return BenchRow(case.model, count, device.type, precision, loop, engine, engine / loop)


def check(seconds: float, victims: int | None) -> None:
    """Is there anything to time?"""
    if not seconds > 0:
        raise BadInput("seconds", allowed="above 0", got=seconds, do="for example --seconds 3")
    if victims is not None and victims < 1:
        raise BadInput("victims", allowed="at least 1", got=victims, do="for example --victims 8")


def engine_step(model: nn.Module, dummies: Tensor, labels: Tensor, observed: Sequence[Tensor]) -> Tensor:
    """All victims at once: (T, N, *shape) derivative of every victim's distance to the `observed` rows (T, p)."""
    if len(dummies) > 1 and runs_one_by_one(model):  # as the attacks do it
        ones = [slice(t, t + 1) for t in range(len(dummies))]
        return torch.cat([engine_step(model, dummies[t], labels[t], [row[t] for row in observed]) for t in ones])
    x = dummies.detach().requires_grad_()
    gradients = trial_gradients(model, x, labels)
    distance = distance_between(rows_of(gradients, gradients), observed, "l2")
    (slope,) = torch.autograd.grad(distance.sum(), x)
    return slope


def loop_step(model: nn.Module, dummies: Tensor, labels: Tensor, observed: dict[str, Tensor], victim: int) -> Tensor:
    """One victim with plain autograd, as published code does it: (N, *shape)."""
    x = dummies[victim].detach().requires_grad_()
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(cross_entropy(model(x), labels[victim]), parameters, create_graph=True)
    distances = [((g - observed[n][victim]) ** 2).sum() for n, g in zip(names, gradients, strict=True)]
    (slope,) = torch.autograd.grad(torch.stack(distances).sum(), x)
    return slope


def rate(step: Callable[[], object], victims: int, seconds: float, device: torch.device) -> float:
    """Victim-steps per second of `step`, which makes one for each victim."""
    for _ in range(_WARM_UP if device.type == "cuda" else 1):
        step()
    _wait(device)
    began, steps, elapsed = time.perf_counter(), 0, 0.0
    while elapsed < seconds:
        step()
        _wait(device)
        steps += 1
        elapsed = time.perf_counter() - began
    return victims * steps / elapsed


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

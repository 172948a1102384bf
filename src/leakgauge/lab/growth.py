"""How speed and memory grow: victim-steps per second with more victims, larger networks, batches and pictures.

The step is that of `bench`. Each point runs in its own process, so that its memory can be measured: on a CPU the peak
memory of the process minus its memory before the victims were made, on a GPU the memory that torch allocated.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import resource
import sys
from dataclasses import dataclass

import torch

from leakgauge.audit.bench import CLASSES, check, engine_step, rate
from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.engine.memory import is_out_of_memory
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.engine.repeating import Repeated
from leakgauge.errors import LeakgaugeError
from leakgauge.matching.distance import rows_of
from leakgauge.models import load_model
from leakgauge.reading.search_path import safe_children
from leakgauge.types import DataSpec


@dataclass(frozen=True)
class Point:
    """One measurement: so many victims at once, with this network, batch size and side of a picture."""

    grows: str  # the quantity that grows in this series: victims, network, batch or side
    model: str
    victims: int
    batch: int = 1
    side: int = 32


@dataclass(frozen=True)
class GrowthRow:
    """One row of `bench --growth --json`, whose keys are stable. No rate if the point did not fit into memory."""

    grows: str
    model: str
    parameters: int
    victims: int
    batch: int
    side: int
    device: str
    precision: str
    steps_per_second: float | None  # of all victims together
    bytes_per_victim: int | None

    def as_dict(self) -> dict[str, str | int | float | None]:
        return dataclasses.asdict(self)


_NETWORKS = ("lenet-dlg", "lenet-cpl", "mlp", "resnet20-4", "convnet", "resnet18")


def points(device: torch.device) -> list[Point]:
    """The points for this device. On a CPU victims of large networks are few: they run one after another."""
    gpu = device.type == "cuda"
    victims = 64 if gpu else 4
    return [
        *(Point("victims", "lenet-dlg", n) for n in (1, 10, 100, 1000, 10_000)),
        *(Point("network", model, victims) for model in _NETWORKS),
        *(Point("batch", "lenet-dlg", 4 * victims, batch=n) for n in (1, 4, 16, 64)),
        *(Point("side", "resnet18", victims // 4, side=n) for n in (32, 64, 128, 224)),
    ]


def measure_growth(
    point: Point, device: torch.device, seconds: float, precision: str = "float32", seed: int = 0
) -> GrowthRow:
    """Measure one point in its own process."""
    check(seconds, point.victims)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_and_send, args=(sender, point, str(device), seconds, precision, seed))
    with safe_children():
        process.start()
    sender.close()
    try:
        row: GrowthRow | str = receiver.recv()
    except EOFError:  # the process was killed, most likely for its memory
        process.join()
        return row_of(point, device, precision, 0, None, None)
    process.join()
    if isinstance(row, str):
        raise LeakgaugeError(row)
    return row


def _measure_and_send(pipe: multiprocessing.connection.Connection, point: Point, *how: str | float) -> None:
    try:
        pipe.send(time_here(point, *how))  # type: ignore[arg-type]
    except LeakgaugeError as error:
        pipe.send(str(error))


def time_here(point: Point, device_name: str, seconds: float, precision: str, seed: int = 0) -> GrowthRow:
    """Measure one point in this process."""
    device = torch.device(device_name)
    set_precision(precision)
    data = DataSpec("bench", (3, point.side, point.side), CLASSES, "image", (0.5,) * 3, (0.25,) * 3)
    model = working_model(load_model(point.model, data, seed).to(device, dtype_of(precision)).eval(), "eval")
    parameters = sum(p.numel() for p in model.parameters())
    before = _memory(device)
    try:
        speed = _speed(point, data, model, device, seconds, dtype_of(precision), seed)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return row_of(point, device, precision, parameters, None, None)
    return row_of(point, device, precision, parameters, speed, max(0, _peak_memory(device) - before) // point.victims)


def _speed(
    point: Point,
    data: DataSpec,
    model: torch.nn.Module,
    device: torch.device,
    seconds: float,
    dtype: torch.dtype,
    seed: int,
) -> float:
    g = torch.Generator().manual_seed(seed)
    shape = (point.victims, point.batch)
    samples = torch.rand(*shape, *data.shape, generator=g).to(device, dtype)
    labels = torch.randint(CLASSES, shape, generator=g).to(device)
    observed = {n: t.detach() for n, t in trial_gradients(model, samples, labels, differentiable=False).items()}
    dummies = torch.rand(*shape, *data.shape, generator=g).to(device, dtype)
    slope, rows = torch.empty_like(dummies), rows_of(observed, observed)

    def step() -> None:
        slope.copy_(engine_step(model, dummies, labels, rows))

    return rate(Repeated(step, device), point.victims, seconds, device)


def row_of(
    point: Point, device: torch.device, precision: str, parameters: int, speed: float | None, each: int | None
) -> GrowthRow:
    where = point.model, parameters, point.victims, point.batch, point.side
    return GrowthRow(point.grows, *where, device.type, precision, speed, each)


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return _peak_memory(device)


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most

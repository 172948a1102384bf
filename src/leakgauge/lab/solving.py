"""Time until victims are solved: CPL on one victim after another, as published, and on all of them in the engine.

Both start at random on the same untrained network and count a victim as solved when its gradient distance falls below
the threshold. The loop is `torch.optim.LBFGS` with full steps of 20 iterations, one victim and one attempt at a time,
with a new start after a failed attempt. The engine runs all victims side by side, stops each one when it is solved and
gives up attempts that make no progress. The loop is timed on a few victims and scaled to all of them.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.attacks.cpl import CPL
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.engine.losses import cross_entropy
from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput
from leakgauge.matching.starts import start_inputs
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, SharedUpdate, threat_model

MODEL, DATA, START = "lenet-cpl", "photos32", "random"
ATTEMPTS, STEPS, THRESHOLD = 3, 300, 1e-4


@dataclass(frozen=True)
class SolvingRow:
    """Seconds that the loop and the engine take for all victims, and how many each of them solved."""

    model: str
    victims: int
    device: str
    loop_victims: int  # those the loop was timed on
    loop_solved: int
    loop_seconds: float  # scaled to all victims
    engine_solved: int
    engine_seconds: float
    sooner: float  # loop / engine

    def as_dict(self) -> dict[str, str | int | float]:
        return dataclasses.asdict(self)


def measure_solving(device: torch.device, victims: int = 100, loop_victims: int = 8, seed: int = 0) -> SolvingRow:
    """Time the loop and the engine on photographs of the package."""
    if not 1 <= loop_victims <= victims:
        raise BadInput("loop victims", allowed=f"1 to {victims}", got=loop_victims, do="time fewer in the loop")
    set_precision("float32")
    data = load(DATA)
    batch = draw_victims(data, victims, 1, seed)
    batch = Batch(batch.inputs.to(device), batch.labels.to(device))
    model = load_model(MODEL, data.spec, seed).to(device)
    update = fedsgd()(model, batch, range(victims))
    facts = facts_about(model, batch, data.spec, Client(), None)
    seen = observe(model, update, threat_model("honest-but-curious"), facts)
    attack = CPL(init=START, steps=STEPS, restarts=ATTEMPTS, absolute_threshold=THRESHOLD)
    # One step of each before the clock starts.
    attack.with_fields(steps=1, restarts=1)(seen.take([0]), [0])  # type: ignore[misc]
    _loop(model, update, batch, 0, steps=1)

    began = time.perf_counter()
    result = attack(seen, range(victims))
    solved = int((result.objective < THRESHOLD).sum())
    engine_seconds = time.perf_counter() - began

    began = time.perf_counter()
    loop_solved = sum(_loop(model, update, batch, victim, STEPS) for victim in range(loop_victims))
    loop_seconds = (time.perf_counter() - began) * victims / loop_victims
    return SolvingRow(
        MODEL,
        victims,
        device.type,
        loop_victims,
        loop_solved,
        loop_seconds,
        solved,
        engine_seconds,
        loop_seconds / engine_seconds,
    )


def _loop(model: nn.Module, update: SharedUpdate, batch: Batch, victim: int, steps: int) -> bool:
    """Attack one victim as published code does, with a new start after a failed attempt; true if it was solved."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    observed = [update.tensors[name][victim] for name in names]
    like = observed[0]
    for attempt in range(ATTEMPTS if steps > 1 else 1):
        start = start_inputs(START, [victim], f"start/{attempt}", tuple(batch.inputs.shape[1:]))[0].to(like)
        x = start.requires_grad_()
        optimiser = torch.optim.LBFGS([x], lr=1.0)

        def distance() -> Tensor:
            loss = cross_entropy(model(x), batch.labels[victim])  # noqa: B023 - called before the next attempt
            gradients = torch.autograd.grad(loss, parameters, create_graph=True)
            return torch.stack([((g - o) ** 2).sum() for g, o in zip(gradients, observed, strict=True)]).sum()

        def closure() -> Tensor:
            optimiser.zero_grad()  # noqa: B023
            value = distance()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        for _ in range(steps):
            optimiser.step(closure)  # type: ignore[no-untyped-call]
            value = float(distance().detach())
            if value < THRESHOLD:
                return True
            if not math.isfinite(value):
                break
    return False

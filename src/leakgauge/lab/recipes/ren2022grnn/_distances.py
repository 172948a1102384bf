"""How far recovered pictures are from the true ones after so many steps of an attack: Figures 3.3 and 3.6."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from leakgauge.audit.run import Watch, run_audit
from leakgauge.errors import LeakgaugeError
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.metrics.distances import wasserstein
from leakgauge.metrics.psnr import mse
from leakgauge.types import Scenario


@dataclass(frozen=True, kw_only=True)
class Distances(Measurement):
    """Mean squared error and Wasserstein distance of one attack's pictures. Its number of steps is in `attack`."""

    unit: ClassVar[str] = "updates"

    model: str
    data: str
    attack: str
    batch_size: int = 1
    defense: str = ""
    updates: int = 10

    @property
    def title(self) -> str:
        noised = f" with {self.defense}" if self.defense else ""
        return f"distances after {self.attack} on {self.model}, {self.data}{noised}: {self.updates} x {self.batch_size}"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        scenario = Scenario(
            model=self.model,
            data=self.data,
            attacks=(self.attack,),
            trials=self.updates,
            batch_size=self.batch_size,
            defenses=(self.defense,) if self.defense else (),
            seed=self.seed,
            variants="plain",
        )
        _, pictures = run_audit(scenario, undefended=False, device=device, data_root=data_root, watch=watch)
        name = f"{self.attack.partition(':')[0]} | "
        shown = [tensor for cell, tensor in pictures.recovered.items() if cell.startswith(name)]
        if not shown:
            raise LeakgaugeError(f"{self.attack} recovered no pictures")
        errors, transports = image_distances(pictures.true, shown[0])
        return {"image_mse": tuple(errors.tolist()), "image_wd": tuple(transports.tolist())}


def image_distances(true: Tensor, recovered: Tensor) -> tuple[Tensor, Tensor]:
    """(T, N, C, H, W) twice -> MSE and Wasserstein-1 distance between the pixels' values, means over N: (T,) each."""
    return mse(true, recovered).mean(1), wasserstein(true.flatten(2), recovered.flatten(2)).mean(1)

"""Figures 3.3, 3.4 and 3.6: distances of images and of gradients, by steps of the attack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from leakgauge.audit.run import Watch, run_audit
from leakgauge.errors import LeakgaugeError
from leakgauge.lab.recipes.ren2022grnn._cells import DATA, DLG, GRNN, SMALL, attacked, victims
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Study, Table
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


_STEPS = {"GRNN": (125, 500, 2000, 8000), "DLG": (5, 20, 80, 300)}  # one step of DLG is 20 iterations of L-BFGS
_ATTACKS = {"GRNN": GRNN[SMALL], "DLG": DLG}
_UPDATES = {1: 10, 4: 5, 8: 4, 16: 3}  # by images in each
_ASKED: dict[str, float | None] = {"image_mse": None, "image_wd": None}


def _pictures(data: str) -> str:
    return f"{data}:size=32" if data == "mnist" else data


FIGURE_3 = Table(
    "F3.3",
    "Figure 3.3, distance of recovered from true images by steps of the attack, LeNet",
    "MSE of values from 0 to 1, and Wasserstein-1 distance between the sorted values of a picture's pixels; means over "
    "updates, with Student's interval. Each row is an attack of its own with so many steps, the same as the first "
    "steps of a longer one; of these the point with the lowest loss is shown.",
    "The thesis draws curves and no figures. It reads from them that GRNN is a little worse than DLG at single images "
    "and much better from 4 on, where DLG solves MNIST alone, and nothing at 16. Its Tables 3.2 and 3.5 show pictures "
    "of the same runs. The released code logs the mean absolute error and the plain norm under these names.",
    tuple(
        Cell(
            f"{name}, {steps:,} steps, {images} in an update",
            DATA[data],
            Study(
                Distances(
                    model=SMALL,
                    data=_pictures(data),
                    attack=f"{_ATTACKS[name]},steps={steps}",
                    batch_size=images,
                    updates=updates,
                )
            ),
            _ASKED,
            quick=1 if (name, steps, images, data) == ("GRNN", 125, 1, "mnist") else 0,
        )
        for images, updates in _UPDATES.items()
        for name, counts in _STEPS.items()
        for steps in counts
        for data in DATA
    ),
)

FIGURE_4 = Table(
    "F3.4",
    "Figure 3.4, squared distance between the gradients at 32 images in an update, LeNet",
    "the lowest sum of squared differences that the attack reached, mean over updates. GRNN has this sum for its whole "
    "loss here.",
    "The thesis draws curves: DLG comes closer in the gradients and shows no image.",
    tuple(
        Cell(
            name,
            DATA[data],
            attacked(SMALL, data, trials=victims(data, 32), batch_size=32, attack=attack),
            {"objective": None, "recognised": None},
            quick=1 if (name, data) == ("DLG", "mnist") else 0,
            quick_attack="dlg:restarts=1,steps=2",
        )
        for name, attack in (("GRNN", "grnn:wd=0,tv=0"), ("DLG", DLG))
        for data in DATA
    ),
)

FIGURE_6 = Table(
    "F3.6",
    "Figure 3.6, distance of GRNN's images from the true ones under noise, LeNet, one image per update",
    "as in Table F3.3.",
    "The thesis draws curves and reads from them that GRNN fails at 0.1 and gives reasonable images from 0.01 on.",
    tuple(
        Cell(
            f"{noise}={scale:g}, {steps:,} steps",
            DATA[data],
            Study(
                Distances(
                    model=SMALL,
                    data=_pictures(data),
                    attack=f"{GRNN[SMALL]},steps={steps}",
                    defense=f"{noise}={scale:g}",
                )
            ),
            _ASKED,
            quick=1 if (noise, scale, steps, data) == ("gaussian:std", 0.1, 500, "mnist") else 0,
        )
        for noise in ("gaussian:std", "laplace:scale")
        for scale in (1e-1, 1e-2, 1e-3, 1e-4)
        for steps in (500, 8000)
        for data in DATA
    ),
)

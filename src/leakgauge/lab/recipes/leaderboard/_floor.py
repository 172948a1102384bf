"""What a guess recovers that never looks at the update, as a cell: the floor that every row stands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from leakgauge.audit.run import Watch, run_audit
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.lab.reproduce.statistics import recognised
from leakgauge.types import Client, Scenario


@dataclass(frozen=True, kw_only=True)
class Floor(Measurement):
    """One floor on the victims of a scenario: the same records that the attacks are scored on."""

    unit: ClassVar[str] = "victims"
    counted: ClassVar[str] = "trials"

    floor: str  # mean-image or random-guess
    model: str
    data: str
    trials: int
    batch_size: int = 1
    local: Client = field(default_factory=Client)

    @property
    def title(self) -> str:
        return f"{self.floor} on {self.data}: {self.trials} victims, seed {self.seed}"

    @property
    def setting(self) -> str:
        return "the update is not looked at"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        scenario = Scenario(
            model=self.model,
            data=self.data,
            batch_size=self.batch_size,
            trials=self.trials,
            local=self.local,
            attacks=(self.floor,),
            seed=self.seed,
        )
        report, _ = run_audit(scenario, device=device, data_root=data_root, watch=watch)
        records = [dict(r) for f in report.findings if f.attack == self.floor for r in f.records]
        found = {"recognised_blind": tuple(float(recognised(r)) for r in records)}
        for metric, name in (("ssim", "ssim_blind"), ("psnr", "psnr_blind"), ("mse", "mse_blind")):
            values = tuple(v for r in records if (v := r.get(metric)) is not None)
            if values:
                found[name] = values
        return found

"""DLG: match the gradient by optimising a dummy image and its label together.

Zhu, Liu and Han, "Deep Leakage from Gradients", NeurIPS 2019. Start both at N(0, 1), minimise the squared distance to
the observed gradient over all tensors with L-BFGS, never clamp.

Where we depart. The published code takes full L-BFGS steps and diverges for about one seed in five: by default a step
that does not go down is shortened (`line_search="fixed"` is theirs), and up to `restarts` attempts are made, the one
with the lowest own objective is kept. Many victims run side by side. If the threat model reveals labels they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.matching.gradient_matching import GradientMatching
from leakgauge.matching.labels import SOURCES
from leakgauge.settings import setting
from leakgauge.types import SUITE_NAMES


@dataclass(frozen=True)
class DLG(GradientMatching):
    """Deep Leakage from Gradients.

    Example: `leakgauge attack dlg --data photos32 --model lenet-dlg --trials 4`
    """

    name: ClassVar[str] = "dlg"
    summary: ClassVar[str] = "match the gradient over image and label together (L-BFGS)"
    paper: ClassVar[str] = "Zhu et al. 2019, Deep Leakage from Gradients, NeurIPS"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 5.1
    in_suites: ClassVar[Mapping[str, str | None]] = dict.fromkeys(SUITE_NAMES, "restarts=4,schedule=halving")
    unlabelled_in: ClassVar[tuple[str, ...]] = ("quick", "standard")

    labels: str = setting("optimise", "where hidden labels come from: the last layer or the search", choices=SOURCES)

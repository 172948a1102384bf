"""DP-SGD: every sample's gradient is clipped to C, noise N(0, sigma^2 C^2) is added to their sum, all divided by B.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016. The noise on the mean gradient is sigma C / B. With
FedAvg every local step is a step of DP-SGD.

The promise to one sample follows from `sigma`, the sampling rate `q`, the number of noised steps `rounds` and `delta`,
as the user states them of the whole training; without noise, q or rounds nothing is promised. Attacked is one update.
Its client takes samples in order, while the accounting assumes that each is drawn with probability q, in secret.

How to beat it: the likelihood of the noise, which divides by the batch, with the clipping replayed (see `clip`) and a
smoothness prior. A tampering server with larger gradients gains nothing: they are clipped before the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from leakgauge.defenses._clipping import SAMPLE, WHOLE, Clipping
from leakgauge.defenses.accounting import Accounted


@dataclass(frozen=True)
class DPSGD(Accounted):
    """Example: `--defense dp-sgd:norm=1,sigma=1.1,q=0.01,rounds=1000,delta=1e-5`"""

    name: ClassVar[str] = "dp-sgd"
    summary: ClassVar[str] = "clip each sample's gradient and add noise to their sum, accounted"
    paper: ClassVar[str] = "Abadi et al. 2016, CCS"
    unit: ClassVar[str] = "sample"

    @property
    def clipping(self) -> Clipping:
        return Clipping(self.norm, WHOLE, SAMPLE)

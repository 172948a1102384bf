"""Fed-CDP and Fed-SDP: noise inside the client's training at every local step, or once on the update it shares.

Wei et al., "Gradient-Leakage Resilient Federated Learning", ICDCS 2021. Fed-CDP clips each sample's gradient tensor by
tensor to C and adds noise at every local step; its promise is to a sample. Fed-SDP clips the client's update as a whole
and adds noise once per round; its promise is to a client. Both follow from `sigma`, `q`, `rounds` and `delta` as the
user states them. For Fed-CDP `rounds` counts local steps. If the server sees who takes part, q of Fed-SDP is 1.

Where we depart. L tensors that are each clipped to C can together move by C sqrt(L). The paper adds noise sigma C and
accounts as if the whole moved by C. Here the noise is sigma C sqrt(L) (`noise="joint"`), and sigma is accounted.
`noise="tensor"` is the paper's; it is attacked like any other, and nothing is promised for it. The released code adds
no noise at all: its line is commented out, and the other script multiplies by zero. Its log has C = 4 and sigma = 6,
our defaults.

How to beat them: the guess is clipped likewise and the noise is weighed, with one scale per tensor for Fed-CDP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from leakgauge.defenses._clipping import CLIENT, LAYER, SAMPLE, WHOLE, Clipping
from leakgauge.defenses.accounting import Accounted
from leakgauge.errors import NotApplicable
from leakgauge.matching.noise import JOINT_SUM, UPDATE, Noise
from leakgauge.settings import setting
from leakgauge.types import Batch, Guarantee, SharedUpdate, Step


@dataclass(frozen=True)
class FedCDP(Accounted):
    """Example: `--defense fed-cdp:norm=4,sigma=6,q=0.01,rounds=10000`"""

    name: ClassVar[str] = "fed-cdp"
    summary: ClassVar[str] = "clip each sample's gradient tensor by tensor and add noise at every local step, accounted"
    paper: ClassVar[str] = "Wei et al. 2021 (Fed-CDP), ICDCS"
    unit: ClassVar[str] = "sample"

    norm: float = setting(4.0, "C, the largest length of one tensor; 0 turns the defense off", low=0)
    sigma: float = setting(6.0, "noise multiplier; 0 adds none", low=0)
    noise: str = setting(
        "joint", "in units of what a sample can move: all tensors together, or one", choices=("joint", "tensor")
    )

    @property
    def clipping(self) -> Clipping:
        return Clipping(self.norm, LAYER, SAMPLE)

    @property
    def clipped_noise(self) -> Noise | None:
        noise = super().clipped_noise
        return noise if noise is None or self.noise != "joint" else replace(noise, on=JOINT_SUM)

    def mu(self, steps: int = 1) -> float | None:
        return super().mu(steps) if self.noise == "joint" else None

    def guarantee(self) -> Guarantee | None:
        return super().guarantee() if self.noise == "joint" else None


@dataclass(frozen=True)
class FedSDP(Accounted):
    """Example: `--defense fed-sdp:norm=4,sigma=6,q=1,rounds=100`"""

    name: ClassVar[str] = "fed-sdp"
    summary: ClassVar[str] = "clip the client's update and add noise once per round, accounted"
    paper: ClassVar[str] = "Wei et al. 2021 (Fed-CDP), ICDCS; McMahan et al. 2018"
    unit: ClassVar[str] = "client"
    noise_on: ClassVar[str] = UPDATE

    norm: float = setting(4.0, "C, the largest length of the update as it is shared; 0 turns the defense off", low=0)
    sigma: float = setting(6.0, "standard deviation of the noise in units of C; 0 adds none", low=0)

    def wrap(self, step: Step) -> Step:
        def without_buffers(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            if shared.buffers:
                raise NotApplicable(
                    f"fed-sdp adds noise to parameters, and {next(iter(shared.buffers))!r} is shared as it is; use "
                    "batchnorm=eval, or a model with GroupNorm"
                )
            return shared

        return step if self.idle else super().wrap(without_buffers)

    @property
    def clipping(self) -> Clipping:
        return Clipping(self.norm, WHOLE, CLIENT)

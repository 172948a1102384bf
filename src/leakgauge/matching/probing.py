"""Gradients of samples that the attacker makes up, in float64: what they show of how a network reads its input."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.engine.gradients import working_model
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.types import DataSpec, Fact, LocalTraining, Observation

_START = 0.1  # size of what stands in for tensors of zeros, which hide what is behind them
_SHAKEN = 0.2  # relative: how far weights are moved for more equations than there are classes


@dataclass(frozen=True)
class Probing:
    """The network as the client's step sees it, in float64, and which of its tensors are shared."""

    net: nn.Module
    shapes: dict[str, tuple[int, ...]]  # name -> shape, of what the update holds
    shape: tuple[int, ...]  # of a sample

    @property
    def like(self) -> Tensor:
        return next(self.net.parameters())

    def gradients(self, samples: Tensor, names: Iterable[str], pulls: int = 1) -> list[dict[str, Tensor]]:
        """For each sample (K, *shape) the gradients (pulls, *parameter) of so many sums of its logits.

        Beyond as many sums as there are classes the weights are moved: each stays another equation on the same sample.
        """
        wanted = tuple(dict.fromkeys(names))
        rows: list[list[tuple[Tensor, ...]]] = [[] for _ in samples]
        random = generator(0, "probing")
        net, done = self.net, 0
        while done < pulls:
            parameters = dict(net.named_parameters())
            tensors = [parameters[name] for name in wanted]
            at_once = 0
            for row, sample in zip(rows, samples, strict=True):
                logits = self._logits(net, sample[None])
                at_once = min(pulls - done, logits.numel())
                for k in range(at_once):
                    pull = torch.randn(logits.shape, generator=generator(0, f"pull/{done + k}")).to(logits)
                    row.append(
                        torch.autograd.grad(logits, tensors, pull, retain_graph=k + 1 < at_once, materialize_grads=True)
                    )
            done += at_once
            if done < pulls:
                net = self._moved(random)
        return [{name: torch.stack([g[i] for g in row]) for i, name in enumerate(wanted)} for row in rows]

    def _logits(self, net: nn.Module, sample: Tensor) -> Tensor:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            logits: Tensor = net(sample)
        return logits

    def _moved(self, random: torch.Generator) -> nn.Module:
        """Another network that reads its input alike: all shared weights moved."""
        net = copy.deepcopy(self.net)
        with torch.no_grad():
            for name, weight in net.named_parameters():
                if name in self.shapes:
                    noise = torch.randn(weight.shape, generator=random).to(weight)
                    weight.add_(_SHAKEN * weight.square().mean().sqrt() * noise)
        return net


def probing_of(observation: Observation) -> Probing:
    """A copy to try samples on. Tensors of zeros hide what is behind them (adapters at their start): filled at random.

    Raises NotApplicable where the network does not run on one sample in double precision.
    """
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    net = working_model(observation.model, local.batchnorm).double()
    random = generator(0, "zeros")
    shapes: dict[str, tuple[int, ...]] = {}
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.requires_grad_(name in observation.update.tensors)
            if name in observation.update.tensors:
                shapes[name] = tuple(weight.shape)
            if not bool(weight.any()):
                weight.copy_(_START * torch.randn(weight.shape, generator=random).to(weight))
    probing = Probing(net, shapes, data.shape)
    try:
        probing.gradients(torch.full((1, *data.shape), 0.5).to(probing.like), tuple(shapes)[:1])
    except (RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise NotApplicable(f"the network does not run on one sample in double precision ({why}); use dlg") from error
    return probing

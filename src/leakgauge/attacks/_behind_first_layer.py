"""The known network behind its first linear layer: what it would have sent back for a given sample and label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.types import CROSS_ENTROPY

_PASS = 128  # samples at once
_PROBES = 8  # random inputs on which the layer is tried for a ReLU behind it


@dataclass(frozen=True)
class BehindFirstLayer:
    """`net` is a working copy in float64. What a layer puts out is watched, and varied sample by sample.

    Where the ReLU is followed by a linear layer, `second`, there are two rows for each of the H units: over the samples
    that have it on, as in the gradient, and over those that have it off (see `always_on_units.py`).
    """

    net: nn.Module
    layer: str
    samples: int  # N: losses are averaged over so many
    loss: str
    second: str | None = None

    @property
    def outgoing(self) -> Tensor | None:
        """(m, H), the weights of the second layer."""
        return None if self.second is None else self.net.get_submodule(self.second).get_parameter("weight").detach()

    def outputs(self, inputs: Tensor) -> Tensor:
        """What the layer puts out (M, H) for inputs (M, *shape)."""
        with torch.no_grad():
            return torch.cat([self._run(part, self.layer)[1].detach() for part in torch.split(inputs, _PASS)])

    def slopes(self, inputs: Tensor, rows: Tensor) -> Tensor:
        """(M, C): the bias gradient that each input alone leaves in its row (M,), for every label it may have."""
        parts = zip(torch.split(inputs, _PASS), torch.split(rows, _PASS), strict=True)
        return torch.cat([self._slopes(x, row) for x, row in parts])

    def coefficients(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Bias gradients that inputs with their labels leave in all rows (M, R), and what the layer puts out (M, H)."""
        found, outs = [], []
        for x, y in zip(torch.split(inputs, _PASS), torch.split(labels, _PASS), strict=True):
            with torch.enable_grad():
                logits, out, added = self._run(x, self.second or self.layer)
                wrong = -nn.functional.one_hot(y, logits.shape[1]).to(logits)
                if self.loss == CROSS_ENTROPY:
                    wrong = wrong + torch.softmax(logits.detach(), 1)
                (back,) = torch.autograd.grad(logits, added, wrong / self.samples)
            if self.outgoing is not None:
                back = back @ self.outgoing
                back = torch.cat((torch.where(out > 0, back, 0), torch.where(out > 0, 0, back)), 1)
            found.append(back)
            outs.append(out.detach())
        return torch.cat(found), torch.cat(outs)

    def rectified(self, shape: tuple[int, ...]) -> bool:
        """Is a unit silent exactly where its output is negative: does a ReLU, and nothing else, follow the layer?"""
        like = next(self.net.parameters())
        probes = torch.rand(_PROBES, *shape, generator=torch.Generator().manual_seed(0)).to(like)
        with torch.enable_grad():
            logits, out, added = self._run(probes, self.layer)
            pull = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)).to(logits)
            (back,) = torch.autograd.grad(logits, added, pull, materialize_grads=True)
        off = out.detach() < 0
        return bool((back[off] == 0).all()) and bool((back[~off] != 0).any()) and bool(off.any())

    def _slopes(self, x: Tensor, row: Tensor) -> Tensor:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
            logits, out, added = self._run(x, self.second or self.layer)
            # What the logits send back is linear in what is sent, so its derivative is what each logit gains.
            sent = torch.zeros_like(logits, requires_grad=True)
            (back,) = torch.autograd.grad(logits, added, sent, create_graph=True)
            unit = row % out.shape[1]
            along = (
                nn.functional.one_hot(unit, out.shape[1]).to(out) if self.outgoing is None else self.outgoing.T[unit]
            )
            (gained,) = torch.autograd.grad(back, sent, along)
        wrong = -gained
        if self.loss == CROSS_ENTROPY:
            wrong = wrong + (torch.softmax(logits.detach(), 1) * gained).sum(1, keepdim=True)
        if self.outgoing is not None:  # in its row only if the unit is on, or off
            on = out.detach().gather(1, unit[:, None]) > 0
            wrong = torch.where(on == (row < out.shape[1])[:, None], wrong, 0)
        return wrong / self.samples

    def _run(self, x: Tensor, varied: str) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, what the first layer put out, and the zeros that were added to what the varied one did."""
        seen: dict[str, Tensor] = {}

        def watch(_: nn.Module, __: tuple[Tensor, ...], out: Tensor) -> None:
            seen["out"] = out

        def vary(_: nn.Module, __: tuple[Tensor, ...], out: Tensor) -> Tensor:
            seen["added"] = torch.zeros_like(out, requires_grad=True)
            return out + seen["added"]

        hooks = [
            self.net.get_submodule(self.layer).register_forward_hook(watch),
            self.net.get_submodule(varied).register_forward_hook(vary),
        ]
        try:
            logits: Tensor = self.net(x)
        finally:
            for hook in hooks:
                hook.remove()
        return logits, seen["out"], seen["added"]


def linear_behind_relu(net: nn.Module, layer: str, shape: tuple[int, ...]) -> str | None:
    """The nn.Linear that reads the layer's outputs behind their ReLU, as they are; None if there is none."""
    entered: dict[str, list[Tensor]] = {}
    out: list[Tensor] = []
    hooks = [net.get_submodule(layer).register_forward_hook(lambda _, __, z: out.append(z))]
    for name, module in net.named_modules():
        if isinstance(module, nn.Linear) and name != layer:
            kept = entered.setdefault(name, [])
            hooks.append(module.register_forward_pre_hook(lambda _, args, kept=kept: kept.append(args[0])))
    like = next(net.parameters())
    try:
        with torch.no_grad():
            net(torch.rand(_PROBES, *shape, generator=torch.Generator().manual_seed(0)).to(like))
    finally:
        for hook in hooks:
            hook.remove()
    wanted = out[0].clamp_min(0)
    for name, seen in entered.items():
        if len(seen) == 1 and seen[0].shape == wanted.shape and torch.equal(seen[0], wanted):
            return name
    return None

"""A proof, without the truth, that one sample alone left a gradient in a unit of the first layer.

A candidate and a label say what the unit's bias gradient would be if the candidate were there alone. If some label
gives what was observed, it was: two samples add up to something else, unless one of them leaves next to nothing, and
then the ratio is the other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.engine.gradients import working_model
from leakgauge.servers._parts.imprint_module import Imprinted
from leakgauge.types import CROSS_ENTROPY, LocalTraining

_PASS = 32  # candidates at once
_KINKED = 4  # in roots of the precision: rounding may move the input of a deep network across a kink
_SMOOTH = 256  # in units of the precision: where the candidate itself is all that the network sees


def alone_in_bin(
    sent: Imprinted, candidates: Tensor, observed: Tensor, rounding: Tensor, samples: int, local: LocalTraining
) -> Tensor | None:
    """Which of the candidates (T, M, *shape) explain the bias gradients (T, M) of their bins by themselves.

    `rounding` (T, 1) is what an observed value may be off by. None where it cannot be told: BatchNorm that mixes the
    samples of a batch, or a layer without a second derivative. The network behind the module sees nothing but the
    statistic, and all units have the same outgoing weights.
    """
    net = working_model(sent.net, local.batchnorm)
    if uses_batch_statistics(net):
        return None
    flat = candidates.flatten(0, 1).to(next(sent.parameters()))
    tangent = sent.imprint.outgoing.reshape(flat.shape[1:])
    rows = []
    try:
        for part in torch.split(flat, _PASS):
            shown = sent.imprint.shown(part).requires_grad_()
            rows.append(_slopes(net, shown, shown, tangent.expand_as(shown), local.loss))
    except (RuntimeError, NotImplementedError):
        return None
    tolerance = _KINKED * torch.finfo(observed.dtype).eps ** 0.5
    return _explained(torch.cat(rows), observed, tolerance, rounding, samples)


def alone_in_unit(
    model: nn.Module,
    layer: str,
    candidates: Tensor,
    observed: Tensor,
    rounding: float,
    samples: int,
    local: LocalTraining,
) -> Tensor | None:
    """The same for units of a linear layer: candidate m (T, M, *shape) is that of unit m, with bias gradient (T, M)."""
    net = working_model(model, local.batchnorm)
    if uses_batch_statistics(net):
        return None
    flat, units = candidates.flatten(0, 1), candidates.shape[1]
    added: list[Tensor] = []  # to the layer's output, so that its derivative is the bias's for every sample
    hook = net.get_submodule(layer).register_forward_hook(lambda _, __, out: out + added[-1])
    rows = []
    try:
        for part in torch.split(torch.arange(len(flat), device=flat.device), _PASS):
            added.append(flat.new_zeros(len(part), units, requires_grad=True))
            tangent = nn.functional.one_hot(part % units, units).to(flat)
            rows.append(_slopes(net, flat[part], added[-1], tangent, local.loss))
    except (RuntimeError, NotImplementedError):
        return None
    finally:
        hook.remove()
    tolerance = _SMOOTH * torch.finfo(observed.dtype).eps  # many mixtures are tried: a wide one would let some pass
    return _explained(torch.cat(rows), observed, tolerance, observed.new_full((1, 1), rounding), samples)


def _slopes(net: nn.Module, inputs: Tensor, varied: Tensor, tangent: Tensor, loss: str) -> Tensor:
    """(S, C): by how much each sample's loss rises if `varied` (S, ...) moves along the tangent, for every label."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # the fused attention cannot be differentiated twice
        logits = net(inputs)
        # J^T v is linear in v, so its derivative along the tangent is J times the tangent: what each logit gains.
        v = torch.zeros_like(logits, requires_grad=True)
        (pulled,) = torch.autograd.grad(logits, varied, v, create_graph=True)
        (rising,) = torch.autograd.grad(pulled, v, tangent)
    if loss != CROSS_ENTROPY:
        return torch.neg(rising)
    mean_rise = (torch.softmax(logits.detach(), -1) * rising).sum(-1, keepdim=True)
    return torch.sub(mean_rise, rising)


def _explained(slopes: Tensor, observed: Tensor, tolerance: float, rounding: Tensor, samples: int) -> Tensor:
    """(T, M) bool: is the observed bias gradient (T, M) that of one sample, by any of its slopes (T x M, C)?"""
    expected = slopes.reshape(*observed.shape, -1) / samples  # (T, M, C)
    size = expected.abs() + 0.1 * expected.abs().amax(
        2, keepdim=True
    )  # a slope near zero is a difference of large ones
    enough: Tensor = (expected - observed[..., None]).abs() <= tolerance * size + rounding[..., None]
    return enough.any(2) & (observed != 0)

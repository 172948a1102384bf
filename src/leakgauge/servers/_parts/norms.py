"""BatchNorm behind copies: set so that it passes them on, whichever statistics the client uses.

With the running statistics that the server sends along, it hands on exactly what came in. With those of the client's
own batch, it gives every channel the mean and the spread that public pictures have there: the histogram that the paper
adjusts afterwards.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge.servers._parts.blueprint import Blueprint
from leakgauge.servers._parts.copies import Copies, filters

_SPREAD = 0.29  # of values evenly spread over [0, 1], where no public picture is known
_LEAST = 1e-3  # spread, so that dividing by it stays harmless


def pass_on(model: nn.Module, plan: Blueprint, copies: Copies, public: Tensor | None) -> None:
    """In place: every BatchNorm undoes the gain of its convolution. `public` are pictures (N, C, H, W)."""
    for i, layer in enumerate(plan.convolutions):
        if layer.norm:
            mean, spread = _entering(model, layer.norm, copies.places[i], copies.gain, public)
            missing = torch.zeros(len(mean)) if _has_bias(model, layer.name) else filters(plan, copies, i)[1]
            _write(model, layer.norm, copies.places[i], mean, spread, copies.gain, missing)


def _write(
    model: nn.Module, name: str, places: Tensor, mean: Tensor, spread: Tensor, gain: float, missing: Tensor
) -> None:
    """weight, bias and running statistics of the channels in use; `missing` is a bias that the convolution lacks."""
    norm = model.get_submodule(name)
    assert isinstance(norm, nn.BatchNorm2d)
    with torch.no_grad():
        norm.weight[places] = (spread / gain).to(norm.weight)
        norm.bias[places] = (mean / gain + missing.to(mean)).to(norm.bias)
        if norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean[places] = mean.to(norm.running_mean)
            norm.running_var[places] = (spread**2 - norm.eps).to(norm.running_var)


def _entering(model: nn.Module, name: str, places: Tensor, gain: float, public: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and spread of each used channel (used,) over pictures and pixels, the layers before being set already."""
    if public is None:
        like = next(model.parameters()).new_ones(len(places))
        return 0.5 * gain * like, _SPREAD * gain * like
    caught: list[Tensor] = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda _, args: caught.append(args[0][:, places]))
    with torch.no_grad():
        model(public.to(next(model.parameters())))
    hook.remove()
    values = caught[0].transpose(0, 1).flatten(1)
    return values.mean(1), values.std(1).clamp_min(_LEAST * gain)


def _has_bias(model: nn.Module, name: str) -> bool:
    return model.get_submodule(name).bias is not None

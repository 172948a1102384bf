"""The copies hidden in a block of each convolution: Eq. 20 of the MKOR paper.

Only weights from a channel in use to a channel in use are edited: the filter, times `beta`, where the design asks
for one, and small random values for the other pairs. What these channels read from the rest, and all other channels,
stay as they were. The rest disturbs the copies; a larger `beta` drowns it and is easier to see.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from leakgauge.servers._parts.blueprint import Blueprint
from leakgauge.servers._parts.copies import Copies, convolution, filters


def write_block(model: nn.Module, plan: Blueprint, copies: Copies, sigma: float, draw: torch.Generator) -> None:
    """In place: `copies.gain` times the filters, N(0, sigma^2) for the block's other pairs."""
    for i, layer in enumerate(plan.convolutions):
        module = convolution(model, layer)
        weight, bias = filters(plan, copies, i)
        chosen = weight.flatten(2).any(2)[:, :, None, None]  # (used outputs, used inputs, 1, 1): pairs with a filter
        edited = torch.where(chosen, copies.gain * weight, sigma * torch.randn(weight.shape, generator=draw))
        with torch.no_grad():
            module.weight[_block(copies, i)] = edited.to(module.weight)
            if module.bias is not None:
                module.bias[copies.places[i]] = (copies.gain * bias).to(module.bias)


def add_noise(
    model: nn.Module, plan: Blueprint, copies: Copies, noise: float, whole_rows: bool, draw: torch.Generator
) -> None:
    """Noise on the parameters that the server wrote, and on no other."""
    for i, layer in enumerate(plan.convolutions):
        module = convolution(model, layer)
        where = (copies.places[i],) if whole_rows else _block(copies, i)
        with torch.no_grad():
            for tensor, place in ((module.weight, where), (module.bias, (copies.places[i],))):
                if tensor is None:
                    continue
                old = tensor[place]
                tensor[place] = old + noise * torch.randn(old.shape, generator=draw).to(old)


def offsets(model: nn.Module, plan: Blueprint, copies: Copies, reference: Tensor) -> tuple[Tensor, ...]:
    """What the rest adds to each copy on average, per convolution (used,), if `reference` (N, C, H, W) goes in.

    The server knows the whole network, so it can measure that and take it off.
    """
    found: dict[str, Tensor] = {}
    hooks = []
    for i, layer in enumerate(plan.convolutions):
        module, weight, bias = convolution(model, layer), *filters(plan, copies, i)
        alone = copy.deepcopy(module)
        alone.in_channels, alone.out_channels = weight.shape[1], weight.shape[0]
        alone.weight = nn.Parameter(copies.gain * weight.to(module.weight), requires_grad=False)
        own_bias = copies.gain * bias if module.bias is not None else torch.zeros_like(bias)
        alone.bias = nn.Parameter(own_bias.to(module.weight), requires_grad=False)

        def note(
            _: nn.Module,
            entered: tuple[Tensor, ...],
            left: Tensor,
            i: int = i,
            alone: nn.Conv2d = alone,
            name: str = layer.name,
        ) -> None:
            own = alone(entered[0][:, copies.sources(i)])
            found[name] = (left[:, copies.places[i]] - own).mean((0, 2, 3))

        hooks.append(module.register_forward_hook(note))
    with torch.no_grad():
        model(reference)
    for hook in hooks:
        hook.remove()
    return tuple(found[layer.name] for layer in plan.convolutions)


def _block(copies: Copies, i: int) -> tuple[Tensor, ...]:
    return copies.places[i][:, None], copies.sources(i)

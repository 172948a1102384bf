"""Convolutions that pass the picture on: which channel copies what, shifted where.

A copy is one tap of value one. In front of max-pooling each colour is copied twice, as it is and inverted (1 - x), so
that the maxima of both bound it from above and below. Some layers send four copies, shifted by a pixel right, down and
both: behind the next pooling they hold the maxima of shifted regions, and many overlapping regions pin a pixel down.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.errors import NotApplicable
from leakgauge.servers._parts.blueprint import Blueprint, Convolution

_DIRECTIONS = 4  # in place, right, down, both


@dataclass(frozen=True)
class Copies:
    """Where everything is: what the server keeps for itself."""

    kind: str  # "max" or "average" pooling, "strided" convolutions, or "plain": what happens to the copies
    places: tuple[Tensor, ...]  # per convolution: the output channels in use, (used,)
    fans: tuple[int, ...]  # per convolution: 4 if it sends shifted copies, else 1
    shifts: tuple[int, ...]  # per convolution: +1 or -1, the way its shifted copies look
    colours: int
    gain: float = 1.0  # what each convolution multiplies its copies by
    offsets: tuple[Tensor, ...] = ()  # per convolution: what other channels add to its copies on average, (used,)

    def sources(self, i: int) -> Tensor:
        """The input channels that convolution `i` copies, (used,)."""
        return torch.arange(self.colours) if i == 0 else self.places[i - 1]

    @property
    def directions(self) -> int:
        """How many layers send shifted copies."""
        return sum(fan == _DIRECTIONS for fan in self.fans)


def plan_copies(
    plan: Blueprint, server: str, shuffled: torch.Generator | None, wanted: int = -1, gain: float = 1.0
) -> Copies:
    """Decide it, with `wanted` layers of shifted copies, or as many as fit if -1.

    `NotApplicable`, naming the layer, where there are too few channels.
    """
    kind = _kind(plan, server)
    layers, colours = plan.convolutions, len(plan.mean)
    if not layers:
        return Copies(kind, (), (), (), colours, gain)
    if layers[0].inputs != colours:
        raise NotApplicable(
            f"{server} cannot prepare layer {layers[0].name!r}: it sees {layers[0].inputs} channels of a picture with "
            f"{colours}"
        )
    base = 2 * colours if kind == "max" else colours
    halving = [i for i, layer in enumerate(layers) if layer.halves]
    for many in range(len(halving) + 1)[::-1]:
        last = halving[len(halving) - many :]
        fans = tuple(_DIRECTIONS if i in last else 1 for i in range(len(layers)))
        used = _used(base, fans)
        if all(u <= layer.outputs for u, layer in zip(used, layers, strict=True)):
            break
    else:
        short = next(layer for layer in layers if layer.outputs < base)
        raise NotApplicable(
            f"{server} cannot prepare layer {short.name!r}: copies of {colours} colours take {base} channels, and it "
            f"has {short.outputs}"
        )
    if wanted > many:
        raise NotApplicable(
            f"{server} cannot send shifted copies from {wanted} layers of this model, {many} at most; choose "
            f"directions from 0 to {many}, or -1 for as many as fit"
        )
    if wanted >= 0:
        last = halving[len(halving) - wanted :]
        fans = tuple(_DIRECTIONS if i in last else 1 for i in range(len(layers)))
        used = _used(base, fans)
    places = tuple(_places(u, layer.outputs, shuffled) for u, layer in zip(used, layers, strict=True))
    first = next((i for i, fan in enumerate(fans) if fan == _DIRECTIONS), -1)
    # The published LeNet design looks left and up first, so that its regions lie about the centre.
    shifts = tuple(-1 if kind == "average" and i == first else 1 for i in range(len(layers)))
    return Copies(kind, places, fans, shifts, colours, gain)


def write_copies(model: nn.Module, plan: Blueprint, copies: Copies) -> None:
    """Set the taps, in place, and zero all else that a channel in use reads. Other channels stay as they are."""
    for i, layer in enumerate(plan.convolutions):
        module = convolution(model, layer)
        weight, bias = filters(plan, copies, i)
        rows = weight.new_zeros(len(weight), layer.inputs, *weight.shape[2:])
        rows[:, copies.sources(i)] = weight
        with torch.no_grad():
            module.weight[copies.places[i]] = rows.to(module.weight)
            if module.bias is not None:
                module.bias[copies.places[i]] = bias.to(module.bias)


def filters(plan: Blueprint, copies: Copies, i: int) -> tuple[Tensor, Tensor]:
    """Between the channels in use: weights (used outputs, used inputs, k, k) of convolution `i`, biases (outputs,).

    The first layer also undoes the network's own normalisation, and inverts where maxima are to come.
    """
    layer, fan, sign = plan.convolutions[i], copies.fans[i], copies.shifts[i]
    weight = torch.zeros(len(copies.places[i]), len(copies.sources(i)), layer.kernel, layer.kernel)
    bias = torch.zeros(len(weight))
    own = torch.arange(len(copies.sources(i)))
    for direction, targets in enumerate(torch.arange(len(weight)).reshape(fan, -1)):
        down, right = divmod(direction, 2)
        row, column = layer.kernel // 2 + sign * down, layer.kernel // 2 + sign * right
        if i > 0:
            weight[targets, own, row, column] = 1
            continue
        mean, std = torch.tensor(plan.mean), torch.tensor(plan.std)
        upright, inverted = targets[: copies.colours], targets[copies.colours :]
        weight[upright, own, row, column] = std
        bias[upright] = mean
        if copies.kind == "max":
            weight[inverted, own, row, column] = -std
            bias[inverted] = 1 - mean
    return weight, bias


def convolution(model: nn.Module, layer: Convolution) -> nn.Conv2d:
    module = model.get_submodule(layer.name)
    assert isinstance(module, nn.Conv2d)
    return module


def narrowed(model: nn.Module, plan: Blueprint, copies: Copies) -> nn.Module:
    """A copy of the network with only the channels in use: the same features, at a fraction of the cost.

    What unused channels add to the first dense layer is left out.
    """
    small = copy.deepcopy(model)
    sources = torch.arange(copies.colours)
    for layer, places in zip(plan.convolutions, copies.places, strict=True):
        module = small.get_submodule(layer.name)
        assert isinstance(module, nn.Conv2d)
        module.in_channels, module.out_channels = len(sources), len(places)
        module.weight = nn.Parameter(module.weight.detach()[places][:, sources])
        if module.bias is not None:
            module.bias = nn.Parameter(module.bias.detach()[places])
        if layer.norm:
            _narrow_norm(small.get_submodule(layer.norm), places)
        sources = places
    dense = small.get_submodule(plan.dense[0])
    assert isinstance(dense, nn.Linear)
    kept = used_features(plan, copies)
    dense.weight, dense.in_features = nn.Parameter(dense.weight.detach()[:, kept]), len(kept)
    return small


def _narrow_norm(norm: nn.Module, places: Tensor) -> None:
    assert isinstance(norm, nn.BatchNorm2d)
    norm.num_features = len(places)
    norm.weight, norm.bias = (nn.Parameter(p.detach()[places]) for p in (norm.weight, norm.bias))
    if norm.running_mean is not None and norm.running_var is not None:
        norm.running_mean, norm.running_var = norm.running_mean[places], norm.running_var[places]


def used_features(plan: Blueprint, copies: Copies) -> Tensor:
    """Which inputs of the first dense layer hold copies."""
    every = torch.arange(int(torch.Size(plan.features).numel())).reshape(plan.features)
    return (every[copies.places[-1]] if copies.places else every).flatten()


def _kind(plan: Blueprint, server: str) -> str:
    pooled = {layer.pooled for layer in plan.convolutions if layer.pooled}
    squashed = [layer for layer in plan.convolutions if layer.squashed]
    for layer in plan.convolutions:
        if layer.kernel % 2 == 0 or layer.padding > layer.kernel // 2 or layer.kernel < 3:
            raise NotApplicable(
                f"{server} cannot prepare layer {layer.name!r}: copies need an odd kernel of at least 3 and padding of "
                f"at most half of it, not kernel {layer.kernel} and padding {layer.padding}"
            )
    if pooled == {"max", "average"}:
        raise NotApplicable(f"{server} takes max-pooling or average pooling, and the model has both")
    strided = next((layer for layer in plan.convolutions if layer.stride == 2), None)
    if pooled and strided is not None:
        raise NotApplicable(f"{server} takes pooling or strides, and the model has both: {strided.name!r} has stride 2")
    kind = pooled.pop() if pooled else "plain" if strided is None else "strided"
    if kind == "max" and squashed:
        raise NotApplicable(f"{server} cannot prepare layer {squashed[0].name!r}: max-pooling behind a sigmoid")
    return kind


def _used(base: int, fans: tuple[int, ...]) -> list[int]:
    used = []
    for fan in fans:
        base *= fan
        used.append(base)
    return used


def _places(used: int, outputs: int, shuffled: torch.Generator | None) -> Tensor:
    order = torch.arange(outputs) if shuffled is None else torch.randperm(outputs, generator=shuffled)
    return order[:used]


def geometry(plan: Blueprint, copies: Copies) -> tuple[int, int, list[int]]:
    """(extent of a region in pixels, where region 0 begins, how far each shifted copy moves it), unshifted first."""
    scale, begin, moves = 1, 0, []
    for layer, fan, sign in zip(plan.convolutions, copies.fans, copies.shifts, strict=True):
        begin += scale * _cropped(layer)
        if fan == _DIRECTIONS:
            moves.append(sign * scale)
        if layer.halves:
            scale *= 2
    return scale, begin, moves


def _cropped(layer: Convolution) -> int:
    """Pixels that a convolution without full padding loses at each border."""
    return layer.kernel // 2 - layer.padding

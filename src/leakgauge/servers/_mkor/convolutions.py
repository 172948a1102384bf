"""Convolutions that pass the picture on: which channel copies what, shifted where.

A copy is one tap of value one. In front of max-pooling each colour is copied twice, as it is and inverted (1 - x), so
that the maxima of both bound it from above and below. Some layers send four copies, shifted by a pixel right, down and
both: behind the next pooling they hold the maxima of shifted regions, and many overlapping regions pin a pixel down.

Either the whole rows of the channels in use are written, or, hidden, a block of each convolution (Eq. 20): only weights
from a channel in use to a channel in use are edited, the filter times `beta` where the design asks for one, and small
random values for the other pairs. What these channels read from the rest stays as it was and disturbs the copies; a
larger `beta` drowns it and is easier to see.

A BatchNorm behind copies passes them on, whichever statistics the client uses. With the running statistics that the
server sends, it hands on exactly what came in. With those of the client's batch, it gives every channel the mean and
the spread that public pictures have there: the histogram that the paper adjusts afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.errors import NotApplicable
from leakgauge.servers._mkor.blueprint import Blueprint, Convolution

_DIRECTIONS = 4  # in place, right, down, both
_SPREAD = 0.29  # of values evenly spread over [0, 1], where no public picture is known
_LEAST = 1e-3  # spread, so that dividing by it stays harmless


@dataclass(frozen=True)
class Copies:
    """Where everything is: what the server keeps for itself."""

    plan: Blueprint
    kind: str  # "max" or "average" pooling, "strided" convolutions, or "plain": what happens to the copies
    places: tuple[Tensor, ...] = ()  # per convolution: the output channels in use, (used,)
    fans: tuple[int, ...] = ()  # per convolution: 4 if it sends shifted copies, else 1
    shifts: tuple[int, ...] = ()  # per convolution: +1 or -1, the way its shifted copies look
    gain: float = 1.0  # what each convolution multiplies its copies by
    offsets: tuple[Tensor, ...] = ()  # per convolution: what other channels add to its copies on average, (used,)

    @property
    def colours(self) -> int:
        return len(self.plan.mean)

    def sources(self, i: int) -> Tensor:
        """The input channels that convolution `i` copies, (used,)."""
        return torch.arange(self.colours) if i == 0 else self.places[i - 1]

    def block(self, i: int) -> tuple[Tensor, Tensor]:
        """Indices of the weights of convolution `i` between channels in use."""
        return self.places[i][:, None], self.sources(i)

    def layers(self, model: nn.Module) -> Iterator[tuple[int, Convolution, nn.Conv2d]]:
        for i, layer in enumerate(self.plan.convolutions):
            module = model.get_submodule(layer.name)
            assert isinstance(module, nn.Conv2d)
            yield i, layer, module

    def used_features(self) -> Tensor:
        """Which inputs of the first dense layer hold copies."""
        every = torch.arange(torch.Size(self.plan.features).numel()).reshape(self.plan.features)
        return (every[self.places[-1]] if self.places else every).flatten()

    def geometry(self) -> tuple[int, int, list[int]]:
        """(pixels along a region, where region 0 begins, how far each shifted copy moves it), unshifted first."""
        scale, begin, moves = 1, 0, []
        for layer, fan, sign in zip(self.plan.convolutions, self.fans, self.shifts, strict=True):
            begin += scale * (layer.kernel // 2 - layer.padding)  # pixels that are lost at each border
            if fan == _DIRECTIONS:
                moves.append(sign * scale)
            if layer.halves:
                scale *= 2
        return scale, begin, moves

    def filters(self, i: int) -> tuple[Tensor, Tensor]:
        """Between the channels in use: weights (used outputs, used inputs, k, k) of convolution `i`, biases (outputs,).

        The first layer also undoes the network's own normalisation, and inverts where maxima are to come.
        """
        kernel, own = self.plan.convolutions[i].kernel, torch.arange(len(self.sources(i)))
        scale, shift = torch.ones(len(own)), torch.zeros(len(own))
        if i == 0:
            scale, shift = torch.tensor(self.plan.std), torch.tensor(self.plan.mean)
            if self.kind == "max":
                own, scale, shift = own.repeat(2), torch.cat((scale, -scale)), torch.cat((shift, 1 - shift))
        weight = torch.zeros(len(self.places[i]), len(self.sources(i)), kernel, kernel)
        bias = torch.zeros(len(weight))
        for direction, targets in enumerate(torch.arange(len(weight)).reshape(self.fans[i], -1)):
            row, column = (kernel // 2 + self.shifts[i] * step for step in divmod(direction, 2))
            weight[targets, own, row, column], bias[targets] = scale, shift
        return weight, bias


def plan_copies(
    plan: Blueprint, server: str, shuffled: torch.Generator | None, wanted: int = -1, gain: float = 1.0
) -> Copies:
    """Decide it, with `wanted` layers of shifted copies, or as many as fit if -1.

    `NotApplicable`, naming the layer, where there are too few channels.
    """
    kind, layers, colours = _kind(plan, server), plan.convolutions, len(plan.mean)
    if not layers:
        return Copies(plan, kind, gain=gain)
    cannot = f"{server} cannot prepare layer"
    if layers[0].inputs != colours:
        seen = f"it sees {layers[0].inputs} channels of a picture with {colours}"
        raise NotApplicable(f"{cannot} {layers[0].name!r}: {seen}")
    base = 2 * colours if kind == "max" else colours
    short = next((layer for layer in layers if layer.outputs < base), None)
    if short is not None:
        taken = f"copies of {colours} colours take {base} channels, and it has {short.outputs}"
        raise NotApplicable(f"{cannot} {short.name!r}: {taken}")
    halving = [i for i, layer in enumerate(layers) if layer.halves]

    def used(many: int) -> tuple[tuple[int, ...], list[int]]:
        """With shifted copies from the last `many` layers that halve: 4 or 1 of each layer, its channels in use."""
        last = halving[len(halving) - many :]
        fans = tuple(_DIRECTIONS if i in last else 1 for i in range(len(layers)))
        return fans, (base * torch.tensor(fans).cumprod(0)).tolist()

    def fits(many: int) -> bool:
        return all(count <= layer.outputs for count, layer in zip(used(many)[1], layers, strict=True))

    most = max(filter(fits, range(len(halving) + 1)))
    if wanted > most:
        raise NotApplicable(
            f"{server} cannot send shifted copies from {wanted} layers of this model, {most} at most; choose "
            f"directions from 0 to {most}, or -1 for as many as fit"
        )
    fans, counts = used(most if wanted < 0 else wanted)
    places = []
    for count, layer in zip(counts, layers, strict=True):
        order = torch.arange(layer.outputs) if shuffled is None else torch.randperm(layer.outputs, generator=shuffled)
        places.append(order[:count])
    # The published LeNet design looks left and up first, so that its regions lie about the centre.
    turned = fans.index(_DIRECTIONS) if kind == "average" and _DIRECTIONS in fans else -1
    return Copies(plan, kind, tuple(places), fans, tuple(-1 if i == turned else 1 for i in range(len(layers))), gain)


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
    if pooled == {"max"} and squashed:
        raise NotApplicable(f"{server} cannot prepare layer {squashed[0].name!r}: max-pooling behind a sigmoid")
    return next(iter(pooled), "plain" if strided is None else "strided")


@torch.no_grad()
def write_copies(model: nn.Module, copies: Copies, block: tuple[float, torch.Generator] | None = None) -> None:
    """Set the taps, in place, and zero all else that a channel in use reads. Other channels stay as they are.

    With `block`, sigma and a generator, only pairs of channels in use change: N(0, sigma^2) beside the filters.
    """
    for i, layer, module in copies.layers(model):
        weight, bias = copies.filters(i)
        if block is not None:
            taps = weight.flatten(2).any(2)[:, :, None, None]  # (used outputs, used inputs, 1, 1): pairs with a filter
            edited = torch.where(taps, copies.gain * weight, block[0] * torch.randn(weight.shape, generator=block[1]))
            module.weight[copies.block(i)] = edited.to(module.weight)
        else:
            rows = weight.new_zeros(len(weight), layer.inputs, *weight.shape[2:])
            rows[:, copies.sources(i)] = weight
            module.weight[copies.places[i]] = rows.to(module.weight)
        if module.bias is not None:
            module.bias[copies.places[i]] = (copies.gain * bias).to(module.bias)


@torch.no_grad()
def add_noise(model: nn.Module, copies: Copies, noise: float, whole_rows: bool, draw: torch.Generator) -> None:
    """Noise on the parameters that the server wrote, and on no other."""
    for i, _, module in copies.layers(model):
        rows = (copies.places[i],)
        for tensor, place in ((module.weight, rows if whole_rows else copies.block(i)), (module.bias, rows)):
            if tensor is not None:
                old = tensor[place]
                tensor[place] = old + noise * torch.randn(old.shape, generator=draw).to(old)


@torch.no_grad()
def offsets(model: nn.Module, copies: Copies, reference: Tensor) -> tuple[Tensor, ...]:
    """What the rest adds to each copy on average, per convolution (used,), if `reference` (N, C, H, W) goes in.

    The server knows the whole network, so it can measure that and take it off.
    """
    found: dict[int, Tensor] = {}

    def measure(i: int, module: nn.Conv2d, entered: Tensor, left: Tensor) -> None:
        weight, bias = (copies.gain * part.to(module.weight) for part in copies.filters(i))
        own = module._conv_forward(entered[:, copies.sources(i)], weight, None if module.bias is None else bias)
        found[i] = (left[:, copies.places[i]] - own).mean((0, 2, 3))

    hooks = [
        module.register_forward_hook(lambda own, entered, left, i=i: measure(i, own, entered[0], left))
        for i, _, module in copies.layers(model)
    ]
    model(reference)
    for hook in hooks:
        hook.remove()
    return tuple(found[i] for i in range(len(found)))


@torch.no_grad()
def pass_on(model: nn.Module, copies: Copies, public: Tensor | None) -> None:
    """In place: every BatchNorm undoes the gain of its convolution. `public` are pictures (N, C, H, W)."""
    gain = copies.gain
    for i, layer, module in copies.layers(model):
        if not layer.norm:
            continue
        norm, places = model.get_submodule(layer.norm), copies.places[i]
        assert isinstance(norm, nn.BatchNorm2d)
        ones = norm.weight.new_ones(len(places))
        mean, spread = 0.5 * gain * ones, _SPREAD * gain * ones
        if public is not None:  # the layers before it are set already
            values = _entering(model, norm, public)[:, places].transpose(0, 1).flatten(1)  # (used, pictures x pixels)
            mean, spread = values.mean(1), values.std(1).clamp_min(_LEAST * gain)
        missing = 0 * ones if module.bias is not None else copies.filters(i)[1].to(mean)
        norm.weight[places] = (spread / gain).to(norm.weight)
        norm.bias[places] = (mean / gain + missing).to(norm.bias)
        if norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean[places] = mean.to(norm.running_mean)
            norm.running_var[places] = (spread**2 - norm.eps).to(norm.running_var)


def _entering(model: nn.Module, layer: nn.Module, inputs: Tensor) -> Tensor:
    caught: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, args: caught.append(args[0]))
    model(inputs.to(next(model.parameters())))
    hook.remove()
    return caught[0]


def narrowed(model: nn.Module, copies: Copies) -> nn.Module:
    """A copy of the network with only the channels in use: the same features, at a fraction of the cost.

    What unused channels add to the first dense layer is left out.
    """
    small = copy.deepcopy(model)
    for i, layer, module in copies.layers(small):
        sources, places = copies.sources(i), copies.places[i]
        module.in_channels, module.out_channels = len(sources), len(places)
        module.weight = nn.Parameter(module.weight.detach()[places][:, sources])
        if module.bias is not None:
            module.bias = nn.Parameter(module.bias.detach()[places])
        if layer.norm:
            norm = small.get_submodule(layer.norm)
            assert isinstance(norm, nn.BatchNorm2d)
            norm.num_features = len(places)
            norm.weight, norm.bias = (nn.Parameter(p.detach()[places]) for p in (norm.weight, norm.bias))
            if norm.running_mean is not None and norm.running_var is not None:
                norm.running_mean, norm.running_var = norm.running_mean[places], norm.running_var[places]
    dense, kept = small.get_submodule(copies.plan.dense[0]), copies.used_features()
    assert isinstance(dense, nn.Linear)
    dense.weight, dense.in_features = nn.Parameter(dense.weight.detach()[:, kept]), len(kept)
    return small

"""What a network is made of, in the order in which it runs: what a server must know before it can rewrite it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from leakgauge.errors import NotApplicable
from leakgauge.models.layers import Enlarge, Normalize
from leakgauge.types import DataSpec

# Leave values of at least zero alone, or do nothing in eval mode: there is nothing to rewrite.
_NEUTRAL = (nn.ReLU, nn.LeakyReLU, nn.Identity, nn.Flatten, nn.Dropout)


@dataclass(frozen=True)
class Convolution:
    """One convolution and what follows it before the next."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    padding: int
    squashed: bool = False  # by a sigmoid
    pooled: str = ""  # "", "max" or "average": 2x2 behind it
    stride: int = 1  # or 2
    norm: str = ""  # name of the BatchNorm2d right behind it

    @property
    def halves(self) -> bool:
        """Does half of each side leave it?"""
        return bool(self.pooled) or self.stride == 2


@dataclass(frozen=True)
class Blueprint:
    """A chain of convolutions, then a chain of dense layers."""

    convolutions: tuple[Convolution, ...]
    dense: tuple[str, ...]  # names of the nn.Linear layers, in order
    features: tuple[int, ...]  # shape of what enters the first dense layer, before it is flattened
    mean: tuple[float, ...]  # what the network subtracts from each channel first
    std: tuple[float, ...]  # and divides it by
    size: tuple[int, int]  # pixels of the picture that the first convolution sees; (0, 0) for tables


@dataclass(frozen=True)
class _Run:
    """A layer as one forward pass saw it."""

    name: str
    module: nn.Module
    entered: tuple[int, ...]  # shapes
    left: tuple[int, ...]
    chained: bool  # whether just what left the module before it entered

    def refused(self, server: str, why: str) -> NotApplicable:
        return NotApplicable(f"{server} cannot prepare layer {self.name!r} ({type(self.module).__name__}): {why}")


def blueprint(model: nn.Module, data: DataSpec, server: str) -> Blueprint:
    """Watch one forward pass. `NotApplicable`, naming the layer, for anything but the two chains."""
    runs = _leaves_in_order(model, data)
    convolutions: list[Convolution] = []
    dense: list[str] = []
    features, channels = data.shape, data.shape[0]  # of a table: its columns
    mean, std = (0.0,) * channels, (1.0,) * channels
    size = (data.shape[1], data.shape[2]) if data.kind == "image" else (0, 0)
    before: type[nn.Module] = nn.Identity
    for run in runs:
        module, first, between = run.module, not convolutions and not dense, bool(convolutions) and not dense
        if isinstance(module, Normalize) and first:
            mean, std = _per_channel(module.mean, channels), _per_channel(module.std, channels)
        elif type(module) is Enlarge and first:
            size, features = (run.left[2], run.left[3]), run.left[1:]
        elif isinstance(module, nn.Conv2d):
            convolutions.append(_convolution(run, module, bool(dense), server))
            features = run.left[1:]
        elif isinstance(module, nn.BatchNorm2d) and between and run.chained:
            last = convolutions[-1]
            if last.norm or last.squashed or last.pooled or module.weight is None or before is not nn.Conv2d:
                raise run.refused(server, "BatchNorm with weights is taken right behind a convolution only")
            convolutions[-1] = replace(last, norm=run.name)
        elif isinstance(module, nn.Linear):
            if module.bias is None:
                raise run.refused(server, "it has no bias, and features are read as weight over bias gradient")
            dense.append(run.name)
        elif isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)) and between:
            if (run.entered[2] // 2, run.entered[3] // 2) != run.left[2:]:
                raise run.refused(server, "only 2x2 pooling is supported")
            kind = "max" if isinstance(module, nn.MaxPool2d) else "average"
            convolutions[-1], features = replace(convolutions[-1], pooled=kind), run.left[1:]
        elif isinstance(module, nn.Sigmoid):
            if between:
                convolutions[-1] = replace(convolutions[-1], squashed=True)
        elif isinstance(module, nn.AdaptiveAvgPool2d) and run.entered == run.left:
            continue
        elif not isinstance(module, _NEUTRAL):
            chains = "Conv2d, BatchNorm2d, 2x2 pooling, ReLU or sigmoid, and Linear"
            raise run.refused(server, f"it takes chains of {chains}")
        before = type(module)
    _check_chain(runs, convolutions, server)
    if not dense:
        raise NotApplicable(f"{server} needs a dense layer whose gradient it can read, and the model has none")
    return Blueprint(tuple(convolutions), tuple(dense), features, mean, std, size)


def _leaves_in_order(model: nn.Module, data: DataSpec) -> list[_Run]:
    runs: list[_Run] = []
    on_meta: dict[int, object] = {id(p): nn.Parameter(p.detach().to("meta")) for p in model.parameters()}
    worker = copy.deepcopy(model, on_meta).to("meta").eval()  # shapes only: no weight is copied, nothing is computed
    names, real = {module: name for name, module in worker.named_modules()}, dict(model.named_modules())
    latest: list[Tensor] = []

    def note(module: nn.Module, entered: tuple[Tensor, ...], left: Tensor) -> None:
        # A tensor and its views, such as a flattened one, share their memory.
        chained = not latest or entered[0].untyped_storage()._cdata == latest[0].untyped_storage()._cdata
        name = names[module]
        runs.append(_Run(name, real[name], tuple(entered[0].shape), tuple(left.shape), chained))
        latest[:] = [left]

    for module in worker.modules():
        if not list(module.children()):
            module.register_forward_hook(note)
    with torch.no_grad():
        worker(torch.zeros(1, *data.shape, device="meta", dtype=next(worker.parameters()).dtype))
    return runs


def _check_chain(runs: list[_Run], convolutions: list[Convolution], server: str) -> None:
    """With BatchNorm or strides nothing may happen between the layers: it may be a shortcut, as in ResNets."""
    modules = {run.name: run.module for run in runs}
    for layer in convolutions:
        if modules[layer.name].bias is None and not layer.norm:
            raise NotApplicable(
                f"{server} cannot prepare layer {layer.name!r}: it has no bias, which an inverted copy needs"
            )
    jump = next((run for run in runs if not run.chained), None)
    if jump is not None and any(layer.norm or layer.stride == 2 for layer in convolutions):
        raise jump.refused(server, "what enters it is not just what left the layer before it, as with shortcuts")


def _convolution(run: _Run, module: nn.Conv2d, behind_dense: bool, server: str) -> Convolution:
    if behind_dense:
        raise run.refused(server, "it stands behind a dense layer")
    kernel, padding, stride = module.kernel_size[0], module.padding[0], module.stride[0]
    plain = module.stride in ((1, 1), (2, 2)) and module.dilation == (1, 1) and module.groups == 1
    if not plain or module.kernel_size != (kernel, kernel) or isinstance(padding, str):
        raise run.refused(server, "copies need a square kernel with stride 1 or 2, no dilation and no groups")
    return Convolution(run.name, module.in_channels, module.out_channels, kernel, int(padding), stride=stride)


def _per_channel(constant: Tensor, channels: int) -> tuple[float, ...]:
    values = constant.flatten().tolist()
    return tuple(values if len(values) == channels else values * channels)

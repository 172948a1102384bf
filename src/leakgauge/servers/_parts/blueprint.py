"""What a network is made of, in the order in which it runs: what a server must know before it can rewrite it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from leakgauge.errors import NotApplicable
from leakgauge.models.layers import Enlarge, Normalize
from leakgauge.types import DataSpec

_RECTIFIERS = (nn.ReLU, nn.Identity, nn.LeakyReLU)  # leave values of at least zero alone
_SQUASHING = (nn.Sigmoid,)
_NEUTRAL = (nn.Flatten, nn.Dropout, nn.Identity)  # nothing to rewrite, and in eval mode nothing happens


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


def blueprint(model: nn.Module, data: DataSpec, server: str) -> Blueprint:
    """Watch one forward pass. `NotApplicable`, naming the layer, for anything but the two chains."""
    ran = _leaves_in_order(model, data)
    convolutions: list[Convolution] = []
    dense: list[str] = []
    features: tuple[int, ...] = data.shape
    channels = data.shape[0]  # of a table: its columns
    mean, std = (0.0,) * channels, (1.0,) * channels
    size = (data.shape[1], data.shape[2]) if data.kind == "image" else (0, 0)
    before: type[nn.Module] = nn.Identity
    for name, module, seen, left, chained in ran:
        where = f"{server} cannot prepare layer {name!r} ({type(module).__name__})"
        if isinstance(module, Normalize) and not convolutions and not dense:
            mean, std = _per_channel(module.mean, channels), _per_channel(module.std, channels)
        elif type(module) is Enlarge and not convolutions and not dense:
            size = (left[2], left[3])
            features = left[1:]
        elif isinstance(module, nn.Conv2d):
            convolutions.append(_convolution(name, module, bool(dense), where))
            features = left[1:]
        elif isinstance(module, nn.BatchNorm2d) and convolutions and not dense and chained:
            last = convolutions[-1]
            if last.norm or last.squashed or last.pooled or module.weight is None or before is not nn.Conv2d:
                raise NotApplicable(f"{where}: BatchNorm with weights is taken right behind a convolution only")
            convolutions[-1] = replace(last, norm=name)
        elif isinstance(module, nn.Linear):
            if module.bias is None:
                raise NotApplicable(f"{where}: it has no bias, and features are read as weight over bias gradient")
            dense.append(name)
        elif isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)) and convolutions and not dense:
            if (seen[2] // 2, seen[3] // 2) != tuple(left[2:]):
                raise NotApplicable(f"{where}: only 2x2 pooling is supported")
            kind = "max" if isinstance(module, nn.MaxPool2d) else "average"
            convolutions[-1] = replace(convolutions[-1], pooled=kind)
            features = left[1:]
        elif isinstance(module, _SQUASHING):
            if convolutions and not dense:
                convolutions[-1] = replace(convolutions[-1], squashed=True)
        elif isinstance(module, nn.AdaptiveAvgPool2d) and seen == left:
            continue
        elif not isinstance(module, (*_RECTIFIERS, *_NEUTRAL)):
            raise NotApplicable(
                f"{where}: it takes chains of Conv2d, BatchNorm2d, 2x2 pooling, ReLU or sigmoid, and Linear"
            )
        before = type(module)
    _check_chain(ran, convolutions, dict(model.named_modules()), server)
    if not dense:
        raise NotApplicable(f"{server} needs a dense layer whose gradient it can read, and the model has none")
    return Blueprint(tuple(convolutions), tuple(dense), features, mean, std, size)


# name, module, shape that entered, shape that left, whether just what left the module before it entered
Ran = tuple[str, nn.Module, tuple[int, ...], tuple[int, ...], bool]


def _leaves_in_order(model: nn.Module, data: DataSpec) -> list[Ran]:
    ran: list[Ran] = []
    on_meta: dict[int, object] = {id(p): nn.Parameter(p.detach().to("meta")) for p in model.parameters()}
    worker = copy.deepcopy(model, on_meta).to("meta").eval()  # shapes only: no weight is copied, nothing is computed
    names = {module: name for name, module in worker.named_modules()}

    latest: list[Tensor] = []

    def note(module: nn.Module, entered: tuple[Tensor, ...], left: Tensor) -> None:
        same = not latest or _memory(entered[0]) == _memory(latest[-1])
        ran.append((names[module], module, tuple(entered[0].shape), tuple(left.shape), same))
        latest[:] = [left]

    hooks = [m.register_forward_hook(note) for m in worker.modules() if not list(m.children())]
    dtype = next(worker.parameters()).dtype
    with torch.no_grad():
        worker(torch.zeros(1, *data.shape, device="meta", dtype=dtype))
    for hook in hooks:
        hook.remove()
    real = dict(model.named_modules())
    return [(name, real[name], seen, left, chained) for name, _, seen, left, chained in ran]


def _memory(tensor: Tensor) -> int:
    """The same for a tensor and its views, such as a flattened one."""
    return int(tensor.untyped_storage()._cdata)


def _check_chain(ran: list[Ran], convolutions: list[Convolution], modules: dict[str, nn.Module], server: str) -> None:
    """With BatchNorm or strides nothing may happen between the layers: it may be a shortcut, as in ResNets."""
    for layer in convolutions:
        if modules[layer.name].bias is None and not layer.norm:
            raise NotApplicable(
                f"{server} cannot prepare layer {layer.name!r}: it has no bias, which an inverted copy needs"
            )
    if any(layer.norm or layer.stride == 2 for layer in convolutions):
        for name, module, _, _, chained in ran:
            if not chained:
                raise NotApplicable(
                    f"{server} cannot prepare layer {name!r} ({type(module).__name__}): what enters it is not just "
                    "what left the layer before it, as with shortcuts"
                )


def _convolution(name: str, module: nn.Conv2d, behind_dense: bool, where: str) -> Convolution:
    kernel, padding = module.kernel_size[0], module.padding[0]
    if behind_dense:
        raise NotApplicable(f"{where}: it stands behind a dense layer")
    stride = module.stride[0]
    plain = module.stride in ((1, 1), (2, 2)) and module.dilation == (1, 1) and module.groups == 1
    if not plain or module.kernel_size != (kernel, kernel) or isinstance(padding, str):
        raise NotApplicable(f"{where}: copies need a square kernel with stride 1 or 2, no dilation and no groups")
    return Convolution(name, module.in_channels, module.out_channels, kernel, int(padding), stride=stride)


def _per_channel(constant: Tensor, channels: int) -> tuple[float, ...]:
    values = constant.flatten().tolist()
    return tuple(values if len(values) == channels else values * channels)

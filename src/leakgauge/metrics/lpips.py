"""Learned perceptual distance (LPIPS version 0.1), with the AlexNet or the VGG16 trunk.

Both images run through an ImageNet network. At five depths the features are scaled to unit length per
position, their squared difference is weighted per channel by a head fitted to human judgements and averaged
over positions; the five sum up. 0 is the same image.

Takes values in [0, 1] and brings them to the [-1, 1] the networks were fitted on. One channel is repeated
three times. **Images under 64 px are upsampled (bilinear) until their shorter side has 64**: the trunks would
reduce them to one or two positions. Such a value does not compare with one of the image at its own size.
FedKL feeds BGR in 0..255, so its figures do not compare at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from leakgauge.errors import BadInput
from leakgauge.metrics import Metric
from leakgauge.metrics.lpips_weights import read_weights
from leakgauge.reading.files import data_root

MIN_SIDE = 64
_CHUNK = 64  # images at a time: VGG16 keeps about 10 MB for each
_SHIFT = (-0.030, -0.088, -0.188)  # ImageNet mean and deviation, seen from [-1, 1]
_SCALE = (0.458, 0.448, 0.450)

# Per stage: the max-pool before it (0: none; stride 2) and its convolutions. Features leave after each stage.
_STAGES = {"alex": ((0, 1), (3, 1), (3, 1), (0, 1), (0, 1)), "vgg": ((0, 2), (2, 2), (2, 3), (2, 3), (2, 3))}
_SOURCES = {"alex": ("alexnet.ckpt", "AlexNet_0"), "vgg": ("vgg16.ckpt", "VGG16_0")}


@dataclass(frozen=True)
class Lpips:
    """A loaded network: call it with (..., C, H, W) twice, get (...). Differentiable in both."""

    net: str  # "alex" or "vgg"
    convolutions: tuple[tuple[Tensor, Tensor], ...]  # kernel (out, in, k, k), bias (out,)
    heads: tuple[Tensor, ...]  # five of (1, channels, 1, 1), not negative

    def __call__(self, truth: Tensor, recon: Tensor) -> Tensor:
        pairs = zip(torch.split(_prepare(truth), _CHUNK), torch.split(_prepare(recon), _CHUNK), strict=True)
        values = torch.cat([self._distance(a, b) for a, b in pairs])
        return values.reshape(truth.shape[:-3])

    def features(self, images: Tensor) -> list[Tensor]:
        """(B, 3, H, W) standardised -> five of (B, channels, h, w), each position of unit length."""
        taken = []
        layers = iter(self.convolutions)
        for pool, convolutions in _STAGES[self.net]:
            if pool:
                images = F.max_pool2d(images, pool, stride=2)
            for _ in range(convolutions):
                kernel, bias = (p.to(images) for p in next(layers))
                stem = kernel.shape[-1] == 11  # AlexNet's first; all others keep the size
                stride, padding = (4, 2) if stem else (1, kernel.shape[-1] // 2)
                images = F.conv2d(images, kernel, bias, stride=stride, padding=padding).relu()
            length = images.square().sum(1, keepdim=True)
            taken.append(images / (length.clamp(min=1e-20).sqrt() + 1e-10))  # clamp: sqrt has no slope at 0
        return taken

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        total = a.new_zeros(len(a))
        for head, x, y in zip(self.heads, self.features(a), self.features(b), strict=True):
            total = total + (head.to(x) * (x - y).square()).sum(1).mean(dim=(1, 2))
        return total


def load_lpips(net: str = "alex", root: Path | None = None) -> Lpips:
    """The network from ROOT/lpips or the installed package; `MissingExtra` if it is in neither.

    ROOT is the given folder, else the one that LEAKGAUGE_DATA names, else the user's cache.
    """
    return _load(net, data_root() if root is None else root)


@lru_cache(maxsize=4)
def _load(net: str, root: Path) -> Lpips:
    if net not in _SOURCES:
        raise BadInput("LPIPS network", allowed="alex or vgg", got=repr(net), do="choose one of these")
    file, trunk = _SOURCES[net]
    arrays = read_weights(file, root)
    layers = (arrays[trunk][f"Conv_{i}"] for i in range(len(arrays[trunk])))
    convolutions = tuple((_kernel(c["kernel"]), torch.from_numpy(np.array(c["bias"]))) for c in layers)
    heads = (arrays[f"NetLinLayer_{i}"]["Conv_0"]["kernel"] for i in range(len(_STAGES[net])))
    return Lpips(net, convolutions, tuple(_kernel(h) for h in heads))


def _kernel(stored: npt.NDArray[np.float32]) -> Tensor:
    """(k, k, in, out) as JAX keeps it -> (out, in, k, k)."""
    return torch.from_numpy(np.array(stored)).permute(3, 2, 0, 1).contiguous()


def _prepare(images: Tensor) -> Tensor:
    """(..., C, H, W) in [0, 1] -> (B, 3, H', W') standardised, at least 64 px."""
    channels, height, width = images.shape[-3:]
    if channels not in (1, 3):
        raise BadInput("images for LPIPS", allowed="of 1 or 3 channels", got=channels, do="use ssim or mse")
    flat = images.reshape(-1, channels, height, width).expand(-1, 3, -1, -1)
    grow = MIN_SIDE / min(height, width)
    if grow > 1:
        size = (round(height * grow), round(width * grow))
        flat = F.interpolate(flat, size=size, mode="bilinear", align_corners=False)
    shift, scale = (flat.new_tensor(c).view(1, 3, 1, 1) for c in (_SHIFT, _SCALE))
    return (2 * flat - 1 - shift) / scale


def lpips_alex(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...), with AlexNet."""
    return load_lpips("alex")(truth, recon)


def lpips_vgg(truth: Tensor, recon: Tensor) -> Tensor:
    """(..., C, H, W) twice -> (...), with VGG16."""
    return load_lpips("vgg")(truth, recon)


_SUMMARY = "learned perceptual distance per image"
_SMALL = "small images upsampled to 64 px"
LPIPS = Metric(
    "lpips",
    f"{_SUMMARY}, AlexNet, {_SMALL}",
    "Zhang et al. 2018",
    lpips_alex,
    high=7.74,  # the two largest weights of each head, summed: no pair can differ by more
)
LPIPS_VGG = Metric("lpips-vgg", f"{_SUMMARY}, VGG16, {_SMALL}", "Zhang et al. 2018", lpips_vgg, high=5.45)

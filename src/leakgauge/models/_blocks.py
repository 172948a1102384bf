"""The residual block that all our ResNets are made of, and a stage of such blocks."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.models._layers import activation


class BasicBlock(nn.Module):
    """act(bn2(conv2(act(bn1(conv1(x))))) + downsample(x)), named as in torchvision.

    Where the shape changes, `downsample` is a 1x1 convolution with BatchNorm (shortcut "conv", He et al.'s
    option B) or has no parameters (shortcut "pad", option A). Each activation is a module of its own, so a
    hook sees it run once.
    """

    def __init__(self, before: int, after: int, stride: int, act: str, shortcut: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.act1 = activation(act)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample: nn.Module
        if before == after and stride == 1:
            self.downsample = nn.Identity()
        elif shortcut == "pad":
            self.downsample = PadShortcut(after - before, stride)
        else:
            conv = nn.Conv2d(before, after, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(after))
        self.act2 = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        out = self.act1(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) + self.downsample(x)
        result: Tensor = self.act2(out)
        return result


class PadShortcut(nn.Module):
    """Every `stride`-th pixel, and zeros for the `extra` channels."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra = extra
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        x = x[..., :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, 0, self.extra))  # (N, C, H, W) -> (N, C + extra, H, W)


def stage(before: int, after: int, blocks: int, stride: int, act: str, shortcut: str = "conv") -> nn.Sequential:
    """`blocks` blocks of which the first changes width and size."""
    rest = [BasicBlock(after, after, 1, act, shortcut) for _ in range(blocks - 1)]
    return nn.Sequential(BasicBlock(before, after, stride, act, shortcut), *rest)

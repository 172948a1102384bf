"""CRNN, the recogniser of FedBoosting (Shi et al. 2017): convolutions, two bidirectional LSTMs, a score per step.

BatchNorm stands behind the activation, as in the released code. `width` scales every layer; 64 is the paper's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge.lab.words.alphabet import ALPHABET


class CRNN(nn.Module):
    """(N, 3, 32, W) in [0, 1] -> (N, W // 4, 37) scores of letters, digits and the blank."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        w = width
        self.features = nn.Sequential(
            *_conv(3, w),
            nn.MaxPool2d(2),
            *_conv(w, 2 * w),
            nn.MaxPool2d(2),
            *_conv(2 * w, 4 * w),
            nn.BatchNorm2d(4 * w),
            *_conv(4 * w, 4 * w),
            nn.ZeroPad2d((0, 1, 0, 0)),
            nn.MaxPool2d(2, stride=(2, 1)),
            *_conv(4 * w, 8 * w),
            nn.BatchNorm2d(8 * w),
            *_conv(8 * w, 8 * w),
            nn.ZeroPad2d((1, 1, 0, 0)),
            nn.MaxPool2d(2, stride=(2, 1)),
            nn.Conv2d(8 * w, 8 * w, 2),
            nn.ReLU(),
            nn.BatchNorm2d(8 * w),
        )
        self.sequence = nn.LSTM(8 * w, 4 * w, num_layers=2, bidirectional=True, batch_first=True)
        self.scores = nn.Linear(8 * w, len(ALPHABET) + 1)

    def forward(self, images: Tensor) -> Tensor:
        columns = self.features(2 * images - 1)[:, :, 0]  # (N, 8w, W // 4)
        steps, _ = self.sequence(columns.transpose(1, 2))
        scores: Tensor = self.scores(steps)
        return scores


def build(width: int, seed: int) -> CRNN:
    """With weights that depend on the seed alone; channels last, which convolutions are faster in."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CRNN(width)
    for parameter in model.features.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return model


def _conv(inputs: int, outputs: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()

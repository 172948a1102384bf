"""The local training of a client with the CTC loss, and the test of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.errors import BadInput
from leakgauge.lab.words.alphabet import BLANK, encoded, greedy
from leakgauge.lab.words.rendering import Pictures
from leakgauge.settings import Settings, setting

_CHUNK = 512  # pictures in one pass
_MAX_NORM = 5.0  # gradients are clipped to this norm: those of CTC are steep at first


@dataclass(frozen=True)
class Reading(Settings):
    """How a recogniser is trained. Written `--training rounds=20,words=8000`."""

    name: ClassVar[str] = "training"
    summary: ClassVar[str] = "how the recogniser is trained"

    # The defaults are minutes on one core; see the recipe for the published network.
    rounds: int = setting(20, "rounds of training", low=1)
    epochs: int = setting(1, "local passes over a client's words in a round", low=1)
    batch_size: int = setting(16, "local mini-batch", low=2)
    words: int = setting(4000, "words of each client, those kept back included", low=20)
    tested: int = setting(1000, "words held out of each renderer, for testing", low=1)
    longest: int = setting(4, "characters of the longest word", low=1, high=12)
    image_width: int = setting(
        48, "width of the pictures; their height is 32, and the paper's width 100", low=48, high=400
    )
    width: int = setting(8, "channels of the first layer; the paper's network has 64", low=2)
    optimizer: str = setting("adam", "of the clients", choices=("adam", "adadelta"))
    lr: float = setting(
        0.003, "of the clients in the first round, falling to a tenth; the paper's adadelta has 1", above=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_width < 8 * self.longest:  # a step per four columns, and a blank between equal letters
            raise BadInput(
                "training: image_width",
                allowed=f"at least {8 * self.longest} for words of {self.longest} characters",
                got=self.image_width,
                do="widen the pictures, or lower longest",
            )


@dataclass(frozen=True)
class Samples:
    """Pictures on the training device."""

    images: Tensor  # (N, 3, H, W) bytes
    codes: Tensor  # (N, longest)
    lengths: Tensor  # (N,) on the CPU, where CTC wants them

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: Tensor) -> Samples:
        """`indices` on the CPU."""
        there = indices.to(self.images.device, non_blocking=True)
        return Samples(self.images[there], self.codes[there], self.lengths[indices])


def samples_of(pictures: Pictures, longest: int, device: torch.device) -> Samples:
    codes, lengths = encoded(pictures.words, longest)
    return Samples(pictures.images.to(device), codes.to(device), lengths)


def joined(several: Sequence[Samples]) -> Samples:
    """The samples of all clients as one set."""
    images, codes = torch.cat([s.images for s in several]), torch.cat([s.codes for s in several])
    return Samples(images, codes, torch.cat([s.lengths for s in several]))


def optimizer_of(model: nn.Module, how: Reading) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if how.optimizer == "adam" else torch.optim.Adadelta
    return kind(model.parameters(), lr=how.lr)


def train_locally(
    model: nn.Module, optimizer: torch.optim.Optimizer, samples: Samples, how: Reading, g: torch.Generator
) -> None:
    """The passes of one round, in place; BatchNorm updates its running statistics."""
    _packed(model).train()
    for _ in range(how.epochs):
        order = torch.randperm(len(samples), generator=g)
        for indices in torch.split(order, how.batch_size):
            if len(indices) < 2:  # BatchNorm takes no statistics of one
                continue
            batch = samples.take(indices)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(ctc(model(_floats(batch.images)), batch).mean())
            nn.utils.clip_grad_norm_(model.parameters(), _MAX_NORM)
            optimizer.step()


def ctc(logits: Tensor, samples: Samples) -> Tensor:
    """(N,) the loss of each word; infinite ones, of words that do not fit the steps, count as zero."""
    scores = torch.log_softmax(logits, 2).transpose(0, 1)  # (steps, N, 37)
    steps = torch.full((len(samples),), len(scores))
    return functional.ctc_loss(
        scores, samples.codes, steps, samples.lengths, blank=BLANK, reduction="none", zero_infinity=True
    )


@torch.no_grad()
def results(model: nn.Module, samples: Samples) -> tuple[float, float]:
    """Mean loss of a word, and the share of words that are read without a mistake."""
    _packed(model).eval()
    losses, right = [], []
    for indices in torch.split(torch.arange(len(samples)), _CHUNK):
        batch = samples.take(indices)
        logits = model(_floats(batch.images))
        losses.append(ctc(logits, batch))
        right.append((greedy(logits, samples.codes.shape[1]) == batch.codes).all(1))
    return float(torch.cat(losses).double().mean()), float(torch.cat(right).double().mean())


def _packed(model: nn.Module) -> nn.Module:
    """Put the weights of each LSTM into one block of memory, as GPUs need it; copies of a model have them apart."""
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            module.flatten_parameters()
    return model


def _floats(images: Tensor) -> Tensor:
    return images.to(torch.float32, memory_format=torch.channels_last).div_(255)

"""Trains a conditional generator on public samples: the decoder of a variational autoencoder.

Kingma and Welling 2014; Sohn et al. 2015 for the label; after training a normal distribution is fitted to the codes of
each label's pictures (Ghosh et al. 2020). Unlike a GAN it cannot collapse, its loss says how far it is, and every
public picture has a latent near N(0, 1), which a search over latents needs; its pictures are softer. `noise` trades
detail for order: with less the decoder can draw more, and more of it is no proper picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge.engine.randomness import generator as draws
from leakgauge.errors import BadInput
from leakgauge.generators.architecture import Architecture, Decoder, Encoder

Watch = Callable[[int, float, float], None]  # step, mean squared error of the batch, KL per picture
Take = Callable[[Tensor], tuple[Tensor, Tensor]]  # indices -> pictures in [0, 1] and labels

_CLIP = 10.0  # of the gradient's norm; early batches can jump
_WARM_UP = 0.05  # share of the steps over which the rate rises
_FITTED = 20_000  # pictures whose codes are looked at in the end, _PIECE at a time
_PIECE = 500


@dataclass(frozen=True)
class Schedule:
    """How long and how fast."""

    steps: int = 2000
    batch_size: int = 64
    lr: float = 1e-3
    noise: float = 0.2  # standard deviation of a pixel, 0 to 1
    seed: int = 0


def train(
    plan: Architecture, take: Take, samples: int, schedule: Schedule, device: torch.device, watch: Watch
) -> tuple[Decoder, int]:
    """The decoder, on the CPU, trained on the first `samples` indices of `take`, and the steps taken.

    An interrupt ends the training early: the decoder as it is then, and fewer steps.
    """
    if samples < 2:
        raise BadInput("samples to train a generator on", allowed="at least 2", got=samples, do="give it more data")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(schedule.seed)
        encoder, decoder = Encoder(plan).to(device), Decoder(plan).to(device)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimiser = torch.optim.Adam(parameters)
    random, done = draws(schedule.seed, "train-generator"), 0
    try:
        for step in range(schedule.steps):
            for group in optimiser.param_groups:
                group["lr"] = schedule.lr * _rate(step, schedule.steps)
            chosen = torch.randint(samples, (min(schedule.batch_size, samples),), generator=random)
            pictures, labels = (t.to(device) for t in take(chosen))
            noise = torch.randn(len(chosen), plan.latent, generator=random).to(device)
            mean, spread = encoder(pictures, labels)
            error = F.mse_loss(decoder.draw(mean + noise * (0.5 * spread).exp(), labels), pictures)
            divergence = 0.5 * (mean * mean + spread.exp() - 1 - spread).sum(1).mean()  # KL(latents || N(0, 1))
            loss = 0.5 * math.prod(plan.shape) * error / schedule.noise**2 + divergence  # minus the evidence's bound
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, _CLIP * math.prod(plan.shape) ** 0.5)
            optimiser.step()
            done = step + 1
            watch(done, float(error.detach()), float(divergence.detach()))
    except KeyboardInterrupt:
        if done == 0:
            raise
    _fit_codes(encoder, decoder, take, samples, device)
    return decoder.cpu().eval().requires_grad_(False), done


@torch.no_grad()
def _fit_codes(encoder: Encoder, decoder: Decoder, take: Take, samples: int, device: torch.device) -> None:
    """Put into the decoder the mean of each label's codes and a root of their covariance.

    A label with few pictures leans on the covariance about the mean that all labels share.
    """
    plan, size = decoder.plan, min(samples, _FITTED)
    every = torch.arange(size) * samples // size
    means, spreads, labels = [], [], []
    for begin in range(0, size, _PIECE):
        pictures, label = (t.to(device) for t in take(every[begin : begin + _PIECE]))
        mean, spread = encoder(pictures, label)
        means.append(mean.double())
        spreads.append(spread.double().exp())
        labels.append(label)
    codes, own, label = torch.cat(means), torch.cat(spreads), torch.cat(labels)
    counts = torch.bincount(label, minlength=plan.classes).clamp_min(1).double()
    centre = codes.new_zeros(plan.classes, plan.latent).index_add(0, label, codes) / counts[:, None]
    off = codes - centre[label]
    pooled = off.T @ off / size + own.mean(0).diag()
    for k in range(plan.classes):
        mine = label == k
        covariance = off[mine].T @ off[mine] + own[mine].sum(0).diag() + plan.latent * pooled
        decoder.stretch[k] = torch.linalg.cholesky(covariance / (int(mine.sum()) + plan.latent)).to(decoder.stretch)
    decoder.centre.copy_(centre)


def _rate(step: int, steps: int) -> float:
    """A short rise, then a half cosine down to nothing."""
    done = step / steps
    return min(1.0, (step + 1) / max(1, _WARM_UP * steps)) * 0.5 * (1 + math.cos(math.pi * done))

"""Rounds of federated training: the global model as it is when an update is taken.

Each round, every client sends the gradient of its mean loss on `batch_size` samples and the server applies their mean
(FedSGD, McMahan et al. 2017). Clients with equally many samples have, in the mean, the gradient of all their samples
as one batch, so that is what is computed. BatchNorm is the exception: it normalises by the statistics of the whole
round here, and by each client's own where clients really are apart. Other layers work as they do in an update, so
dropout is off.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.data import Dataset
from leakgauge.engine.gradients import cross_entropy
from leakgauge.engine.penalties import collecting, with_penalties
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput
from leakgauge.types import Training

_CHUNK = 256  # samples at a time where no gradient is needed


def train(model: nn.Module, samples: Dataset, training: Training, seed: int) -> nn.Module:
    """A trained copy in eval mode, on the model's device and in its precision; the given model stays untouched.

    A round draws its samples without repetition, by its number: the first rounds of a longer training are the same.
    """
    size = training.clients * training.batch_size
    if training.rounds and size > len(samples):
        raise BadInput(
            "training: clients x batch_size",
            allowed=f"at most {len(samples)}, the samples there are",
            got=f"{training.clients} x {training.batch_size}",
            do="lower either, or use larger data",
        )
    worker = copy.deepcopy(model).eval()
    for module in worker.modules():
        if isinstance(module, _BatchNorm):
            module.train()
    learned = [p for p in worker.parameters() if p.requires_grad]
    rule = torch.optim.Adam if training.optimizer == "adam" else torch.optim.SGD
    optimiser = rule(learned, lr=training.lr)
    with _repeatable():
        for number in range(training.rounds):
            order = torch.randperm(len(samples), generator=generator(seed, f"training/{number}"))[:size]
            inputs, labels = _taken(samples, order, learned[0])
            optimiser.zero_grad()
            with collecting() as penalties:
                logits = worker(inputs)
            with_penalties(cross_entropy(logits, labels), penalties).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    optimiser.zero_grad()
    with torch.no_grad():
        logits = worker.eval()(_taken(samples, torch.arange(1), learned[0])[0])
    _check_finite((logits, *worker.state_dict().values()), training)
    return worker


def accuracy(model: nn.Module, samples: Dataset, indices: Tensor | None = None) -> float:
    """Share of the samples, or of those at `indices`, whose largest logit is their label's. Model in eval mode."""
    chosen = torch.arange(len(samples)) if indices is None else indices
    like = next(model.parameters())
    correct = torch.zeros((), dtype=torch.long, device=like.device)
    with torch.no_grad():
        for some in torch.split(chosen, _CHUNK):
            inputs, labels = _taken(samples, some, like)
            correct += (model(inputs).argmax(-1) == labels).sum()
    return int(correct) / len(chosen)


@contextmanager
def _repeatable() -> Iterator[None]:
    """On a GPU the order of some sums differs from run to run unless told otherwise, and with it the weights.

    A layer that knows no other way only warns, which is kept quiet: its model differs in the last digits.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*determinis.*", category=UserWarning)
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _check_finite(tensors: Iterable[Tensor], training: Training) -> None:
    if not all(bool(torch.isfinite(t).all()) for t in tensors):
        raise BadInput(
            "training: lr",
            allowed=f"small enough for {training.rounds} rounds of {training.optimizer}",
            got=f"{training.lr:g}, which led to NaN or infinity",
            do="choose a smaller one",
        )


def _taken(samples: Dataset, indices: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Some of the samples and their labels, on the model's device and in its precision."""
    inputs, labels = samples.take(indices)
    return inputs.to(like), labels.to(like.device)

"""Rounds of federated training: the global model as it is when an update is taken.

Each round, every client sends the gradient of its mean loss on `batch_size` samples and the server applies their mean
(FedSGD, McMahan et al. 2017). Clients with equally many samples have, in the mean, the gradient of all their samples
as one batch, so that is what is computed. BatchNorm is the exception: it normalises by the statistics of the whole
round here, and by each client's own where clients really are apart. Other layers work as they do in an update, so
dropout is off.

A policy transforms every picture before it is used, after the crop and the mirror of `augment`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.data import Dataset
from leakgauge.defenses.ats.operations import Triple, applied, draw, parse
from leakgauge.engine.losses import cross_entropy
from leakgauge.engine.penalties import collecting
from leakgauge.engine.randomness import derived_seed, generator
from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.files import write_whole
from leakgauge.reading.sealed import opened_tensors, sealed_tensors
from leakgauge.types import Training

_KEPT = 20  # times that the state of a training is written
_CHUNK = 256  # samples at a time where no gradient is needed
_RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "nesterov": partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=5e-4),
}


def train(
    model: nn.Module,
    samples: Dataset,
    training: Training,
    seed: int,
    *,
    kept: Path | None = None,
    watch: Callable[[int], None] = lambda _: None,
    follow: Callable[[int, nn.Module, Tensor], None] = lambda *_: None,
) -> nn.Module:
    """A trained copy in eval mode, on the model's device and in its precision; the given model stays untouched.

    A round draws its samples without repetition, by its number: the first rounds of a longer training are the same.
    With `kept` the state is written there now and then, and a training that finds it goes on from there. `watch` is
    called with the rounds done, `follow` also with the model after it and the loss before it, still on the device.
    """
    size = training.clients * training.batch_size
    if training.rounds and size > len(samples):
        allowed, got = f"at most {len(samples)}, the samples there are", f"{training.clients} x {training.batch_size}"
        raise BadInput(
            "training: clients x batch_size", allowed=allowed, got=got, do="lower either, or use larger data"
        )
    policies = _policies(training, samples)
    worker = copy.deepcopy(model).eval()
    for module in worker.modules():
        if isinstance(module, _BatchNorm):
            module.train()
    learned = [p for p in worker.parameters() if p.requires_grad]
    optimiser = _RULES[training.optimizer](learned, lr=training.lr)
    begun = _resumed(kept, worker, optimiser)
    with _repeatable():
        for number in range(begun, training.rounds):
            order = torch.randperm(len(samples), generator=generator(seed, f"training/{number}"))[:size]
            inputs, labels = _taken(samples, order, learned[0])
            if policies:
                own = [derived_seed(seed, f"policy/{number}")]
                drawn = draw(policies, own, size, as_released=training.augment)
                inputs = applied(inputs, drawn.to(inputs.device))
            _set_rate(optimiser, training, number)
            optimiser.zero_grad()
            with collecting() as penalties:
                logits = worker(inputs)
            loss = sum(penalties, cross_entropy(logits, labels))
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            watch(number + 1)
            follow(number + 1, worker, loss.detach())
            if kept is not None and (number + 1) % max(1, training.rounds // _KEPT) == 0:
                _keep(kept, worker, optimiser, number + 1)
    optimiser.zero_grad()
    with torch.no_grad():
        logits = worker.eval()(_taken(samples, torch.arange(1), learned[0])[0])
    if not all(bool(torch.isfinite(tensor).all()) for tensor in (logits, *worker.state_dict().values())):
        allowed = f"small enough for {training.rounds} rounds of {training.optimizer}"
        got = f"{training.lr:g}, which led to NaN or infinity"
        raise BadInput("training: lr", allowed=allowed, got=got, do="choose a smaller one")
    return worker


def _policies(training: Training, samples: Dataset) -> tuple[Triple, ...]:
    if not training.policy and not training.augment:
        return ()
    if samples.spec.kind != "image":
        got = f"the table {samples.spec.name!r}"
        raise BadInput("training: policy and augment", allowed="given for pictures", got=got, do="leave them out")
    return parse(training.policy) if training.policy else ((),)


def _set_rate(optimiser: torch.optim.Optimizer, training: Training, number: int) -> None:
    """A tenth after 3/8, 5/8 and 7/8 of the rounds, for the rule that has falling rates."""
    if training.optimizer == "nesterov":
        passed = sum(number >= round(share * training.rounds) for share in (3 / 8, 5 / 8, 7 / 8))
        optimiser.param_groups[0]["lr"] = training.lr * 0.1**passed


def _keep(kept: Path, worker: nn.Module, optimiser: torch.optim.Optimizer, done: int) -> None:
    tensors = {f"model/{name}": tensor for name, tensor in worker.state_dict().items()}
    for place, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{place}/{name}": value for name, value in state.items()}
    write_whole(kept, sealed_tensors(kept.name, tensors, done))


def _resumed(kept: Path | None, worker: nn.Module, optimiser: torch.optim.Optimizer) -> int:
    """Rounds that `kept` already holds, now in the worker; 0 if there is none. Not that of another training."""
    if kept is None or not kept.exists():
        return 0
    try:
        tensors, done = opened_tensors(kept, kept.name)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimiser/"):
                _, place, what = name.split("/")
                state.setdefault(int(place), {})[what] = tensor
        model = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
        worker.load_state_dict(model)
        optimiser.load_state_dict(optimiser.state_dict() | {"state": state})
        return int(done)
    except (Unreadable, RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        allowed, do = "that of the same model and training", "remove that file to begin anew"
        raise BadInput("state of the training", allowed=allowed, got=f"{kept} ({error})", do=do) from error


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
    """On a GPU the order of some sums differs from run to run unless it is fixed, and with it the weights.

    A layer that knows no other way only warns, which is kept quiet: its model differs in the last digits.
    """
    before, quiet = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*determinis.*", category=UserWarning)
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=quiet)


def _taken(samples: Dataset, indices: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Some of the samples and their labels, on the model's device and in its precision."""
    inputs, labels = samples.take(indices)
    return inputs.to(like), labels.to(like.device)

"""What the gradient of a training step gives away, while the model trains: cheap attacks, scored against the batch.

    loss.backward()
    logged = leak_of(model, inputs, labels, data=DataSpec("mine", (1, 28, 28), 10, "image"))

The step is read as one that a client would share: the model's own parameters, the gradients that are in them, and the
number of samples. Training itself is not touched: neither weights, gradients, modes nor global randomness.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge import catalog
from leakgauge.client.naming import plain_name
from leakgauge.client.observe import facts_about, observe
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.batching import reconstruct
from leakgauge.metrics.scoring import Scores, score
from leakgauge.recording.recorder import batchnorm_mode, trainable
from leakgauge.types import Attack, Batch, DataSpec, LocalTraining, SharedUpdate, threat_model
from leakgauge.types.attack import no_progress

CHEAP = ("linear", "labels")  # without a search: milliseconds for a small network


@dataclass(frozen=True)
class Leak:
    """Scores by `attack/score`, and why attacks that do not apply gave none."""

    scores: dict[str, float]
    errors: dict[str, str]


def leak_of(
    model: nn.Module, inputs: Tensor, labels: Tensor, data: DataSpec, attacks: Sequence[str] = CHEAP, seed: int = 0
) -> Leak:
    """Attack the gradients that `backward()` left in `model`; inputs (N, *shape) in [0, 1], labels (N,)."""
    if tuple(inputs.shape[1:]) != tuple(data.shape):
        raise BadInput(
            "inputs", allowed=f"samples of shape {tuple(data.shape)}", got=tuple(inputs.shape[1:]), do="mend data="
        )
    gradients = {n: p.grad for n, p in trainable(model).items()}
    if all(g is None for g in gradients.values()):
        raise BadInput("model", allowed="one with gradients", got="none", do="call it after backward()")
    tensors = {
        n: (torch.zeros_like(p) if (g := gradients[n]) is None else g.detach().clone())[None]
        for n, p in trainable(model).items()
    }
    sent = _sent(model)
    batch = Batch(inputs.detach()[None], labels.detach()[None])
    told = threat_model("eavesdropper")  # no public data: a training loop has none to spare
    facts = facts_about(sent, batch, data, LocalTraining(batchnorm=batchnorm_mode(model)), None, told.facts)
    seen = observe(sent, SharedUpdate("gradient", tensors), told, facts)
    scores: dict[str, float] = {}
    errors: dict[str, str] = {}
    for spec in attacks:
        attack: Attack = catalog.build("attacks", spec)
        try:
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                result = reconstruct(attack, seen, [seed], no_progress)
            scores |= {f"{attack.name}/{n}": v for n, v in _plain(score(batch, result, data)).items()}
        except LeakgaugeError as error:
            errors[attack.name] = str(error)
    return Leak(scores, errors)


def _plain(scores: Scores) -> dict[str, float]:
    found = {f"{name}_mean_per_image": mean for name, mean in scores.means(0).items() if mean is not None}
    if scores.label_accuracy is not None:
        found["label_accuracy"] = float(scores.label_accuracy.mean())
    return found


def _sent(model: nn.Module) -> nn.Module:
    """A copy for the attacks, out of its wrappers, so that its names are those of the update."""
    inner = model
    while len(names := [n for n, _ in inner.named_children()]) == 1 and plain_name(f"{names[0]}.") == "":
        inner = getattr(inner, names[0])
    sent = copy.deepcopy(inner).eval()
    sent.zero_grad(set_to_none=True)
    return sent

"""How much each gradient tensor says about its sample: ||d g_l / dX||_F, for many samples side by side.

The whole Jacobian is never formed. For random probes u on the input with E[u u^T] = 1, E||J_l u||^2 = ||J_l||_F^2: one
product J u gives an unbiased estimate of the squared norm for all tensors at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import parameters_of, trial_gradients, working_model
from leakgauge.engine.memory import fitting
from leakgauge.engine.randomness import per_trial

_COPIES = 12  # of a sample's gradient while the product is taken


@dataclass(frozen=True)
class JacobianNorms:
    """Per tensor and over the samples: the mean of ||d g_l / dX||_F and its standard error."""

    mean: Mapping[str, float]
    error: Mapping[str, float]


def jacobian_norms(model: nn.Module, inputs: Tensor, labels: Tensor, probes: int, seed: int) -> JacobianNorms:
    """By random probes with entries +-1; 0 of them: by every entry of the input in turn, which is exact and slow.

    `inputs` (K, *shape), `labels` (K,).
    """
    model = working_model(model, "eval")
    squares: dict[str, list[Tensor]] = {}
    for rows in _parts(model, inputs):
        total: dict[str, Tensor] = {}
        for probe in range(probes or inputs[0].numel()):
            along = _signs([seed + row for row in rows], probe, inputs) if probes else _one_entry(probe, inputs[rows])
            for name, square in _squared_product(model, inputs[rows], labels[rows], along).items():
                total[name] = total.get(name, 0) + square / max(1, probes)
        for name, square in total.items():
            squares.setdefault(name, []).append(square)
    return _summary({name: torch.cat(parts).sqrt() for name, parts in squares.items()})


def all_ones_norms(model: nn.Module, inputs: Tensor, labels: Tensor) -> JacobianNorms:
    """||d(sum of g_l's entries)/dX|| instead, on the mean loss of all samples: what GradDefense computes."""
    model = working_model(model, "eval")
    norms: dict[str, list[Tensor]] = {}
    for rows in _parts(model, inputs):
        x = inputs[rows].detach().requires_grad_()
        gradients = trial_gradients(model, x[:, None], labels[rows][:, None])
        for name, gradient in gradients.items():
            (slope,) = torch.autograd.grad(gradient.sum() / len(inputs), x, retain_graph=True)
            norms.setdefault(name, []).append(slope.flatten(1).norm(dim=1))
    return _summary({name: torch.cat(parts) for name, parts in norms.items()})


def _signs(seeds: Sequence[int], probe: int, inputs: Tensor) -> Tensor:
    """(K, *shape) of +-1."""
    shape = tuple(inputs.shape[1:])
    drawn = per_trial(seeds, f"jacobian/{probe}", lambda g: 2.0 * torch.randint(2, shape, generator=g) - 1.0)
    return drawn.to(inputs)


def _one_entry(place: int, inputs: Tensor) -> Tensor:
    """(K, *shape) with a one at this place of each sample and zeros elsewhere."""
    flat = torch.zeros_like(inputs).flatten(1)
    flat[:, place] = 1
    return flat.reshape(inputs.shape)


def _squared_product(model: nn.Module, inputs: Tensor, labels: Tensor, probes: Tensor) -> dict[str, Tensor]:
    """||J_l u||^2 per sample (K,). J u is the derivative of u^T J^T w in w, at any w: reverse passes are enough."""
    x = inputs.detach().requires_grad_()
    gradients = trial_gradients(model, x[:, None], labels[:, None])
    cotangents = {name: torch.zeros_like(g, requires_grad=True) for name, g in gradients.items()}
    inner = sum((gradients[name] * w).sum() for name, w in cotangents.items())
    assert isinstance(inner, Tensor)
    (slope,) = torch.autograd.grad(inner, x, create_graph=True)
    products = torch.autograd.grad((slope * probes).sum(), list(cotangents.values()), materialize_grads=True)
    return {name: p.flatten(1).square().sum(1) for name, p in zip(cotangents, products, strict=True)}


def _parts(model: nn.Module, inputs: Tensor) -> Iterator[list[int]]:
    parameters = parameters_of(model).values()
    size = fitting(_COPIES * sum(p.numel() * p.element_size() for p in parameters), inputs.device)
    for begin in range(0, len(inputs), size):
        yield list(range(begin, min(begin + size, len(inputs))))


def _summary(norms: Mapping[str, Tensor]) -> JacobianNorms:
    def error(values: Tensor) -> float:
        return float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")

    return JacobianNorms({n: float(v.mean()) for n, v in norms.items()}, {n: error(v) for n, v in norms.items()})

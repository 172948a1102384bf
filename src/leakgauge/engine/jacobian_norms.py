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

    @classmethod
    def of(cls, parts: Mapping[str, Sequence[Tensor]]) -> JacobianNorms:
        """From the norms of all samples, by name and in parts."""
        norms = {name: torch.cat(list(values)) for name, values in parts.items()}
        spread = {name: float(v.std()) if len(v) > 1 else float("nan") for name, v in norms.items()}
        error = {name: spread[name] / len(v) ** 0.5 for name, v in norms.items()}
        return cls({name: float(v.mean()) for name, v in norms.items()}, error)


def jacobian_norms(model: nn.Module, inputs: Tensor, labels: Tensor, probes: int, seed: int) -> JacobianNorms:
    """By random probes with entries +-1; 0 of them: by every entry of the input in turn, which is exact and slow.

    `inputs` (K, *shape), `labels` (K,).
    """
    model = working_model(model, "eval")
    squares: dict[str, list[Tensor]] = {}
    for rows in _parts(model, inputs):
        total: dict[str, Tensor] = {}
        for probe in range(probes or inputs[0].numel()):
            if probes:
                along = _signs([seed + row for row in rows], probe, inputs)
            else:
                along = torch.zeros_like(inputs[rows], memory_format=torch.contiguous_format)
                along.flatten(1)[:, probe] = 1  # a view: this entry of each sample
            for name, square in _squared_product(model, inputs[rows], labels[rows], along).items():
                total[name] = total.get(name, 0) + square / max(1, probes)
        for name, square in total.items():
            squares.setdefault(name, []).append(square.sqrt())
    return JacobianNorms.of(squares)


def all_ones_norms(model: nn.Module, inputs: Tensor, labels: Tensor) -> JacobianNorms:
    """||d(sum of g_l's entries)/dX|| instead, on the mean loss of all samples: what GradDefense computes."""
    model = working_model(model, "eval")
    norms: dict[str, list[Tensor]] = {}
    for rows in _parts(model, inputs):
        x = inputs[rows].detach().requires_grad_()
        for name, gradient in trial_gradients(model, x[:, None], labels[rows][:, None]).items():
            (slope,) = torch.autograd.grad(gradient.sum() / len(inputs), x, retain_graph=True)
            norms.setdefault(name, []).append(slope.flatten(1).norm(dim=1))
    return JacobianNorms.of(norms)


def _signs(seeds: Sequence[int], probe: int, inputs: Tensor) -> Tensor:
    """(K, *shape) of +-1."""
    shape = tuple(inputs.shape[1:])
    return per_trial(seeds, f"jacobian/{probe}", lambda g: 2.0 * torch.randint(2, shape, generator=g) - 1.0).to(inputs)


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

"""How large the gradient is that each of the client's own samples leaves in each layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import one_by_one, working_model


def squared_gradients(model: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Squared norm of every sample's gradient by layer, (N,).

    Samples run one by one and only norms are kept: any model will do, and a large one takes no more than training it.
    """
    worker = working_model(model, "eval")
    found: dict[str, list[Tensor]] = {}
    for x, y in zip(inputs[:, None, None], labels[:, None, None], strict=True):  # (1, 1, *shape) each
        squares: dict[str, Tensor] = {}
        for name, gradient in one_by_one(worker, x, y, differentiable=False).items():
            layer = name.rpartition(".")[0] or name
            own = gradient.double().square().sum()
            squares[layer] = squares[layer] + own if layer in squares else own
        for layer, square in squares.items():
            found.setdefault(layer, []).append(square)
    return {layer: torch.stack(parts) for layer, parts in found.items()}

"""The two scores of automatic transformation search: how private a policy is, and what it costs, before any training.

Gao et al. 2021 and its replication by Drabent et al. 2022. Privacy: on the way from noise to the transformed picture,
how soon does the gradient resemble the picture's own? Less is more private. Accuracy: how different are the
input gradients of pictures of different classes in an untrained network? More is better; pictures whose gradients are
orthogonal give minus their number.

All pictures, and the points on the way, run side by side in the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.engine.memory import fitting

POINTS = 20  # steps from noise to picture
_TINY = 1e-5
_COPIES = 5  # of a gradient that live at once
_AT_ONCE = 1024  # pictures whose input gradients are taken together


def privacy_scores(model: nn.Module, noise: Tensor, pictures: Tensor, labels: Tensor) -> Tensor:
    """(K, P): mean similarity of gradients along the way, by the trapezoid rule; 0 to 1, low is private.

    pictures: (K, P, C, H, W), as K policies show them; noise (P, C, H, W), where the way to each begins; labels (P,).
    Model in eval mode. The way begins at the same gradient under every policy, so that one is computed once.
    """
    worker = working_model(model, "eval")
    numbers = sum(p.numel() for p in worker.parameters()) + 50 * noise[0].numel()
    rows = fitting(_COPIES * numbers * noise.element_size(), noise.device)  # pictures side by side
    parts = []
    some = (torch.split(noise, rows), torch.split(pictures, rows, 1), torch.split(labels, rows))
    for n, p, y in zip(*some, strict=True):
        begun, size = _gradients(worker, n, y), max(1, rows // len(n))
        parts.append(torch.cat([_along(worker, n, begun, seen, y) for seen in torch.split(p, size)]))
    return torch.cat(parts, 1)


def _along(worker: nn.Module, noise: Tensor, begun: Mapping[str, Tensor], pictures: Tensor, labels: Tensor) -> Tensor:
    """(k, p) scores of pictures (k, p, C, H, W), whose gradients begin at `begun` (p, ...)."""
    policies = len(pictures)

    def of_each(tensor: Tensor) -> Tensor:
        """(p, ...) -> (k p, ...): the same for every policy."""
        return tensor.repeat(policies, *[1] * (tensor.dim() - 1))

    seen, start, targets = pictures.flatten(0, 1), of_each(noise), of_each(labels)
    goal = _gradients(worker, seen, targets)
    lengths = {name: wanted.flatten(1).norm(dim=1) for name, wanted in goal.items()}  # once, not at every point
    total = similarity({name: of_each(g) for name, g in begun.items()}, goal, lengths) / 2
    for i in range(1, POINTS):
        total += similarity(_gradients(worker, torch.lerp(start, seen, i / POINTS), targets), goal, lengths)
    total += similarity(goal, goal, lengths) / 2
    return (total / POINTS).view(policies, -1)


def _gradients(worker: nn.Module, pictures: Tensor, labels: Tensor) -> dict[str, Tensor]:
    with torch.enable_grad():
        found = trial_gradients(worker, pictures[:, None], labels[:, None], differentiable=False)
    return {name: g.detach() for name, g in found.items()}


def similarity(mine: Mapping[str, Tensor], goal: Mapping[str, Tensor], lengths: Mapping[str, Tensor]) -> Tensor:
    """(T,): the cosine, averaged over parameter tensors. A tensor without gradient on both sides counts as similar.

    lengths: the norms of `goal`.
    """
    cosines = []
    for name, wanted in goal.items():
        a, length = mine[name].flatten(1), mine[name].flatten(1).norm(dim=1)
        size = length * lengths[name]
        cosine = (a * wanted.flatten(1)).sum(1) / torch.where(size > 0, size, torch.ones_like(size))
        cosines.append(torch.where((length == 0) & (lengths[name] == 0), torch.ones_like(cosine), cosine))
    return torch.stack(cosines).mean(0)


def accuracy_scores(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """(B,) for B batches of pictures (M, C, H, W) and labels (M,): the spread of their input gradients, see `spread`.

    Only the first picture of each class in a batch takes part, so the best value is minus the number of classes in it.
    """
    worker = working_model(model, "eval")
    chosen = [pictures[firsts(labels).to(pictures.device)] for pictures, labels in batches]
    rows = torch.cat([input_gradients(worker, some) for some in torch.split(torch.cat(chosen), _AT_ONCE)])
    return torch.tensor([spread(part) for part in torch.split(rows, [len(c) for c in chosen])])


def firsts(labels: Tensor) -> Tensor:
    """Where each class is met first, in order."""
    listed = labels.tolist()
    return torch.tensor([listed.index(label) for label in dict.fromkeys(listed)])


def input_gradients(worker: nn.Module, pictures: Tensor) -> Tensor:
    """(M, D): of the sum of each picture's logits in its own pixels."""
    with torch.enable_grad():
        leaf = pictures.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(worker(leaf).sum(), leaf)
    return found.flatten(1)


def spread(rows: Tensor) -> float:
    """Minus the sum of log l + 1/l over the eigenvalues l of the correlation of M gradients (M, D).

    A hundred rows or so: their eigenvalues are found sooner on a CPU than a GPU can begin.
    """
    correlation = torch.corrcoef(rows.double()).nan_to_num()  # a picture without any gradient correlates with none
    values = torch.linalg.eigvalsh(correlation.reshape(len(rows), len(rows)).cpu()).clamp_min(0) + _TINY
    return -float((values.log() + 1 / values).sum())

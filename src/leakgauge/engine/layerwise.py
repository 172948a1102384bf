"""Per-trial gradients layer by layer: one ordinary batched pass, then each layer's weight gradient from what it saw.

Hooks catch every layer's input and output. One backward pass gives the output gradients of all trials, and a weight
gradient is their product with the inputs, per trial: a batched matrix product for Linear and, over unfolded patches,
for Conv2d. Wide convolutions are much faster this way than under vmap, which turns them into grouped ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.engine.patches import Pair, convolved, kernel_gradients
from leakgauge.engine.penalties import collecting, with_penalties

_WIDE = 1024  # input x output channels from which a convolution counts as wide


@dataclass
class _Run:
    """What one layer saw during a forward pass."""

    x: Tensor  # its input (T*N, ...)
    out: Tensor
    patches: Tensor | None = None  # of the padded input, where the layer ran as a product over them


# (layer, what it saw, output gradient (T*N, ...), T) -> gradients of weight and bias, (T, ...) each
Rule = Callable[[Any, _Run, Tensor, int], dict[str, Tensor]]


def has_convolution(model: nn.Module, wide: bool = False) -> bool:
    """Has the model a trainable convolution (a wide one)? vmap turns it into a grouped one, slow if it is wide."""
    convolutions = (m for m in model.modules() if isinstance(m, nn.Conv2d) and _is_trainable(m))
    return any(m.in_channels * m.out_channels >= (_WIDE if wide else 1) for m in convolutions)


def fits(model: nn.Module) -> bool:
    """Has every trainable layer a rule here, and does none mix the trials?"""
    for module in model.modules():
        if _uses_batch(module) and not isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            return False
        own = list(module.parameters(recurse=False))
        if _is_trainable(module) and (_rule_for(module) is None or not all(p.requires_grad for p in own)):
            return False
    return True


def without_rule(model: nn.Module) -> list[str]:
    """The trainable layers that have no rule here: "layer 'path' (Type)" each."""
    found = [(path, m) for path, m in model.named_modules() if _is_trainable(m) and _rule_for(m) is None]
    return [f"layer {path!r} ({type(m).__name__})" for path, m in found]


def layerwise_gradients(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    by_products: bool | None = None,
    differentiable: bool = True,
) -> dict[str, Tensor] | None:
    """Gradients (T, *parameter) of each trial's mean loss, differentiable in inputs and targets unless told otherwise.

    `by_products` runs convolutions as products over patches: unless told, on a GPU that is not to round to TF32.

    None if a layer ran more or less than once (its gradient would be a sum over runs, which the rules do not know), or
    on something that does not have the samples on its first axis.
    """
    trials = inputs.shape[0]
    if by_products is None:
        by_products = inputs.is_cuda and not torch.backends.cudnn.allow_tf32
    with torch.enable_grad(), _watching(model, trials, by_products) as seen:
        samples = inputs.flatten(0, 1)
        if samples.dim() == 4 and samples.is_cuda:
            samples = samples.contiguous(memory_format=torch.channels_last)
        if by_products and not samples.requires_grad and samples.is_floating_point():
            samples = samples.detach().requires_grad_()  # kernels are constants here: something must carry the graph
        with collecting() as penalties:
            logits = model(samples)
        # A trial's loss depends on its own samples alone, so the sum over trials has each trial's gradient in it.
        total = trials * with_penalties(loss(logits, targets.flatten(0, 1)), penalties)
        names = [name for name, module in model.named_modules() if _rule_for(module) and _is_trainable(module)]
        if [len(seen.get(name, ())) for name in names] != [1] * len(names):
            return None
        if any(len(seen[name][0].x) != len(samples) for name in names):
            return None
        outputs = [seen[name][0].out for name in names]
        deltas = torch.autograd.grad(total, outputs, create_graph=differentiable)
    modules = dict(model.named_modules())
    found: dict[str, Tensor] = {}
    with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
        for name, delta in zip(names, deltas, strict=True):
            rule = _rule_for(modules[name])
            assert rule is not None
            parts = rule(modules[name], seen[name][0], delta, trials)
            found |= {f"{name}.{part}" if name else part: gradient for part, gradient in parts.items()}
    return {name: found[name] for name, p in model.named_parameters() if p.requires_grad}  # the model's order


@contextmanager
def _watching(model: nn.Module, trials: int, by_products: bool) -> Iterator[dict[str, list[_Run]]]:
    """Collect what every layer with a rule sees during a forward pass."""
    seen: dict[str, list[_Run]] = {}
    with ExitStack() as after:
        for name, module in model.named_modules():
            rule, taken = _rule_for(module), list[Tensor]()  # the patches of the layer's last run
            instead: Callable[[Tensor], Tensor] | None = None
            if _uses_batch(module):
                instead = partial(_own_statistics, module, trials)
            elif by_products and rule is _conv2d and _is_trainable(module):
                instead = partial(_by_products, module, taken)
            if instead is not None:
                module.forward = instead
                after.callback(delattr, module, "forward")
            if rule is None or not _is_trainable(module):
                continue

            def note(
                _: nn.Module, args: tuple[Tensor, ...], out: Tensor, name: str = name, taken: list[Tensor] = taken
            ) -> None:
                seen.setdefault(name, []).append(_Run(args[0], out, taken.pop() if taken else None))

            after.enter_context(module.register_forward_hook(note))
        yield seen


def _by_products(layer: nn.Conv2d, taken: list[Tensor], x: Tensor) -> Tensor:
    out, patches = convolved(_padded(layer, x), layer.weight, _pair(layer.stride), _pair(layer.dilation))
    taken.append(patches)
    return out if layer.bias is None else out + layer.bias.detach()[:, None, None]


def _uses_batch(module: nn.Module) -> bool:
    """Does it normalise by the batch at hand? One pass over all trials must then keep them apart."""
    return isinstance(module, _BatchNorm) and module.running_mean is None


def _own_statistics(layer: _BatchNorm, trials: int, x: Tensor) -> Tensor:
    normal = _normal(layer, x, trials)
    if not layer.affine:
        return normal
    shape = (1, -1, *[1] * (x.dim() - 2))
    return normal * layer.weight.view(shape) + layer.bias.view(shape)


def _is_trainable(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters(recurse=False))


def _rule_for(module: nn.Module) -> Rule | None:
    if type(module) is nn.Linear:
        return _linear
    if type(module) is nn.Conv2d and module.groups == 1 and not isinstance(module.padding, str):
        return _conv2d
    if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
        return _batch_norm
    if type(module) is nn.GroupNorm:
        return _group_norm
    if type(module) is nn.LayerNorm:
        return _layer_norm
    if type(module) is nn.Embedding and module.max_norm is None and not module.scale_grad_by_freq:
        return _embedding
    return None


def _linear(layer: nn.Linear, run: _Run, delta: Tensor, trials: int) -> dict[str, Tensor]:
    x, delta = (t.reshape(trials, -1, t.shape[-1]) for t in (run.x, delta))  # (T, rows, features)
    weight = torch.bmm(delta.transpose(1, 2), x)
    return {"weight": weight} | ({} if layer.bias is None else {"bias": delta.sum(1)})


def _conv2d(layer: nn.Conv2d, run: _Run, delta: Tensor, trials: int) -> dict[str, Tensor]:
    kernel, stride, dilation = (_pair(n) for n in (layer.kernel_size, layer.stride, layer.dilation))
    weight = kernel_gradients(_padded(layer, run.x), delta, kernel, stride, dilation, trials, run.patches)
    return {"weight": weight} | (
        {} if layer.bias is None else {"bias": delta.reshape(trials, -1, *delta.shape[1:]).sum((1, 3, 4))}
    )


def _pair(numbers: tuple[int, ...]) -> Pair:
    height, width = numbers
    return height, width


def _padded(layer: nn.Conv2d, x: Tensor) -> Tensor:
    if layer.padding_mode != "zeros":
        return F.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
    if not isinstance(layer.padding, str) and any(layer.padding):
        return F.pad(x, (layer.padding[1], layer.padding[1], layer.padding[0], layer.padding[0]))
    return x


def _batch_norm(layer: _BatchNorm, run: _Run, delta: Tensor, trials: int) -> dict[str, Tensor]:
    return _affine(_normal(layer, run.x, trials), delta, trials)


def _normal(layer: _BatchNorm, x: Tensor, trials: int) -> Tensor:
    """In eval mode the running statistics are constants; else each trial has its own."""
    if layer.running_mean is not None and layer.running_var is not None:
        shape = (1, -1, *[1] * (x.dim() - 2))
        scale = (layer.running_var + layer.eps).rsqrt()
        return (x - layer.running_mean.view(shape)) * scale.view(shape)
    apart = x.reshape(trials, -1, *x.shape[1:])  # (T, N, C, ...)
    over = [d for d in range(1, apart.dim()) if d != 2]
    if apart[:, :, 0].numel() == trials:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {tuple(x.shape)}")
    variance, mean = torch.var_mean(apart, over, correction=0, keepdim=True)
    return ((apart - mean) * (variance + layer.eps).rsqrt()).reshape(x.shape)


def _group_norm(layer: nn.GroupNorm, run: _Run, delta: Tensor, trials: int) -> dict[str, Tensor]:
    return _affine(F.group_norm(run.x, layer.num_groups, eps=layer.eps), delta, trials)


def _affine(normal: Tensor, delta: Tensor, trials: int) -> dict[str, Tensor]:
    """Scale and shift per channel, the channels on axis 1."""
    normal, delta = (t.reshape(trials, -1, t.shape[1], t[0, 0].numel()) for t in (normal, delta))
    return {"weight": (normal * delta).sum((1, 3)), "bias": delta.sum((1, 3))}


def _layer_norm(layer: nn.LayerNorm, run: _Run, delta: Tensor, trials: int) -> dict[str, Tensor]:
    shape = tuple(layer.normalized_shape)
    normal = F.layer_norm(run.x, shape, eps=layer.eps)
    normal, delta = (t.reshape(trials, -1, *shape) for t in (normal, delta))
    return {"weight": (normal * delta).sum(1)} | ({} if layer.bias is None else {"bias": delta.sum(1)})


def _embedding(layer: nn.Embedding, run: _Run, delta: Tensor, trials: int) -> dict[str, Tensor]:
    """Each row of the table collects the output gradients of the samples that looked it up."""
    words, width = layer.num_embeddings, layer.embedding_dim
    looked_up = run.x.reshape(trials, -1).long()
    offset = words * torch.arange(trials, device=delta.device)[:, None]
    rows = (looked_up + offset).flatten()
    table = delta.new_zeros(trials * words, width).index_add(0, rows, delta.reshape(-1, width))
    if layer.padding_idx is not None:
        kept = torch.arange(words, device=delta.device) != layer.padding_idx
        table = table * kept.repeat(trials)[:, None]
    return {"weight": table.reshape(trials, words, width)}

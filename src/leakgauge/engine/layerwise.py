"""Per-trial gradients layer by layer: one ordinary batched pass, then each layer's weight gradient from what it saw.

Hooks catch every layer's input and output. One backward pass gives the output gradients of all trials, and a weight
gradient is their product with the inputs, per trial: a batched matrix product for Linear and, over unfolded patches,
for Conv2d. Wide convolutions are much faster this way than under vmap, which turns them into grouped ones.

Products over patches are written out with their own derivatives, because autograd would go through col2im and keep
copies in an order that products cannot use. Pictures are held channels-last, so that a patch is a few long runs of
memory. Kernel gradients are twice differentiable in all: the gradient itself and one derivative of it, which is what
gradient matching needs. The convolution is linear in its input and can be differentiated in it any number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.engine.penalties import collecting

Pair = tuple[int, ...]  # along height and width
_WIDE = 1024  # input x output channels from which a convolution counts as wide


@dataclass
class _Run:
    """What one layer saw during a forward pass."""

    x: Tensor  # its input (T*N, ...)
    out: Tensor
    patches: Tensor | None = None  # of the padded input, where the layer ran as a product over them


# (layer, what it saw, output gradient (T*N, ...), T) -> gradient of the weight (T, ...), then for that of the bias the
# output gradient trial by trial and the axes to sum over
Summed = tuple[Tensor, Tensor, tuple[int, ...]]
Rule = Callable[[Any, _Run, Tensor, int], Summed]


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
    found = ((path, m) for path, m in model.named_modules() if _is_trainable(m) and _rule_for(m) is None)
    return [f"layer {path!r} ({type(m).__name__})" for path, m in found]


def layerwise_gradients(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    by_products: bool | None = None,
    differentiable: bool = True,
) -> dict[str, Tensor] | None:
    """Gradients (T, *parameter) of each trial's mean loss, differentiable in inputs and targets unless switched off.

    `by_products` runs convolutions as products over patches; by default on a GPU that is not to round to TF32.

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
        total = trials * sum(penalties, loss(logits, targets.flatten(0, 1)))
        layers = [(name, m, rule) for name, m in model.named_modules() if (rule := _rule_for(m)) and _is_trainable(m)]
        if any(len(seen.get(name, ())) != 1 or len(seen[name][0].x) != len(samples) for name, _, _ in layers):
            return None
        deltas = torch.autograd.grad(total, [seen[name][0].out for name, _, _ in layers], create_graph=differentiable)
    found: dict[str, Tensor] = {}
    with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
        for (name, module, rule), delta in zip(layers, deltas, strict=True):
            prefix = f"{name}." if name else ""
            found[f"{prefix}weight"], apart, axes = rule(module, seen[name][0], delta, trials)
            if getattr(module, "bias", None) is not None:
                found[f"{prefix}bias"] = apart.sum(axes)
    return {name: found[name] for name, p in model.named_parameters() if p.requires_grad}  # the model's order


@contextmanager
def _watching(model: nn.Module, trials: int, by_products: bool) -> Iterator[dict[str, list[_Run]]]:
    """Collect what every layer with a rule sees during a forward pass."""
    seen: dict[str, list[_Run]] = {}

    def note(name: str, taken: list[Tensor], _: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        seen.setdefault(name, []).append(_Run(args[0], out, taken.pop() if taken else None))

    with ExitStack() as after:
        for name, module in model.named_modules():
            taken: list[Tensor] = []  # the patches of the layer's last run
            watched = _is_trainable(module) and _rule_for(module)
            if _uses_batch(module):
                module.forward = partial(_own_statistics, module, trials)
                after.callback(delattr, module, "forward")
            elif by_products and watched is _conv2d:
                module.forward = partial(_by_products, module, taken)
                after.callback(delattr, module, "forward")
            if watched:
                after.enter_context(module.register_forward_hook(partial(note, name, taken)))
        yield seen


def _by_products(layer: nn.Conv2d, taken: list[Tensor], x: Tensor) -> Tensor:
    out, patches = convolved(_padded(layer, x), layer.weight, layer.stride, layer.dilation)
    taken.append(patches)
    return out if layer.bias is None else out + layer.bias.detach()[:, None, None]


def _uses_batch(module: nn.Module) -> bool:
    """Does it normalise by the batch at hand? Then one pass over all trials must keep them apart."""
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
    if isinstance(module, nn.Conv2d) and (module.groups != 1 or isinstance(module.padding, str)):
        return None
    if isinstance(module, nn.Embedding) and (module.max_norm is not None or module.scale_grad_by_freq):
        return None
    return _batch_norm if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)) else _RULES.get(type(module))


def _linear(_: nn.Linear, run: _Run, delta: Tensor, trials: int) -> Summed:
    x, delta = (t.reshape(trials, -1, t.shape[-1]) for t in (run.x, delta))  # (T, rows, features)
    return torch.bmm(delta.transpose(1, 2), x), delta, (1,)


def _conv2d(layer: nn.Conv2d, run: _Run, delta: Tensor, trials: int) -> Summed:
    how = (layer.kernel_size, layer.stride, layer.dilation)
    weight = kernel_gradients(_padded(layer, run.x), delta, *how, trials, run.patches)
    return weight, delta.reshape(trials, -1, *delta.shape[1:]), (1, 3, 4)


def _padded(layer: nn.Conv2d, x: Tensor) -> Tensor:
    if layer.padding_mode != "zeros":
        return F.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
    if not isinstance(layer.padding, str) and any(layer.padding):
        return F.pad(x, (layer.padding[1], layer.padding[1], layer.padding[0], layer.padding[0]))
    return x


def _batch_norm(layer: _BatchNorm, run: _Run, delta: Tensor, trials: int) -> Summed:
    return _per_channel(_normal(layer, run.x, trials), delta, trials)


def _group_norm(layer: nn.GroupNorm, run: _Run, delta: Tensor, trials: int) -> Summed:
    return _per_channel(F.group_norm(run.x, layer.num_groups, eps=layer.eps), delta, trials)


def _per_channel(normal: Tensor, delta: Tensor, trials: int) -> Summed:
    """Scale and shift per channel, the channels on axis 1."""
    normal, delta = (t.reshape(trials, -1, t.shape[1], t[0, 0].numel()) for t in (normal, delta))
    return (normal * delta).sum((1, 3)), delta, (1, 3)


def _layer_norm(layer: nn.LayerNorm, run: _Run, delta: Tensor, trials: int) -> Summed:
    shape = tuple(layer.normalized_shape)
    normal, delta = (t.reshape(trials, -1, *shape) for t in (F.layer_norm(run.x, shape, eps=layer.eps), delta))
    return (normal * delta).sum(1), delta, (1,)


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


def _embedding(layer: nn.Embedding, run: _Run, delta: Tensor, trials: int) -> Summed:
    """Each row of the table collects the output gradients of the samples that looked it up."""
    words, width = layer.num_embeddings, layer.embedding_dim
    looked_up = run.x.reshape(trials, -1).long()
    offset = words * torch.arange(trials, device=delta.device)[:, None]
    rows = (looked_up + offset).flatten()
    table = delta.new_zeros(trials * words, width).index_add(0, rows, delta.reshape(-1, width))
    if layer.padding_idx is not None:
        kept = torch.arange(words, device=delta.device) != layer.padding_idx
        table = table * kept.repeat(trials)[:, None]
    return table.reshape(trials, words, width), delta, ()  # it has no bias


_RULES: Mapping[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
}


# --- convolutions as products over patches -------------------------------------------------------------------------


def kernel_gradients(
    x: Tensor, delta: Tensor, kernel: Pair, stride: Pair, dilation: Pair, trials: int, patches: Tensor | None = None
) -> Tensor:
    """(T, O, C, k, k) from padded inputs (T*N, C, H, W) and output gradients (T*N, O, H', W').

    `patches` are those of `x` that `convolved` made, if it did.
    """
    result: Tensor = _KernelGradients.apply(x, delta, patches, kernel, stride, dilation, trials)  # type: ignore[no-untyped-call]
    return result


def convolved(x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> tuple[Tensor, Tensor]:
    """The padded pictures (B, C, H, W) convolved with fixed kernels: (B, O, H', W'), and the patches it took.

    In full float32 on a GPU this is faster than the library's convolutions, which then use Fourier transforms.
    """
    result: tuple[Tensor, Tensor] = _Convolved.apply(x, weight.detach(), stride, dilation)  # type: ignore[no-untyped-call]
    return result


def _patches(x: Tensor, kernel: Pair, stride: Pair, dilation: Pair, size: Pair, trials: int) -> Tensor:
    """(T*N, C, H, W) -> (T, N*H'*W', k*k*C) for an output of `size`."""
    rows = x.permute(0, 2, 3, 1).contiguous()  # free where the pictures already are channels-last
    n, height, width, channels = rows.stride()
    view = rows.as_strided(
        (len(rows), *size, *kernel, rows.shape[3]),
        (n, height * stride[0], width * stride[1], height * dilation[0], width * dilation[1], channels),
    )
    return view.reshape(trials, -1, kernel[0] * kernel[1] * rows.shape[3])


class _KernelGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, patches: Tensor | None, *how: Any) -> Tensor:
        kernel, stride, dilation, trials = how
        if patches is None:
            patches = _patches(x, kernel, stride, dilation, delta.shape[2:], trials)
        patches = patches.view(trials, -1, patches.shape[-1])
        ctx.save_for_backward(patches, delta)
        ctx.how = (tuple(x.shape), *how)
        rows = delta.permute(0, 2, 3, 1).reshape(trials, -1, delta.shape[1])  # (T, N*H'*W', O)
        found = torch.bmm(rows.transpose(1, 2), patches)  # (T, O, k*k*C)
        return found.reshape(trials, delta.shape[1], *kernel, x.shape[1]).permute(0, 1, 4, 2, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """`upstream` (T, O, C, k, k) acts as a kernel of its own on each trial: forwards for delta, backwards for x."""
        patches, delta = ctx.saved_tensors
        shape, kernel, stride, dilation, trials = ctx.how
        kernels = upstream.permute(0, 1, 3, 4, 2).reshape(trials, upstream.shape[1], -1)  # (T, O, k*k*C)
        to_delta = to_x = None
        if ctx.needs_input_grad[1]:
            rows = torch.bmm(patches, kernels.transpose(1, 2))  # (T, N*H'*W', O)
            to_delta = rows.reshape(shape[0], *delta.shape[2:], -1).permute(0, 3, 1, 2)
        if ctx.needs_input_grad[0]:  # a transposed convolution: an ordinary one over the widened output gradients
            wide = _widened(delta, shape, kernel, stride, dilation)
            patches = _patches(wide, kernel, (1, 1), dilation, shape[2:], trials)  # (T, N*H*W, k*k*O)
            turned = upstream.flip(3, 4).permute(0, 3, 4, 1, 2).reshape(trials, -1, shape[1])  # (T, k*k*O, C)
            to_x = torch.bmm(patches, turned).reshape(shape[0], *shape[2:], shape[1]).permute(0, 3, 1, 2)
        return to_x, to_delta, None, None, None, None, None


def _widened(delta: Tensor, shape: tuple[int, ...], kernel: Pair, stride: Pair, dilation: Pair) -> Tensor:
    """Output gradients with zeros between and around, so that a transposed convolution is a plain one of stride 1."""
    if stride != (1, 1):
        size = [(n - 1) * s + 1 for n, s in zip(delta.shape[2:], stride, strict=True)]
        wide = delta.new_zeros(*delta.shape[:2], *size).contiguous(memory_format=torch.channels_last)
        wide[:, :, :: stride[0], :: stride[1]] = delta
        delta = wide
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    missing = [n - (m + r) for n, m, r in zip(shape[2:], delta.shape[2:], reach, strict=True)]  # never visited
    return F.pad(delta, (reach[1], reach[1] + missing[1], reach[0], reach[0] + missing[0]))


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> tuple[Tensor, Tensor]:
        kernel = weight.shape[2:]
        axes = zip(x.shape[2:], kernel, stride, dilation, strict=True)
        size = tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in axes)
        patches = _patches(x, kernel, stride, dilation, size, 1)[0]  # (B*H'*W', k*k*C)
        rows = patches @ weight.permute(0, 2, 3, 1).reshape(len(weight), -1).T
        ctx.save_for_backward(weight)
        ctx.how = (tuple(x.shape), kernel, stride, dilation)
        ctx.mark_non_differentiable(patches)
        ctx.set_materialize_grads(False)
        return rows.reshape(len(x), *size, len(weight)).permute(0, 3, 1, 2), patches

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        """The transposed convolution is a convolution with the kernels turned, so it can be differentiated again."""
        if upstream is None:
            return None, None, None, None
        (weight,) = ctx.saved_tensors
        shape, kernel, stride, dilation = ctx.how
        turned = weight.flip(2, 3).transpose(0, 1)
        to_x, _ = convolved(_widened(upstream, shape, kernel, stride, dilation), turned, (1, 1), dilation)
        return to_x, None, None, None

"""A network as a chain of layers that can be walked backwards, or a refusal that names the first layer that cannot."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from leakgauge.errors import NotApplicable
from leakgauge.models.layers import Normalize

_INSIDE = 1e-12  # how far from its asymptotes an activation's value is taken to be at least
_SHAPES = (torch.flatten, torch.reshape, "flatten", "view", "reshape")  # calls that only rearrange
_SHAPING = (nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout, nn.Dropout2d)  # dropout is off in a client's step
_ELSE = "use inverting-gradients"
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")


@dataclass(frozen=True)
class Link:
    """One layer: what it is, and the shape of one sample before and behind it."""

    name: str
    module: nn.Module
    before: tuple[int, ...]
    behind: tuple[int, ...]


# What came out of an activation -> what entered it, and the activation's slope there.
Inverse = Callable[[Tensor], tuple[Tensor, Tensor]]


def chain_of(model: nn.Module, example: Tensor) -> list[Link]:
    """The layers in the order in which they run. `example` is (1, *shape).

    `NotApplicable`, naming the layer, where one has no rule here or where the network is no plain chain.
    """
    graph = _Tracer().trace_or_refuse(model)
    links: list[Link] = []
    x = example.detach()
    last: fx.Node | None = None
    seen: set[str] = set()
    for node in graph.nodes:
        if node.op == "output":
            break
        if node.op == "placeholder":
            last = node
            continue
        name, module = _layer(model, node)
        if node.op == "call_module":
            refuse_layer(name, module)
            if name in seen and next(module.parameters(), None) is not None:
                raise NotApplicable(f"rgap: layer {name!r} runs twice, its gradient is a sum over both; {_ELSE}")
        if node.all_input_nodes != [last]:
            raise NotApplicable(f"rgap walks a plain chain, but {name!r} does not follow the layer before it; {_ELSE}")
        seen.add(name)
        with torch.no_grad():
            y = module(x) if node.op == "call_module" else x.flatten(1)
        links.append(Link(name, module, tuple(x.shape[1:]), tuple(y.shape[1:])))
        x, last = y, node
    if not links or not isinstance(links[-1].module, nn.Linear):
        what = f"{links[-1].name!r} ({type(links[-1].module).__name__})" if links else "nothing"
        raise NotApplicable(f"rgap starts from a last nn.Linear, but this network ends in {what}; {_ELSE}")
    return links


def refuse_layer(name: str, module: nn.Module) -> None:
    """`NotApplicable` unless the layer can be walked backwards."""
    kind = type(module)
    if kind in (nn.Linear, Normalize, *_SHAPING):
        return
    if kind is nn.Conv2d:
        assert isinstance(module, nn.Conv2d)
        if module.groups != 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
            raise NotApplicable(
                f"rgap: convolution {name!r} has groups, or padding other than a number of zeros; {_ELSE}"
            )
        return
    if inverse_of(module) is not None:
        return
    why = "has no rule"
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        why = "is BatchNorm, which ties a sample to statistics that the recursion does not have"
    elif isinstance(module, (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.LeakyReLU)):
        why = "is an activation without an inverse: different inputs give the same output"
    elif "Pool" in kind.__name__:
        why = "pools, so what entered it is not determined"
    raise NotApplicable(f"rgap: layer {name!r} ({kind.__name__}) {why}; {_ELSE}")


def inverse_of(module: nn.Module) -> Inverse | None:
    """How to undo the activation, or None where that is not known or not possible."""
    if isinstance(module, nn.LeakyReLU) and module.negative_slope > 0:
        return partial(_undo_leaky_relu, slope=module.negative_slope)
    if isinstance(module, nn.ELU) and module.alpha > 0:
        return partial(_undo_elu, alpha=module.alpha)
    if isinstance(module, nn.Softplus):
        return partial(_undo_softplus, beta=float(module.beta))
    return {nn.Sigmoid: _undo_sigmoid, nn.Tanh: _undo_tanh}.get(type(module))


def _undo_leaky_relu(h: Tensor, slope: float) -> tuple[Tensor, Tensor]:
    return torch.where(h > 0, h, h / slope), torch.where(h > 0, torch.ones_like(h), slope)


def _undo_sigmoid(h: Tensor) -> tuple[Tensor, Tensor]:
    h = h.clamp(_INSIDE, 1 - _INSIDE)
    return torch.logit(h), h * (1 - h)


def _undo_tanh(h: Tensor) -> tuple[Tensor, Tensor]:
    h = h.clamp(_INSIDE - 1, 1 - _INSIDE)
    return torch.atanh(h), 1 - h * h


def _undo_elu(h: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    h = h.clamp_min(alpha * (_INSIDE - 1))
    return torch.where(h > 0, h, torch.log1p(h.clamp_max(0) / alpha)), torch.where(h > 0, torch.ones_like(h), h + alpha)


def _undo_softplus(h: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    h = h.clamp_min(_INSIDE)
    share = -torch.expm1(-beta * h)
    return h + torch.log(share) / beta, share


class _Tracer(fx.Tracer):
    """Sees every module without children as one layer."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return next(m.children(), None) is None

    def trace_or_refuse(self, model: nn.Module) -> fx.Graph:
        try:
            return self.trace(model)
        except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
            said = str(error).partition("\n")[0]
            raise NotApplicable(f"rgap cannot follow this network's own forward ({said}); {_ELSE}") from error


def _layer(model: nn.Module, node: fx.Node) -> tuple[str, nn.Module]:
    """The module that a node runs, or a Flatten in the place of a call that only rearranges."""
    if node.op == "call_module":
        return str(node.target), model.get_submodule(str(node.target))
    if node.op in ("call_function", "call_method") and node.target in _SHAPES:
        return node.name, nn.Flatten()
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    where = next(reversed(stack), "") or type(model).__name__
    if node.target in _SUMS:
        raise NotApplicable(f"rgap: {where!r} adds two paths (a residual), whose parts are not known; {_ELSE}")
    raise NotApplicable(f"rgap has no rule for {node.name!r} in {where!r}; {_ELSE}")

"""What every model of the zoo shares: seeded building, initialisation, normalisation inside the model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import nn

from leakgauge.errors import BadInput
from leakgauge.models._layers import ACTIVATIONS, Normalize, init_uniform
from leakgauge.settings import Settings, setting
from leakgauge.types import DataSpec


def activation_setting(default: str) -> Any:
    return setting(default, "the non-linearity between the layers", choices=ACTIVATIONS)


def init_setting(default: str) -> Any:
    return setting(
        default,
        "initial values: the paper's or PyTorch's own rule, or U(-0.5, 0.5) for every parameter",
        choices=("default", "uniform"),
    )


def normalize_setting(default: str) -> Any:
    return setting(
        default,
        "first layer (x - mean) / std with the data set's constants: never, always, or if it has any",
        choices=("none", "data", "auto"),
    )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from `seed` inside, leave the caller's random stream as it was.

    Models are built on the CPU, so only its generator is seeded: `torch.manual_seed` reseeds the GPUs too.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@dataclass(frozen=True)
class ModelSpec(Settings):
    """One architecture of the zoo. Fields are its hyper-parameters; data shape and seed arrive at the call.

    A subclass sets `name`, `summary` and `paper`, writes `layers`, and changes the fields' defaults where its
    paper does. Activations are never in place, so the models can be differentiated twice.
    """

    paper: ClassVar[str]

    activation: str = activation_setting("relu")
    init: str = init_setting("default")
    normalize: str = normalize_setting("none")

    @final
    def build(self, data: DataSpec, seed: int) -> nn.Sequential:
        """The model for this kind of data, in eval mode; the same seed gives the same parameters."""
        normalize = self._normalize_layer(data)
        with seeded(seed):
            model = self.layers(data)
            if self.init == "uniform":
                init_uniform(model)
            else:
                self.init_default(model)
        if normalize is not None:
            # In front of the others rather than around them: parameter names are the same with and without.
            model = nn.Sequential(OrderedDict([("normalize", normalize), *model.named_children()]))
        return model.eval().requires_grad_(True)

    def layers(self, data: DataSpec) -> nn.Sequential:
        """The named layers in execution order; `NotApplicable` if the data's shape cannot work."""
        raise NotImplementedError  # abstract

    def init_default(self, model: nn.Sequential) -> None:
        """The paper's own initialisation; PyTorch's, which the layers already have, unless overridden."""

    def _normalize_layer(self, data: DataSpec) -> Normalize | None:
        if self.normalize == "none" or (self.normalize == "auto" and not data.mean):
            return None
        channels = data.shape[0]
        if len(data.mean) != len(data.std) or len(data.mean) not in (1, channels):
            raise BadInput(
                f"{self.name}: normalize=data",
                allowed=f"used with data that has a mean and std for its {channels} channels",
                got=f"{len(data.mean)} means and {len(data.std)} stds for {data.name!r}",
                do="use normalize=none, or give the data set its constants",
            )
        return Normalize(data.mean, data.std, dims=len(data.shape))


def named(*layers: tuple[str, nn.Module]) -> nn.Sequential:
    """Layers in execution order under readable names: parameters become `conv1.weight`, `fc.bias`."""
    return nn.Sequential(OrderedDict(layers))

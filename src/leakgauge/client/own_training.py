"""The user's own local training, `FILE.py:FUNCTION`, run as their framework calls it.

The function gets a copy of the model, the client's samples and the settings, and trains that copy in place, or returns
a model or a state dictionary. Its parameters are filled by name: `model` or `net`; `data`, `loader`, `trainloader` or
`train_loader`; `config`; `epochs`, `lr` or `learning_rate`, `batch_size`, `device`, `seed` and every other field of the
local settings. The first two may have any name.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from leakgauge import catalog
from leakgauge.engine.randomness import derived_seed
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.models.adapting import taken_back
from leakgauge.types import Batch, Client, SharedUpdate

_INPUTS = ("inputs", "input", "x", "img", "image", "images", "pixel_values", "features", "data", "input_ids")
_LABELS = ("labels", "label", "y", "target", "targets", "fine_label")
_SYNONYMS = {
    "learning_rate": "lr",
    "local_epochs": "epochs",
    "num_epochs": "epochs",
    "epoch_num": "epochs",
    "n_epochs": "epochs",
    "mu": "proximal",
    "proximal_mu": "proximal",
}


class Mini(tuple[Any, ...]):
    """A mini-batch: `inputs, labels = batch`, `batch["image"]`, `batch["label"]` and `net(**batch)` all work."""

    names: tuple[str, ...] = ("",)

    @classmethod
    def of(cls, inputs: Mapping[str, Tensor], labels: Tensor) -> Mini:
        made = cls((*inputs.values(), labels))
        made.names = tuple(inputs)
        return made

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key in self.names or key in _LABELS or (key in _INPUTS and len(self.names) == 1):
            return super().__getitem__(self.names.index(key) if key in self.names else -int(key in _LABELS))
        known = ", ".join((*filter(None, self.names), *(_INPUTS if len(self.names) == 1 else ()), *_LABELS))
        raise KeyError(f"{key!r}; a mini-batch has {known}")

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if self.__contains__(key) else default

    def __contains__(self, key: object) -> bool:
        named = key in self.names or key in _LABELS or (key in _INPUTS and len(self.names) == 1)
        return named if isinstance(key, str) else super().__contains__(key)

    def keys(self) -> Iterator[str]:
        return iter((*(name or _INPUTS[0] for name in self.names), _LABELS[0]))

    def items(self) -> Iterator[tuple[str, Any]]:
        return zip(self.keys(), self, strict=True)

    def to(self, device: Any) -> Mini:
        return Mini.of({n: self[n].to(device) for n in self.names}, self[-1].to(device))


def own_training(model: nn.Module, batch: Batch, local: Client, seeds: Sequence[int]) -> SharedUpdate:
    """How the user's function moves the weights of each trial's copy of the model; one client after another."""
    from leakgauge.client.fedavg import moved_by

    function = catalog.own(local.fit)
    rows = [_fitted(function, model, batch.take([t]), local, seed) for t, seed in enumerate(seeds)]
    return moved_by(model, rows)


def _fitted(function: Callable[..., Any], model: nn.Module, one: Batch, local: Client, seed: int) -> nn.Module:
    worker, spec = taken_back(copy.deepcopy(model).train())
    own = spec.decode(one.inputs[0]) if spec is not None and spec.parts else {"": one.inputs[0]}
    pairs = TensorDataset(*own.values(), one.labels[0])
    loader = DataLoader(
        pairs,
        batch_size=local.batch_size or len(pairs),
        shuffle=local.order == "shuffled",
        drop_last=local.drop_last,
        collate_fn=lambda rows: _mini(tuple(own), [torch.stack(column) for column in zip(*rows, strict=True)]),
    )
    config = local.as_dict() | {name: getattr(local, name) for name in local.__dataclass_fields__}
    config |= {"device": str(one.inputs.device), "seed": derived_seed(seed, "own training")}
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(config["seed"])
        try:
            made = function(**_arguments(function, local.fit, worker, loader, config))
        except LeakgaugeError:
            raise
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise BadInput(
                f"client {local.fit!r}", allowed="a training that runs", got=got, do="correct it, or see --debug"
            ) from error
    if isinstance(made, Mapping) and all(isinstance(value, Tensor) for value in made.values()):
        made = _loaded(local.fit, worker, made)
    after = made if isinstance(made, nn.Module) else worker
    _refuse_other_shape(local.fit, model, after)
    return after.to(one.inputs.device)


def _mini(names: Sequence[str], columns: Sequence[Tensor]) -> Mini:
    return Mini.of(dict(zip(names, columns, strict=False)), columns[-1])


def _arguments(
    function: Callable[..., Any], name: str, model: nn.Module, loader: Any, config: dict[str, Any]
) -> dict[str, Any]:
    offers = {"model": model, "net": model, "config": config, **config}
    offers |= dict.fromkeys(("data", "loader", "trainloader", "train_loader", "dataloader", "train_dataloader"), loader)
    offers |= {word: config[field] for word, field in _SYNONYMS.items()}
    found: dict[str, Any] = {}
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.name in offers:
            found[parameter.name] = offers[parameter.name]
        elif place < 2:
            found[parameter.name] = (model, loader)[place]
        elif parameter.default is parameter.empty:
            do = "give it a default, or read it from `config`"
            raise BadInput(
                f"parameter {parameter.name!r} of {name}",
                allowed="model, data, config or a local setting",
                got="another",
                do=do,
            )
    return found


def _loaded(name: str, worker: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    try:
        worker.load_state_dict(dict(state))
    except RuntimeError as error:
        got = str(error).splitlines()[-1].strip()
        raise BadInput(
            f"client {name!r}",
            allowed="a training that keeps the model's shape",
            got=got,
            do="return the model's own state_dict()",
        ) from error
    return worker


def _refuse_other_shape(name: str, model: nn.Module, after: nn.Module) -> None:
    before, now = ({n: tuple(t.shape) for n, t in m.state_dict().items()} for m in (model, after))
    changed = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    if changed:
        got = f"{changed[0]!r} of shape {before.get(changed[0], 'none')} before and {now.get(changed[0], 'none')} after"
        raise BadInput(
            f"client {name!r}",
            allowed="a training that keeps the model's shape",
            got=got,
            do="train the model that is given",
        )

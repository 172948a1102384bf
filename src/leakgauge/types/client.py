"""What a client has and does: the secret batch, how it trains, and what leaves it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from leakgauge.errors import BadInput
from leakgauge.settings import Settings, setting

if TYPE_CHECKING:  # what only names things, such as `leakgauge list`, does not wait for torch
    from torch import Tensor, nn

PARTITIONS = ("none", "iid", "classes", "dirichlet")
OPTIMIZERS = ("adam", "sgd", "nesterov")
CROSS_ENTROPY, NLL_ON_LOGITS = LOSSES = ("cross-entropy", "nll-on-logits")


@dataclass(frozen=True)
class DataSpec:
    """What is public about a kind of data: its shape and range, never its contents."""

    name: str  # of the data set
    shape: tuple[int, ...]  # (C, H, W) for images, (features,) for tables; values in [0, 1]
    classes: int  # number of labels
    kind: str  # "image" or "tabular"
    mean: tuple[float, ...] = ()  # published channel constants, for models that normalise
    std: tuple[float, ...] = ()  # of the same channels


@dataclass(frozen=True)
class Batch:
    """The secret: private samples of T clients, N each."""

    inputs: Tensor  # (T, N, *shape), float, in [0, 1]
    labels: Tensor  # (T, N), int64

    @property
    def trials(self) -> int:
        return self.inputs.shape[0]

    def take(self, trials: Sequence[int]) -> Batch:
        return Batch(take(self.inputs, trials), take(self.labels, trials))


@dataclass(frozen=True)
class LocalTraining(Settings):
    """What one client does before it shares: one gradient, or several local steps and the difference."""

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "the client's local training"

    kind: str = setting("fedsgd", "what is shared: one gradient, or a weight difference", choices=("fedsgd", "fedavg"))
    epochs: int = setting(1, "local passes over the client's samples (fedavg)", low=1)
    batch_size: int = setting(0, "local mini-batch, 0 for all samples at once (fedavg)", low=0)
    lr: float = setting(0.01, "local learning rate (fedavg)", above=0)
    batchnorm: str = setting(
        "eval", "BatchNorm uses running (eval) or batch (train) statistics", choices=("eval", "train")
    )
    loss: str = setting(
        CROSS_ENTROPY,
        "what the client minimises; nll-on-logits forgets the softmax, as some released code does",
        choices=LOSSES,
    )
    seen: int = setting(1, "rounds with these samples at these weights that the attacker sees an update of", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "fedsgd" and (self.epochs != 1 or self.batch_size != 0):
            raise BadInput(
                "local: kind", allowed="fedavg with epochs or batch_size", got="fedsgd", do="add kind=fedavg"
            )


@dataclass(frozen=True)
class Partition(Settings):
    """How the data is spread over clients. Trial t attacks client t, whose samples all come from its own share."""

    name: ClassVar[str] = "partition"
    summary: ClassVar[str] = "who holds which samples"

    kind: str = setting("none", "how shares are cut; none draws every batch from one pool", choices=PARTITIONS)
    clients: int = setting(10, "number of clients", low=1)
    classes: int = setting(2, "labels per client (kind=classes)", low=1)
    alpha: float = setting(0.5, "concentration, small is skewed (kind=dirichlet)", above=0)


@dataclass(frozen=True)
class Training(Settings):
    """How far the global model has been trained when the update is taken: rounds of FedSGD on public samples."""

    name: ClassVar[str] = "training"
    summary: ClassVar[str] = "the rounds of training behind the global model"

    rounds: int = setting(0, "rounds before the update is taken; 0 leaves the model as it starts", low=0)
    clients: int = setting(10, "clients whose gradients are averaged in a round", low=1)
    batch_size: int = setting(32, "samples behind each client's gradient", low=1)
    optimizer: str = setting(
        "adam",
        "rule by which the server steps; nesterov has momentum, weight decay and falling rates",
        choices=OPTIMIZERS,
    )
    lr: float = setting(0.01, "the server's learning rate", above=0)
    policy: str = setting("", "transform the pictures of the training by this policy, such as 3-1-7; none unless given")
    augment: bool = setting(False, "move the pictures of the training by up to four pixels and mirror half of them")


@dataclass(frozen=True)
class Federation(Settings):
    """How a federation trains: who takes part in a round, with how many samples, and what the server does."""

    name: ClassVar[str] = "federation"
    summary: ClassVar[str] = "rounds of federated training"

    rounds: int = setting(100, "rounds of training", low=1)
    per_round: int = setting(10, "clients drawn for each round", low=1)
    most: int = setting(0, "samples of each label that a client holds, 1 to this many; 0 for its whole share", low=0)
    server_lr: float = setting(1.0, "the server's step along the mean update", above=0)
    weighting: str = setting(
        "equal", "clients count the same, or by their samples (FedAvg)", choices=("equal", "samples")
    )
    evaluate: int = setting(10, "rounds between two looks at the test split", low=1)
    aggregator: str = setting("fedavg", "how the server weighs clients and steps: NAME[:field=value,...]")
    encryption: str = setting("none", "what the server adds updates under: none or NAME[:field=value,...]")
    poison: str = setting("none", "clients that harm the federation: none or field=value,...")


@dataclass(frozen=True)
class SharedUpdate:
    """What leaves the client, by parameter name.

    `kind` is "gradient" (mean loss gradient) or "weight_delta" (weights after minus weights before).
    """

    kind: str
    tensors: Mapping[str, Tensor]  # name -> (T, *parameter)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)  # name -> (T, *buffer), if any are shared

    @property
    def trials(self) -> int:
        return next(iter(self.tensors.values())).shape[0]

    def take(self, trials: Sequence[int]) -> SharedUpdate:
        return SharedUpdate(self.kind, take(self.tensors, trials), take(self.buffers, trials))

    def map(self, change: Callable[[str, Tensor], Tensor]) -> SharedUpdate:
        """The same update with every parameter tensor changed by `change(name, tensor)`."""
        return dataclasses.replace(self, tensors={n: change(n, t) for n, t in self.tensors.items()})


# A client step: (model, private batch, one seed per trial) -> what it shares.
Step: TypeAlias = "Callable[[nn.Module, Batch, Sequence[int]], SharedUpdate]"


def take(value: Any, trials: Sequence[int]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value[torch.as_tensor(trials, device=value.device)]
    if isinstance(value, Mapping):
        return {k: take(v, trials) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(take(v, trials) for v in value)
    return value

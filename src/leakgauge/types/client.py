"""What a client has and does: the secret batch, how it trains, and what leaves it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from leakgauge.errors import BadInput
from leakgauge.settings import Settings, setting

if TYPE_CHECKING:  # what only names things, such as `leakgauge list`, does not wait for torch
    from torch import Generator, Tensor, nn

PARTITIONS = ("none", "iid", "classes", "dirichlet")
OPTIMIZERS = ("adam", "sgd", "nesterov")
LOCAL_OPTIMIZERS = ("sgd", "adam", "adamw", "rmsprop", "adagrad")
SCHEDULES = ("constant", "linear", "cosine", "step", "exponential")
NUMBER_TYPES = ("float32", "bfloat16", "float16")
CROSS_ENTROPY, NLL_ON_LOGITS, NLL = "cross-entropy", "nll-on-logits", "nll"
LOSSES = (CROSS_ENTROPY, NLL_ON_LOGITS, NLL, "bce", "mse", "l1", "huber", "ctc")


NUMBERS, CATEGORIES, MASK = PART_KINDS = ("numbers", "categories", "mask")
ONE_CLASS, SEVERAL_CLASSES, QUANTITIES, SEQUENCE = TARGETS = ("class", "classes", "numbers", "sequence")


@dataclass(frozen=True)
class Part:
    """One input of a model, and where it stands in a sample as attacks search it: flat, from 0 to 1.

    A category is searched as one share for each of its values; `decode` takes the largest.
    """

    name: str  # of the model's argument; "" for the only one
    shape: tuple[int, ...]  # as the model takes it
    kind: str = NUMBERS  # or "categories": whole numbers; or "mask": whether a place is used
    size: int = 0  # of categories: how many values there are
    low: float = 0.0  # of the numbers' range
    high: float = 1.0  # of the same

    @property
    def width(self) -> int:
        """Numbers in a flat sample."""
        return math.prod(self.shape) * (self.size if self.kind == CATEGORIES else 1)

    def encode(self, values: Tensor) -> Tensor:
        """(M, *shape) -> (M, width) float32."""
        import torch

        if self.kind == CATEGORIES:
            return torch.nn.functional.one_hot(values.long(), self.size).reshape(len(values), -1).float()
        return ((values.float() - self.low) / (self.high - self.low)).reshape(len(values), -1)

    def relaxed(self, flat: Tensor) -> Tensor:
        """(..., width) -> what the model gets, before categories become whole numbers: (..., *shape[, size])."""
        if self.kind == CATEGORIES:
            return flat.reshape(*flat.shape[:-1], *self.shape, self.size)
        return (flat * (self.high - self.low) + self.low).reshape(*flat.shape[:-1], *self.shape)

    def decode(self, flat: Tensor) -> Tensor:
        """(..., width) -> (..., *shape) as the model takes it."""
        values = self.relaxed(flat)
        if self.kind == CATEGORIES:
            return values.argmax(-1)
        return values > 0.5 if self.kind == MASK else values


@dataclass(frozen=True)
class DataSpec:
    """What is public about a kind of data: its shape and range, never its contents."""

    name: str  # of the data set
    shape: tuple[int, ...]  # of a sample as attacks search it, values in [0, 1]: (C, H, W), (features,), (steps, D)
    classes: int  # number of labels, or of numbers in a target
    kind: str  # "image", "tabular", "tokens", "series" or "other"
    mean: tuple[float, ...] = ()  # published channel constants, for models that normalise
    std: tuple[float, ...] = ()  # of the same channels
    parts: tuple[Part, ...] = ()  # what the model takes instead of `shape`; none if it takes just that
    target: str = ONE_CLASS  # a label, several labels, numbers, or a sequence of labels
    target_shape: tuple[int, ...] = ()  # of one sample's target; none for a single label

    def split(self, samples: Tensor) -> dict[str, Tensor]:
        """(..., *shape) -> the flat numbers of each part (..., width)."""
        import torch

        widths = [part.width for part in self.parts]
        pieces = torch.split(samples.flatten(samples.dim() - len(self.shape)), widths, -1)
        return {part.name: piece for part, piece in zip(self.parts, pieces, strict=True)}

    def draw_targets(self, size: tuple[int, int], generator: Generator) -> Tensor:
        """Targets (T, N, ...) drawn by chance, as a loss takes them."""
        import torch

        shape = (*size, *self.target_shape)
        if self.target == QUANTITIES:
            return torch.randn(shape, generator=generator)
        if self.target == SEVERAL_CLASSES:
            return torch.randint(2, shape, generator=generator).float()
        return torch.randint(self.classes, shape, generator=generator)

    def decode(self, samples: Tensor) -> dict[str, Tensor]:
        """(..., *shape) -> each input as the model takes it."""
        flat = self.split(samples)
        return {part.name: part.decode(flat[part.name]) for part in self.parts}


@dataclass(frozen=True)
class Batch:
    """The secret: private samples of T clients, N each."""

    inputs: Tensor  # (T, N, *shape), float, in [0, 1]
    labels: Tensor  # (T, N) int64, or (T, N, *target_shape) where a target is no single label

    @property
    def trials(self) -> int:
        return self.inputs.shape[0]

    @property
    def classes(self) -> Tensor:
        """(T, N): the labels; zeros where targets are no single label, so that all samples are of one class."""
        if self.labels.dim() == 2 and not self.labels.is_floating_point():
            return self.labels
        return self.labels.new_zeros(self.labels.shape[:2]).long()

    def take(self, trials: Sequence[int]) -> Batch:
        return Batch(take(self.inputs, trials), take(self.labels, trials))


@dataclass(frozen=True)
class Client(Settings):
    """What one client does before it shares: one gradient, or local steps of its optimiser and the difference.

    Optimisers, their defaults and the order of their operations are those of `torch.optim`.
    """

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "the client's local training"

    kind: str = setting("fedsgd", "what is shared: one gradient, or a weight difference", choices=("fedsgd", "fedavg"))
    epochs: int = setting(1, "local passes over the client's samples (fedavg)", low=1)
    batch_size: int = setting(0, "local mini-batch, 0 for all samples at once (fedavg)", low=0)
    lr: float = setting(0.01, "local learning rate (fedavg)", above=0)
    batchnorm: str = setting(
        "eval", "BatchNorm uses running (eval) or batch (train) statistics", choices=("eval", "train")
    )
    loss: str = setting(CROSS_ENTROPY, f"what the client minimises: {', '.join(LOSSES)}, or FILE.py:FUNCTION")
    seen: int = setting(1, "rounds with these samples at these weights that the attacker sees an update of", low=1)
    # Said in a report only where they are not the default.
    optimizer: str = setting("sgd", "update rule of the local steps", choices=LOCAL_OPTIMIZERS)
    momentum: float = setting(0.0, "of sgd and rmsprop", low=0, high=1)
    dampening: float = setting(0.0, "of sgd's momentum", low=0, high=1)
    nesterov: bool = setting(False, "sgd looks ahead along its momentum")
    weight_decay: float = setting(0.0, "pull of the weights to zero; adamw's is apart from the gradient", low=0)
    beta1: float = setting(0.9, "memory of adam's mean", low=0, high=1)
    beta2: float = setting(0.999, "memory of adam's squares", low=0, high=1)
    alpha: float = setting(0.99, "memory of rmsprop's squares", low=0, high=1)
    eps: float | None = setting(None, "added to the root of the squares; torch's value unless given", above=0)
    schedule: str = setting("constant", "how the rate goes from step to step", choices=SCHEDULES)
    decay_every: int = setting(1, "steps between two decays (schedule=step)", low=1)
    decay_by: float = setting(0.1, "factor of each decay (schedule=step, exponential)", above=0, high=1)
    order: str = setting(
        "given", "samples are visited as given, or shuffled anew in each epoch", choices=("given", "shuffled")
    )
    drop_last: bool = setting(False, "leave out the last mini-batch of an epoch if it is smaller")
    accumulate: int = setting(1, "mini-batches whose mean gradient makes one step", low=1)
    clip: float = setting(0.0, "longest gradient of a step, over all tensors; 0 for any", low=0)
    proximal: float = setting(0.0, "FedProx's mu: pull to the weights that were received", low=0)
    control: str = setting("", "file of SCAFFOLD's server minus own control variate, by parameter name")
    precision: str = setting("float32", "of the passes through the model (autocast)", choices=NUMBER_TYPES)
    shared_as: str = setting("float32", "type of the numbers that are sent", choices=NUMBER_TYPES)
    trained: str = setting("all", "layers that are trained, others are frozen: first:2, last:1 or names with +")
    label_smoothing: float = setting(0.0, "share of each label that is spread over all classes", low=0, high=1)
    class_weights: str = setting("", "weights of the classes in the loss, with + between them: 1+2+0.5")
    fit: str = setting("", "own training, FILE.py:FUNCTION, called with model, data and these settings")

    def __post_init__(self) -> None:
        super().__post_init__()
        of_steps = [f for f in ("epochs", "batch_size", *_RARE) if f not in _OF_A_GRADIENT and self._changed(f)]
        if self.kind == "fedsgd" and of_steps:
            raise BadInput("local: kind", allowed=f"fedavg with {of_steps[0]}", got="fedsgd", do="add kind=fedavg")
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise BadInput(
                "local: nesterov", allowed="used with momentum, without dampening", got="others", do="add momentum=0.9"
            )
        if self.momentum and self.optimizer not in ("sgd", "rmsprop"):
            do = "leave it out; adam's memory is beta1"
            raise BadInput("local: momentum", allowed="used with sgd or rmsprop", got=self.optimizer, do=do)
        if self.loss not in LOSSES and not _is_own(self.loss):
            do = "choose one of these, or name a function"
            raise BadInput(
                "local: loss", allowed=f"one of {', '.join(LOSSES)}, or FILE.py:FUNCTION", got=repr(self.loss), do=do
            )
        if self.class_weights and any(not w > 0 for w in self.weights_of_classes):
            raise BadInput(
                "local: class_weights", allowed="numbers above 0", got=self.class_weights, do="write 1+2+0.5"
            )

    @classmethod
    def of_own(cls, text: str, beside: str | None = None) -> Client:
        """The short form of a client that runs its own training: `FILE.py:FUNCTION[,field=value...]`.

        `beside` are further fields, as they are written behind --local.
        """
        function, _, rest = text.partition(",")
        if not _is_own(function) or "=" in function:
            do = "name the training function first: --client task.py:train,lr=0.1,momentum=0.9"
            raise BadInput("--client", allowed="FILE.py:FUNCTION[,field=value...]", got=repr(text), do=do)
        words = [word for part in (rest, beside or "") for word in part.split(",") if word]
        if twice := [word for word in words if word.partition("=")[0].strip() in ("kind", "fit")]:
            got, do = repr(twice[0]), "leave it out; a training of one's own shares weights (fedavg)"
            raise BadInput("--client", allowed="used without kind and fit", got=got, do=do)
        return cls.from_text(",".join(["kind=fedavg", f"fit={function}", *words]))

    @property
    def declared(self) -> Client:
        """What an attacker may know of it: the settings, never the client's own function."""
        return dataclasses.replace(self, fit="") if self.fit else self

    @property
    def weights_of_classes(self) -> tuple[float, ...]:
        try:
            return tuple(float(word) for word in self.class_weights.split("+") if word)
        except ValueError:
            return (0.0,)

    @property
    def adaptive(self) -> bool:
        """Is every entry of the gradient divided by its own size?"""
        return self.optimizer != "sgd"

    @property
    def kind_of_loss(self) -> str:
        """The loss; cross-entropy where it stands in two parts, one of them at the end of the model."""
        return CROSS_ENTROPY if self.loss == NLL else self.loss

    def _changed(self, field: str) -> bool:
        return bool(getattr(self, field) != type(self).__dataclass_fields__[field].default)

    def as_dict(self) -> dict[str, Any]:
        """Of what most clients leave alone only what this one does not."""
        return {n: v for n, v in super().as_dict().items() if n not in _RARE or self._changed(n)}


_RARE = tuple(f.name for f in dataclasses.fields(Client))[7:]  # the fields behind `seen`
_OF_A_GRADIENT = ("precision", "shared_as", "trained", "label_smoothing", "class_weights")  # without any local step


def _is_own(spec: str) -> bool:
    return ":" in spec


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

"""The matching problem, which most attacks pose: which inputs would have made this update?

One problem per trial, as a function of a flat vector z = (inputs in the optimiser's own units, label logits, hidden
buffers). With a `painter`, z is what it makes the inputs and logits from instead: the weights of a generator.

An attack poses it from what it sees, and a defense that the attacker knows rewrites it: it changes what is `observed`,
says what the client did to its gradient (`client_gradient`, `transforms`, `compression`), what else is unknown
(`hidden`, `masks`, `painter`), how the search should go (`variation`, `noise`, `strategy`, ...), and what is reported.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from leakgauge.client.fedavg import control_of, local_steps, trained
from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.engine.driving import Evaluate
from leakgauge.engine.gradients import parameters_of, runs_one_by_one, trial_gradients, working_model
from leakgauge.engine.losses import loss_of
from leakgauge.errors import BadInput
from leakgauge.matching.compression import Compression, OwnDistance, Signs, compressed_distance
from leakgauge.matching.distance import distance_between, rows_of
from leakgauge.matching.noise import Noise
from leakgauge.matching.updates import observed_gradient
from leakgauge.types import (
    CROSS_ENTROPY,
    ONE_CLASS,
    QUANTITIES,
    SEVERAL_CLASSES,
    Batch,
    Client,
    DataSpec,
    Fact,
    Observation,
    Progress,
    Reconstruction,
)

_LONG, _LONG_ON_GPU = 2**26, 2**31  # numbers on a replayed path from which one step's graph is kept at a time
_SMOOTH, _SMOOTH_BY_DIRECTION = 3e-3, 1e-3  # weights of total variation where only signs are known
Rows = list[Tensor]
Distance = OwnDistance
Gradients = Mapping[str, Tensor]  # name -> (A, *parameter)
Finish = Callable[[Tensor], tuple[Tensor, Tensor]]  # z (T, D) -> inputs (T, N, ...), labels (T, N)
Start = Callable[[Sequence[int], int], Tensor]  # (seeds of some trials, number of the attempt) -> (A, D)
Opening = Callable[[Tensor, int], Tensor]  # (z (A, D) at the start of an attempt, its number) -> the start it gets
# (gradients of a guess, the observed ones, the trials (A,) of the rows) -> what the client would have shared of them
Transform = Callable[[Gradients, Gradients, Tensor], dict[str, Tensor]]


# What a client makes of its samples in place of the gradient of their mean loss: (model, inputs (A, N, ...), targets,
# weights, buffers) -> name -> (A, *parameter), differentiable as `trial_gradients` is.
ClientGradient = Callable[
    [nn.Module, Tensor, Tensor, Mapping[str, Tensor] | None, Mapping[str, Tensor]], dict[str, Tensor]
]


class Painter(Protocol):
    """Makes inputs and label logits from another kind of z."""

    @property
    def width(self) -> int:
        """Numbers in one trial's z."""

    def __call__(self, z: Tensor, trials: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(A, D) and the trials (A,) its rows belong to, None for all -> inputs (A, N, *sample), logits or None."""


Search = Callable[["Matching", Start, Progress], Reconstruction]  # an attack's own, from its own or another start
# Another way to go about it, for a defense that one search does not beat: (problem, the attack's search, its start,
# seeds, progress) -> what was found.
Strategy = Callable[["Matching", Search, Start, Sequence[int], Progress], Reconstruction]
Prior = Callable[["Matching", Tensor, Tensor], Tensor]  # (problem, inputs (A, N, ...), targets) -> (A,)


def no_prior(_: Matching, inputs: Tensor, __: Tensor) -> Tensor:
    """(A,) zeros."""
    return inputs.new_zeros(len(inputs))


@dataclass(frozen=True)
class Matching:
    """Everything that is fixed while the attack searches."""

    rule: ClassVar[str] = "informs_matching"  # by which defenses rewrite it

    observation: Observation
    model: nn.Module
    observed: Mapping[str, Tensor]  # name -> (T, *parameter): a gradient, or a weight difference if steps are unrolled
    shape: tuple[int, ...]  # (N, *sample)
    classes: int
    labels: Tensor | None  # (T, N), or as targets are, or None where they are searched for
    distance: str | Distance
    prior: Prior
    target: str = ONE_CLASS  # what a target is, and its shape beside a single label; see `DataSpec`
    target_shape: tuple[int, ...] = ()
    # How the attack searches, as far as a defense has a say in it.
    variation: float | None = None  # weight of total variation in the prior; None where the attack has none
    variation_known: bool = False  # has a defense that acts later said which weight it takes?
    by_direction: bool = True  # is the prior weighed as beside a cosine, a mean over pixels, or against squares?
    distances: tuple[str, ...] = ()  # other names that `distance` may have
    noise: Noise | None = None  # known to be in what was shared
    noise_scale: float = 0.0  # of it, in the gradient that is matched
    exact: float = math.inf  # the share of the update's size below which a trial is solved, at most
    searches_labels: bool = False  # may labels be left to the search?
    guesses: int = 1  # attempts at least, one for each thing that chance may have done
    begin: str = ""  # where a search that would begin at random begins instead, if it can
    stretch: bool = False  # is a sample's scale hidden, so that it is reported from its least to its largest value?
    strategy: Strategy | None = None
    # What the client did, as far as it is known.
    unrolled: Client | None = None  # local steps to replay; None for a single gradient
    softness: float = 0.0  # of the signs that an adaptive optimiser makes of gradients; see `Optimizer`
    mean_of_steps: bool = False  # what is observed is the mean gradient of these steps, not the weight difference
    client_gradient: ClientGradient = trial_gradients  # of one client, or of one of its steps
    transforms: tuple[Transform, ...] = ()  # what was done to the gradient afterwards, in this order
    compression: Compression | None = None  # how the client is known to have shortened what it sent
    clients: int = 1  # who share the samples equally and of whom the mean is observed
    # What is compared.
    match_nonzero: bool = False
    weights: Mapping[str, Tensor] | None = None  # factor of every entry in the comparison: name -> (T, *parameter)
    length_unit: float = 1.0  # squared distances are measured in units of this: a shortened update is tiny or huge
    prior_counts: bool = True  # in the value that ranks points; its slope always counts
    pull: Callable[[Tensor], Tensor] | None = None  # a prior on z itself: (A, D) -> (A,)
    # What z means.
    centre: Tensor | None = None  # inputs = centre + unit * z, in the inputs' own units if not given
    unit: Tensor | None = None
    label_unit: float = 1.0
    masks: Mapping[str, Tensor] = field(default_factory=dict)  # buffers that differ by trial: name -> (T, ...)
    painter: Painter | None = None  # what z means, if it is not the inputs themselves
    hidden: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # buffers searched for: name -> shape
    hidden_unit: float = 1.0  # in which z counts them: a number that acts on every pixel needs smaller steps than one
    finish: Finish | None = None  # makes the reported inputs and labels, if they differ from the compared ones
    opening: Opening | None = None  # what each attempt begins with, if attempts stand for different guesses

    def replace(self, **changes: Any) -> Self:
        """The same problem with these fields changed."""
        return dataclasses.replace(self, **changes)

    def without(self, names: set[str]) -> Self:
        """The same problem without these tensors: they take no part in a distance, nor in the norms of a cosine."""
        kept = {name: tensor for name, tensor in self.observed.items() if name not in names}
        if not kept:
            raise BadInput(
                "what is compared",
                allowed="some of the tensors that were shared",
                got="none: what is known leaves all of them out",
                do="share more layers, or leave the defense out of what the attacker knows",
            )
        return self.replace(observed=kept)

    def with_variation(self, weight: float) -> Self:
        """The same problem with this weight of total variation, if the attack has such a prior.

        Of several defenses the one that acts last decides: it is the first that informs.
        """
        if self.variation is None or self.variation_known:
            return self
        return self.replace(variation=weight, variation_known=True)

    def smoother(self, weight: float) -> Self:
        """The same with at least this weight."""
        return self if self.variation is None else self.with_variation(max(self.variation, weight))

    def searched(self, search: Search, start: Start, seeds: Sequence[int], progress: Progress) -> Reconstruction:
        """What `search` finds, by the strategy that a defense asks for, as it is to be reported."""
        way = self.strategy
        found = search(self, start, progress) if way is None else way(self, search, start, seeds, progress)
        return stretched(found, self) if self.stretch else found

    @property
    def like(self) -> Tensor:
        """A tensor on the update's device and in its precision."""
        return next(iter(self.observed.values()))

    @property
    def pixels(self) -> int:
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        return self.visible + sum(math.prod(shape) for shape in self.hidden.values())

    @property
    def visible(self) -> int:
        """Numbers of z in front of the hidden buffers."""
        if self.painter is not None:
            return self.painter.width
        return self.pixels + (math.prod(self._target_shape) if self.labels is None else 0)

    @property
    def _target_shape(self) -> tuple[int, ...]:
        """Of what is searched for in place of the labels: shares of classes, or the numbers themselves."""
        own = self.target_shape if self.target in (QUANTITIES, SEVERAL_CLASSES) else (*self.target_shape, self.classes)
        return (self.shape[0], *own)

    def targets_of(self, logits: Tensor) -> Tensor:
        """What the loss is given for searched targets (A, *target)."""
        if self.target == QUANTITIES:
            return logits
        return torch.sigmoid(logits) if self.target == SEVERAL_CLASSES else torch.softmax(logits, -1)

    def named(self, logits: Tensor) -> Tensor | None:
        """The labels that were found; None where targets are no single class."""
        return logits.argmax(-1) if self.target == ONE_CLASS else None

    @property
    def known_labels(self) -> Tensor | None:
        """The labels (T, N) that are no part of the search; None where targets are no single class."""
        return self.labels if self.target == ONE_CLASS else None

    def split(self, z: Tensor, trials: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(A, D) -> inputs (A, N, *sample) and logits (A, N, C) or None; rows are all trials in order by default."""
        if self.painter is not None:
            return self.painter(z[:, : self.visible], trials)
        inputs = z[:, : self.pixels].reshape(-1, *self.shape)
        if self.centre is not None and self.unit is not None:
            inputs = inputs * self.unit + self.centre
        if self.labels is not None:
            return inputs, None
        return inputs, self.label_unit * z[:, self.pixels : self.visible].reshape(-1, *self._target_shape)

    def in_units(self, inputs: Tensor) -> Tensor:
        """Inputs in standard deviations of the data, for problems that are searched in them."""
        assert self.centre is not None
        assert self.unit is not None
        return (inputs - self.centre) / self.unit

    def buffers_in(self, z: Tensor) -> dict[str, Tensor]:
        """The hidden buffers in z, which holds their differences from the public model's: name -> (A, *buffer)."""
        parts = torch.split(z[:, self.visible :], [math.prod(shape) for shape in self.hidden.values()], 1)
        moved = {name: self.hidden_unit * part for name, part in zip(self.hidden, parts, strict=True)}
        return {name: self.model.get_buffer(name) + moved[name].reshape(-1, *s) for name, s in self.hidden.items()}

    def boxed(self, z: Tensor) -> Tensor:
        """The inputs in z back into [0, 1]; label logits and buffers are free."""
        inputs = z[:, : self.pixels].reshape(-1, *self.shape)
        if self.centre is None or self.unit is None:
            inside = inputs.clamp(0, 1)
        else:
            inside = torch.clamp(inputs, -self.centre / self.unit, (1 - self.centre) / self.unit)
        return torch.cat((inside.flatten(1), z[:, self.pixels :]), 1)

    def evaluator(self, trials: Tensor) -> Evaluate:
        """Value and slope for rows that belong to these trials (A,); a trial may occur several times."""
        return side_by_side([self], torch.zeros_like(trials), trials)

    def values(self, trials: Tensor) -> Callable[[Tensor], Tensor]:
        """The value alone, for searches without slopes: no second derivative is taken."""
        measured = torch.no_grad()(_measure([self], torch.zeros_like(trials), trials))
        return lambda z: measured(z)[1]

    def size(self) -> Tensor:
        """How far an update of zeros is from what was observed (T,), as values are measured: what they are relative to.

        The squared norm for squared distances, the sum of magnitudes for l1, 1 for the cosine; for the entropy how far
        the shares are from equal ones.
        """
        observed = _weighed(self.observed, self.weights)
        nothing = {name: torch.zeros_like(g) for name, g in observed.items()}
        return self.distance_to(observed)(nothing).detach() / self.length_unit**2

    def distance_to(self, observed: Mapping[str, Tensor]) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """(gradients of a guess, by name) -> (A,), for rows that stand for these updates."""
        named, names = self.distance, list(observed)
        if self.compression is not None:
            known = {name: g != 0 for name, g in observed.items()} if self.match_nonzero else None
            return compressed_distance(self.compression, observed, named, known)
        form = named if isinstance(named, str) else None
        rows = rows_of(observed, names, form)
        sent = [row != 0 for row in rows] if self.match_nonzero else None
        if isinstance(named, str):
            return lambda mine: distance_between(rows_of(mine, names, form), rows, named, sent)
        own = named(rows, sent)
        return lambda mine: own(rows_of(mine, names))

    def simulated(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """What the clients of all trials would share with these samples: name -> (T, *parameter), without a graph."""
        trials, parts = torch.arange(len(inputs)), []
        for rows in torch.split(trials, 1) if runs_one_by_one(self.model) else [trials]:  # then one graph at a time
            shared = self.simulated_with_graph(inputs[rows], targets[rows], _of_rows(self.masks, rows))
            for transform in self.transforms:
                shared = transform(shared, _of_rows(self.observed, rows), rows)
            parts.append({name: tensor.detach() for name, tensor in shared.items()})
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def simulated_with_graph(self, inputs: Tensor, targets: Tensor, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What clients with these samples would share."""
        clients = self.clients
        if clients == 1 or (self.unrolled is None and not uses_batch_statistics(self.model)):
            return self._of_single_clients(inputs, targets, masks)
        own = {name: mask.repeat_interleave(clients, 0) for name, mask in masks.items()}
        apart = [t.reshape(len(t) * clients, -1, *t.shape[2:]) for t in (inputs, targets)]  # (A x m, N / m, ...)
        each = self._of_single_clients(apart[0], apart[1], own)
        return {n: t.reshape(-1, clients, *t.shape[1:]).mean(1) for n, t in each.items()}

    def _of_single_clients(self, inputs: Tensor, targets: Tensor, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.unrolled is None:
            return self.client_gradient(self.model, inputs, targets, None, masks)
        before = parameters_of(self.model)
        along: list[Mapping[str, Tensor]] = []

        def gradient_of(inputs: Tensor, targets: Tensor, weights: dict[str, Tensor], _: int) -> Mapping[str, Tensor]:
            return self.client_gradient(self.model, inputs, targets, weights, masks)

        numbers = sum(p.numel() for p in before.values()) * local_steps(inputs.shape[1], self.unrolled) * len(inputs)
        weights = trained(
            before,
            [Batch(inputs, targets)],
            self.unrolled,
            gradient_of,
            control=control_of(self.unrolled, before),
            softness=self.softness,
            on_step=along.append if self.mean_of_steps else None,
            low_memory=not self.mean_of_steps and numbers > (_LONG_ON_GPU if inputs.is_cuda else _LONG),
        )
        if self.mean_of_steps:
            return {n: sum((step[n] for step in along[1:]), along[0][n]) / len(along) for n in before}
        return {n: w - before[n] for n, w in weights.items()}


@dataclass(frozen=True)
class Likely(Matching):
    """One whose distance may be the likelihood of known noise: the search stops where that explains the rest."""


@dataclass(frozen=True)
class Generated(Matching):
    """One whose inputs come out of a generator: z are its weights or its latents."""

    source: Any = None  # the generator as the attack made it, behind whatever a defense has put around it


@dataclass(frozen=True)
class Latent(Generated):
    """One that searches a generator's latents, without a prior on pictures, and reads the defense off the update."""

    imitated: Callable[[str], Transform] | None = None  # a defense by name, as it is seen in the update -> its action


def generated(problem: Matching, source: Painter) -> Generated:
    """The problem with inputs that `source` makes."""
    return Generated(**{**vars(problem), "painter": source, "source": source})


def one_by_one(each: Sequence[Evaluate]) -> Evaluate:
    """One row after another, each by its own function: less memory, and a wide network fills the cores by itself."""

    def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
        found = [one(row[None]) for one, row in zip(each, z, strict=True)]
        return torch.cat([value for value, _ in found]), torch.cat([slope for _, slope in found])

    return evaluate


def side_by_side(members: Sequence[Matching], whose: Tensor, trials: Tensor) -> Evaluate:
    """Value and slope for rows (A,): row k is a guess of `members[whose[k]]` at trial `trials[k]`.

    Members may differ in distance and prior alone, so that one pass through the model serves them all.
    """
    first = members[0]
    if len(trials) > 1 and runs_one_by_one(first.model):
        return one_by_one([side_by_side(members, w[None], t[None]) for w, t in zip(whose, trials, strict=True)])
    measured = _measure(members, whose, trials)

    def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_()
        value, whole = measured(z)
        (slope,) = torch.autograd.grad(whole.sum(), z)
        return (whole if first.prior_counts else value).detach(), slope

    return evaluate


def _measure(members: Sequence[Matching], whose: Tensor, trials: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """What `side_by_side` evaluates, before slopes are taken."""
    first = members[0]
    weights = None if first.weights is None else _of_rows(first.weights, trials)
    labels = None if first.labels is None else first.labels[trials]
    observed = _weighed(_of_rows(first.observed, trials), weights)
    masks = _of_rows(first.masks, trials)
    groups = []  # the rows of each member among all
    for number, member in enumerate(members):
        rows = (whose == number).nonzero()[:, 0] if len(members) > 1 else torch.arange(len(whose), device=whose.device)
        if len(rows):
            groups.append(
                (member, rows, member.distance_to(_of_rows(observed, rows) if len(members) > 1 else observed))
            )
    back = torch.cat([rows for _, rows, _ in groups]).argsort()  # groups one after another -> the rows' order

    def measured(z: Tensor) -> tuple[Tensor, Tensor]:
        """Without and with the prior: (A,) each."""
        inputs, logits = first.split(z, trials)
        targets = labels if logits is None else first.targets_of(logits)
        assert targets is not None
        buffers = masks | first.buffers_in(z) if first.hidden else masks
        simulated = first.simulated_with_graph(inputs, targets, buffers)
        for transform in first.transforms:
            simulated = transform(simulated, observed, trials)
        shared = _weighed(simulated, weights)
        if len(groups) == 1:
            member, _, distance = groups[0]
            value, prior = distance(shared), member.prior(member, inputs, targets)
        else:
            value = torch.cat([distance(_of_rows(shared, rows)) for _, rows, distance in groups])[back]
            prior = torch.cat([m.prior(m, inputs[rows], targets[rows]) for m, rows, _ in groups])[back]
        value, whole = value / first.length_unit**2, (value + prior) / first.length_unit**2
        return value, whole if first.pull is None else whole + first.pull(z)

    return measured


def matching_of(
    observation: Observation,
    labels: Tensor | None,
    *,
    distance: str | Distance,
    prior: Prior = no_prior,
    unrolled: Client | None = None,
    kind: type[Matching] = Matching,
    **more: Any,
) -> Matching:
    """What the observation asks; with `unrolled` the weight difference itself is matched, else a gradient."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    if local.loss != CROSS_ENTROPY or local.label_smoothing or local.class_weights:
        more = {"client_gradient": partial(trial_gradients, loss_of=loss_of(local))} | more
    made = kind(
        observation=observation,
        model=working_model(observation.model, local.batchnorm),
        observed=dict(observation.update.tensors) if unrolled else observed_gradient(observation, signs_do=True),
        shape=(observation.fact(Fact.NUM_SAMPLES), *data.shape),
        classes=data.classes,
        target=data.target,
        target_shape=data.target_shape,
        labels=labels,
        distance=distance,
        prior=prior,
        unrolled=unrolled,
        **more,
    )
    if unrolled or observation.update.kind == "gradient" or not local.adaptive:
        return made
    return made.smoother(_SMOOTH_BY_DIRECTION if made.by_direction else _SMOOTH).replace(compression=Signs())


def units_of_data(observation: Observation) -> dict[str, Any]:
    """`centre` and `unit` of attacks that search in units of the data: its mean and standard deviation, (C, 1, 1)."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    like, flat = next(iter(observation.update.tensors.values())), [1] * (len(data.shape) - 1)
    values = {"centre": data.mean or (0.5,), "unit": data.std or (0.25,)}
    return {name: like.new_tensor(value).view(-1, *flat) for name, value in values.items()}


def inside(layers: Iterable[str], tensors: Iterable[str]) -> set[str]:
    """The tensors with these names, or in layers with these names."""
    named = list(layers)
    return {name for name in tensors if any(name == layer or name.startswith(f"{layer}.") for layer in named)}


def innermost(problem: Matching, change: Callable[[Matching], Matching]) -> Matching:
    """The problem with `change` made to the one inside all that defenses have put around it.

    What a defense puts around a problem, as its painter or as what is reported, holds that problem as `plain`.
    """
    around: Any = problem.painter
    plain = getattr(around, "plain", None)
    if plain is None:
        changed = change(problem)
    else:
        changed = problem.replace(painter=dataclasses.replace(around, plain=innermost(plain, change)))
    hooks: dict[str, Any] = {}
    for name in ("finish", "opening"):
        hook: Any = getattr(problem, name)
        if hasattr(hook, "plain"):
            hooks[name] = dataclasses.replace(hook, plain=innermost(hook.plain, change))
        elif plain is not None and getattr(hook, "__self__", None) is around:
            hooks[name] = getattr(changed.painter, hook.__name__)
    return changed.replace(**hooks)


def stretched(found: Reconstruction, problem: Matching) -> Reconstruction:
    """Each sample of what was found from 0 to 1; as it is where no scale is hidden.

    Train-mode BatchNorm takes brightness and contrast out of a single sample, so every stretched copy explains the
    update equally well.
    """
    if found.inputs is None or problem.shape[0] != 1 or not uses_batch_statistics(problem.model):
        return dataclasses.replace(found, film=None, film_steps=())
    several = found.answers
    answers = None if several is None else _full_range(several.flatten(1, 2)).view_as(several)
    return dataclasses.replace(found, inputs=_full_range(found.inputs), answers=answers, film=None, film_steps=())


def _full_range(inputs: Tensor) -> Tensor:
    over = tuple(range(2, inputs.dim()))
    low, high = inputs.amin(over, keepdim=True), inputs.amax(over, keepdim=True)
    return ((inputs - low) / (high - low).clamp_min(1e-12)).where(high > low, inputs)


def _weighed(tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
    return tensors if weights is None else {name: tensors[name] * w for name, w in weights.items()}


def _of_rows(tensors: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    return {name: tensor[rows] for name, tensor in tensors.items()}

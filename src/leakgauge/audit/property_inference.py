"""Property inference: does the batch behind an update have a property that the task is not about? (Melis et al. 2019)

The attacker takes public samples, makes batches with and without the property, computes their updates on the very model
that the victims were sent, and fits a random forest to them; then it reads the victims' updates. Passive: it follows
the protocol. Half of the victims have the property, those with odd seeds, so that guessing is right half of the time.

A batch has the property if `share` of its samples carry it or more, and lacks it if none does. Victims that have it
have it in just that share, the hardest case. The attacker's own batches cover the range from there to all in four
levels: 40, 60, 80 and 100 % by default, as published.

An update becomes features: the sizes of its weight gradients, pooled to a few thousand numbers. The largest entries are
pooled after the released code. It writes a dense layer's matrix inputs x outputs and takes the largest entry along the
last axis, so that one number per input is left; ours is outputs x inputs, and pooled along the first. Energies are
ours: the largest of many entries is mostly noise once noise is added, while a mean of squares averages it out.

Departures: one round and one model instead of thousands of rounds, and the server reads each client's update by itself
instead of a participant the sum of the others. The active variant, which adds a property's loss to what the attacker
itself sends, is left out.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import observe
from leakgauge.data import Dataset, load, public_batch
from leakgauge.engine.memory import fitting
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput, HiddenFact
from leakgauge.metrics.intervals import area_under_curve, bootstrap_mean, rate
from leakgauge.settings import Settings, setting
from leakgauge.setup.plan import configurations, parse_chain
from leakgauge.setup.properties import Pool, parse_property
from leakgauge.setup.setup import Setup, environment, load_setup, to_device
from leakgauge.types import SCHEMA, Defense, Fact, Interval, Partition, Rate, Scenario

NEEDS = (Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING, Fact.PUBLIC_DATA)
POOLING = ("best", "both", "inputs", "energy")
LEVELS = 4
SHUFFLES = 10
_LARGEST = 5000  # entries of a matrix that are kept as they are
_LEAST = 5  # samples in a leaf, and to split a node, as published
_OWN_SEEDS = 2**32  # the attacker's draws of a defense's noise are never a victim's
_SIDE_BY_SIDE = 64  # updates at a time, at most: more bring nothing and hold memory
_UNUSED = ("assume", "attacks", "batch_labels", "gate", "metrics", "partition", "variants")  # parts of a scenario
Features = dict[str, Tensor]  # way of pooling -> (rows, F)


@dataclass(frozen=True)
class PropertyInference(Settings):
    """What is asked, and what the attacker puts into the answer."""

    name: ClassVar[str] = "property"
    summary: ClassVar[str] = "decides whether the batch behind an update has a property"
    paper: ClassVar[str] = "Melis et al. 2019"

    property: str = setting("patch", "what to look for: class:K, bright, patch or patch:PIXELS")
    share: float = setting(0.4, "share of a batch's samples that carries it, where it is there", above=0, high=1)
    batches: int = setting(400, "batches that the attacker computes updates of, half of them without it", low=20)
    public: int = setting(512, "public samples that the attacker has", low=2)
    trees: int = setting(100, "trees of the forest", low=1)
    pooling: str = setting(
        "best", "features: largest entries (inputs: as published), energies, or what suits", choices=POOLING
    )


@dataclass(frozen=True)
class PropertyRow:
    """One attacker against one configuration, over all victims."""

    defense: str
    attacker: str  # "plain", or "adaptive": its own updates went through the same defense
    auc: Interval
    control: Interval  # mean AUC of the same attacker, taught with shuffled labels: if not about 0.5, distrust it
    accuracy: Rate  # the batch is said to have the property if its probability is above a half
    probabilities: tuple[float, ...]  # per victim
    features: str  # the way of pooling that the attacker kept
    seconds: float


@dataclass(frozen=True)
class PropertyReport:
    """All rows, and what is needed to repeat them."""

    scenario: Scenario
    inference: PropertyInference
    has: tuple[bool, ...]  # per victim: the truth
    carriers: int  # samples that carry the property in a victim's batch that has it
    stamped: bool  # the property was put onto samples, which by themselves do not have it
    pools: dict[str, dict[str, int]]  # whose samples: how many carry it, how many do not
    rows: tuple[PropertyRow, ...]
    environment: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "schema": SCHEMA,
            **dataclasses.asdict(self),
            "scenario": {k: v for k, v in self.scenario.as_dict().items() if k not in _UNUSED},
            "seeds": list(self.scenario.seeds),
            "chance": {"auc": 0.5, "accuracy": 0.5},
        }


def infer_property(
    scenario: Scenario,
    inference: PropertyInference,
    *,
    data_root: Path | None = None,
    device: str = "auto",
    on_progress: Callable[[str], None] = lambda _: None,
) -> PropertyReport:
    """Run the attack on every configuration of `scenario`: the bare update, and behind each defense."""
    if scenario.trials < 2:
        raise BadInput("trials", allowed="at least 2, one victim with and one without", got=1, do="use more")
    wanted = [(configuration, parse_chain(configuration)) for configuration in configurations(scenario)]
    alone = dataclasses.replace(scenario, trials=1, batch_size=1, batch_labels="any", partition=Partition())
    setup = load_setup(alone, data_root, device)  # the victims' batches are drawn here instead, with and without
    missing = [fact.value for fact in NEEDS if fact not in setup.threat_model.facts]
    if missing:
        hides = f"which the threat model {setup.threat_model.name!r} hides; choose another threat model"
        raise HiddenFact(f"property inference needs {', '.join(missing)}, {hides}")
    train, test = (load(scenario.data, split, data_root) for split in ("train", "test"))
    shown = public_batch(train, inference.public, scenario.seed)
    public = Dataset(train.spec, shown.inputs[0], shown.labels[0])
    prop = parse_property(inference.property, public)
    mine, theirs = Pool.of(public, prop), Pool.of(test, prop)
    k = _carriers_at(inference.share, scenario.batch_size)
    mine.check("public samples", 1, 1)
    theirs.check("victims' samples", k, scenario.batch_size)
    has = torch.tensor([seed % 2 == 1 for seed in scenario.seeds])
    game = _Game(setup, scenario, inference, mine, theirs, has, k)
    rows: list[PropertyRow] = []
    for configuration, defenses in wanted:
        on_progress(configuration)
        rows += game.play(configuration, defenses)
    sizes = {"public": mine, "victims": theirs}
    pools = {name: {"carry it": len(pool.carriers), "do not": len(pool.others)} for name, pool in sizes.items()}
    measured = environment(next(setup.model.parameters()).device) | {"model state": setup.state}
    return PropertyReport(scenario, inference, tuple(has.tolist()), k, prop.stamped, pools, tuple(rows), measured)


def _carriers_at(share: float, size: int) -> int:
    """How many samples of a batch that is; at least one."""
    return max(1, round(share * size))


def attackers_carriers(share: float, size: int, batches: int) -> list[int]:
    """Samples that carry the property in each of the attacker's batches: none in every second, else level by level."""
    levels = [share + (1 - share) * level / (LEVELS - 1) for level in range(LEVELS)]
    return [0 if b % 2 == 0 else _carriers_at(levels[b // 2 % LEVELS], size) for b in range(batches)]


@dataclass(frozen=True, eq=False)
class _Game:
    """One setup: the attacker's pool, the victims', and which of them have the property."""

    setup: Setup
    scenario: Scenario
    inference: PropertyInference
    mine: Pool
    theirs: Pool
    has: Tensor  # (T,) bool
    carriers: int

    def play(self, configuration: str, defenses: tuple[Defense, ...]) -> Iterator[PropertyRow]:
        """The attacker who knows nothing of the defense and, where there is one, the attacker who does."""
        began = time.perf_counter()
        model = prepared(self.setup.model, *defenses)
        carriers = [self.carriers if has else 0 for has in self.has.tolist()]
        seen = self._features(model, defenses, self.theirs, carriers, self.scenario.seeds, "property/victim")
        for known in ((), defenses) if defenses else ((),):
            if known or model is not self.setup.model:
                features, has = self._own_updates(model, known)
            else:  # the same for every defense that leaves the network as it is
                features, has = self.undefended
            answers, kept = self._answers(features, has, seen)
            shuffled = [self._answers(features, labels, seen)[0] for labels in self._shuffled(has)]
            control = [area_under_curve(other, self.has).value for other in shuffled]
            right = int(((answers > 0.5) == self.has).sum())
            yield PropertyRow(
                configuration,
                "adaptive" if known else "plain",
                area_under_curve(answers, self.has),
                bootstrap_mean(torch.tensor(control)),
                rate(right, len(answers), "probability of the property on the right side of a half"),
                tuple(answers.tolist()),
                kept,
                time.perf_counter() - began,
            )
            began = time.perf_counter()

    def _answers(self, features: Features, has: Tensor, seen: Features) -> tuple[Tensor, str]:
        """(T,) probabilities of an attacker who was taught with these features and labels, and its way of pooling.

        Of several kinds of features it keeps the one that does best on its own updates; the victims have no say.
        """
        fits = {kind: fit(rows, has, self.inference.trees, self.scenario.seed) for kind, rows in features.items()}
        best = max(fits, key=lambda kind: fits[kind].own_score)
        return fits[best].probability(seen[best]), best

    def _shuffled(self, has: Tensor) -> Iterator[Tensor]:
        """Labels in another order. One order proves little: by chance it can side with the property or against it."""
        for number in range(SHUFFLES):
            source = generator(self.scenario.seed, f"property/shuffled/{number}")
            yield has[torch.randperm(len(has), generator=source)]

    @cached_property
    def undefended(self) -> tuple[Features, Tensor]:
        """What an attacker learns from who knows of no defense."""
        return self._own_updates(self.setup.model, ())

    def _own_updates(self, model: nn.Module, known: Sequence[Defense]) -> tuple[Features, Tensor]:
        """(B, F) features of updates that the attacker computes itself, behind the defenses it knows of; (B,) has."""
        carriers = attackers_carriers(self.inference.share, self.scenario.batch_size, self.inference.batches)
        seeds = [_OWN_SEEDS + self.scenario.seed + b for b in range(len(carriers))]
        features = self._features(model, known, self.mine, carriers, seeds, "property/attacker")
        return features, torch.tensor(carriers) > 0

    def _features(
        self,
        model: nn.Module,
        defenses: Sequence[Defense],
        pool: Pool,
        carriers: Sequence[int],
        seeds: Sequence[int],
        role: str,
    ) -> Features:
        """Features of the updates of many batches, as many at a time as memory allows; the batches go no further."""
        step = chain(client_step(self.scenario.local), *defenses)
        parameter = next(model.parameters())
        weight = sum(p.numel() for p in model.parameters()) * parameter.element_size()
        unit = min(_SIDE_BY_SIDE, fitting(8 * weight, parameter.device))
        rows: dict[str, list[Tensor]] = {kind: [] for kind in candidates(self.inference.pooling)}
        for begin in range(0, len(seeds), unit):
            part = slice(begin, begin + unit)
            drawn = pool.draw(carriers[part], self.scenario.batch_size, seeds[part], role, repeat=pool is self.mine)
            update = step(model, to_device(drawn, parameter.device, parameter.dtype), seeds[part])
            seen = observe(model, update, self.setup.threat_model, {})  # the update passes, the batch does not
            for kind, parts in rows.items():
                parts.append(update_features(seen.update.tensors, kind).cpu())
        return {kind: torch.cat(parts) for kind, parts in rows.items()}


# --- from updates to features -----------------------------------------------------------------------


def candidates(pooling: str) -> tuple[str, ...]:
    """The ways of pooling that are tried: "best" stands for two, of which the attacker keeps the better one."""
    return ("both", "energy") if pooling == "best" else (pooling,)


def update_features(tensors: Mapping[str, Tensor], pooling: str) -> Tensor:
    """Update tensors name -> (T, *parameter) as rows (T, F) of length one.

    "both" and "inputs": biases and norms play no part, a convolution's kernel becomes its largest tap, and a matrix of
    more than 5000 entries the largest entry of each column ("inputs", as published) or of each column and each row
    ("both"): the rows are the layer's outputs, which in the last layer are the classes. A convolution between so many
    channels is left out as published, and pooled like any other matrix under "both".

    "energy": the root of the mean square of each tensor and, for matrices and kernels, of each column and row.
    """
    parts = [part for tensor in tensors.values() for part in _pooled(tensor, pooling)]
    if not parts:  # a model without any matrix: its vectors are all there is
        parts = [tensor.abs().flatten(1) for tensor in tensors.values()]
    rows = torch.cat(parts, dim=1).float()
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp_min(torch.finfo(rows.dtype).tiny)


def _pooled(tensor: Tensor, pooling: str) -> list[Tensor]:
    """(T, *parameter) -> pieces (T, f); none for what plays no part."""
    is_vector, is_kernel = tensor.dim() < 3, tensor.dim() > 3  # biases, and BatchNorm's scale and shift, are vectors
    if pooling == "energy":
        squares = tensor.square()
        whole = squares.flatten(1).mean(1, keepdim=True).sqrt()
        squares = squares.flatten(3).mean(3) if is_kernel else squares  # (T, outputs, inputs)
        return [whole] if is_vector else [whole, squares.mean(1).sqrt(), squares.mean(2).sqrt()]
    if is_vector:
        return []
    matrix = tensor.abs().flatten(3).amax(3) if is_kernel else tensor.abs()  # (T, outputs, inputs)
    if matrix[0].numel() <= _LARGEST:
        return [matrix.flatten(1)]
    if pooling == "both":
        return [matrix.amax(1), matrix.amax(2)]
    return [] if is_kernel else [matrix.amax(1)]


# --- from features to the probability of the property -----------------------------------------------


@dataclass(frozen=True)
class PropertyClassifier:
    """A random forest, and the scale of the features it was fitted to."""

    mean: NDArray[np.float32]  # (F,)
    spread: NDArray[np.float32]  # (F,)
    forest: Any
    own_score: float  # AUC on the attacker's own updates, each judged by the trees that were fitted without it

    def probability(self, features: Tensor) -> Tensor:
        """(T, F) -> (T,) that the batch behind each row has the property; a row never sees its neighbours."""
        found = self.forest.predict_proba((features.cpu().numpy() - self.mean) / self.spread)
        return torch.from_numpy(found[:, 1].copy())


def fit(features: Tensor, has: Tensor, trees: int, seed: int) -> PropertyClassifier:
    """On the attacker's own updates: features (B, F), and has (B,) whether the batch had the property."""
    table = features.cpu().numpy()
    mean, spread = table.mean(0), table.std(0)
    spread[spread == 0] = 1  # a number that never changes says nothing
    forest = RandomForestClassifier(
        n_estimators=trees, min_samples_leaf=_LEAST, min_samples_split=_LEAST, random_state=seed % 2**32, oob_score=True
    )
    labels = has.cpu().numpy().astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # with few trees some updates are in all of them: see below
        forest.fit((table - mean) / spread, labels)
    unseen = np.nan_to_num(forest.oob_decision_function_[:, 1], nan=0.5)
    return PropertyClassifier(mean, spread, forest, float(roc_auc_score(labels, unseen)))

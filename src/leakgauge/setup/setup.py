"""Everything a scenario names, loaded and checked before anything runs."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import leakgauge
from leakgauge import catalog
from leakgauge.client.chain import client_step, prepared
from leakgauge.client.observe import facts_about
from leakgauge.client.partial import freeze_others
from leakgauge.client.partition import shares
from leakgauge.client.summed import behind_one, seen_step
from leakgauge.data import Dataset, draw_others, draw_victims, load, public_batch
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.engine.randomness import derived_seed, generator
from leakgauge.engine.ways import choose_way, usual_way
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.federation.rounds import accuracy, train
from leakgauge.generators.loading import PUBLIC, generator_content, load_generator, named_by
from leakgauge.metrics import Metric
from leakgauge.metrics.scoring import DEFAULT
from leakgauge.models import load_model
from leakgauge.models.loading import TRIED, check_samples, logits_of
from leakgauge.reading.keys import content_of, key_of, tensors_of
from leakgauge.setup.plan import parse_chain, split_chain
from leakgauge.setup.victims import Victims
from leakgauge.types import (
    CROSS_ENTROPY,
    NLL,
    NLL_ON_LOGITS,
    ONE_CLASS,
    SEQUENCE,
    Batch,
    Client,
    DataSpec,
    Defense,
    Fact,
    Scenario,
    SharedUpdate,
    ThreatModel,
    threat_model,
)

PUBLIC_SAMPLES = 512
OTHERS, OTHERS_NUMBERS = 2000, 2**26  # samples to compare recoveries with, and what they may hold together
ACCURACY_SAMPLES = 1000  # enough for two digits of a trained model's accuracy
_ROUNDING = 1e-3  # of the logarithm of probabilities that add up to 1
_MODELS = 4  # trained ones that are kept for the next scenario
_KEPT: dict[tuple[object, ...], dict[str, Tensor]] = {}


@dataclass(frozen=True)
class Setup:
    """Everything a scenario names, loaded: built once, read by every cell."""

    scenario: Scenario
    data: DataSpec
    model: nn.Module
    victims: Victims
    public: Batch | None
    threat_model: ThreatModel
    metrics: tuple[Metric, ...]
    key: str  # of all that a cell depends on besides its attack and defense
    state: str  # of the model, in words: untrained, from a checkpoint, or after so many rounds
    engine: str = "side by side"  # how the trials run, and why if it is not the fast way
    others: Batch | None = None  # (1, K): private samples that nobody attacks, to compare recoveries with
    assumed: Mapping[Fact, Any] = field(default_factory=dict)  # facts that the attacker takes for true; see `ledger`

    @property
    def scored(self) -> bool:
        """Are there samples to hold a reconstruction against?"""
        return not self.victims.blind

    @property
    def batch(self) -> Batch:
        """(T, N): the victims' own samples; an error in a blind audit."""
        return self.victims.truth

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def facts(
        self, model: nn.Module, held: Batch | None, wanted: frozenset[Fact] = frozenset(Fact), seen: int | None = None
    ) -> dict[Fact, Any]:
        """All that could be revealed of clients who hold these samples; without any, what was said of the clients.

        `seen` rounds are looked at, as many as the scenario says unless given.
        """
        local = self.scenario.local if seen is None else dataclasses.replace(self.scenario.local, seen=seen)
        if held is not None:
            return facts_about(model, held, self.data, local, self.public, wanted) | dict(self.assumed)
        said: dict[Fact, Any] = {
            Fact.INPUT_SPEC: self.data,
            Fact.NUM_SAMPLES: self.victims.samples,
            Fact.LOCAL_TRAINING: local,
        }
        lent = {} if self.public is None else {Fact.PUBLIC_DATA: self.public}
        return said | lent | dict(self.assumed)

    def update(
        self,
        defenses: Sequence[Defense],
        model: nn.Module,
        batch: Batch | None = None,
        trials: Sequence[int] = (),
        informed: bool = False,
    ) -> SharedUpdate:
        """What is seen of the clients, or would be if they had another `batch`; of `trials` alone if given."""
        return self._update(defenses, model, batch, trials, 0, informed)

    def combined_update(
        self,
        defenses: Sequence[Defense],
        model: nn.Module,
        batch: Batch | None = None,
        trials: Sequence[int] = (),
        informed: bool = True,
    ) -> SharedUpdate:
        """What an attacker who knows the defenses makes of all rounds it sees; the last one that can says how."""
        rounds = range(self.scenario.local.seen)
        updates = [self._update([d.in_round(r) for d in defenses], model, batch, trials, r, informed) for r in rounds]
        combining = [d for d in defenses if type(d).combined is not Defense.combined]
        return combining[-1].combined(updates) if combining else updates[0]

    def _update(
        self,
        defenses: Sequence[Defense],
        model: nn.Module,
        batch: Batch | None,
        trials: Sequence[int],
        number: int,
        informed: bool,
    ) -> SharedUpdate:
        """In round `number`, from 0: only what the clients draw differs from round to round."""
        shared = self.victims.shared
        if shared is not None and self._is_the_victims(batch):
            return shared.take(trials) if trials else shared
        step = seen_step(client_step(self.scenario.local), *defenses, informed=informed)
        held = self.victims.with_fellows(defenses, self.behind(defenses) if batch is None else batch)
        seeds = [self.scenario.seeds[t] for t in trials] if trials else list(self.scenario.seeds)
        if number:
            seeds = [derived_seed(seed, f"round/{number}") for seed in seeds]
        with _enough_for_batchnorm("batchnorm=train", do="raise --batch-size"):
            return step(prepared(model, *defenses), held.take(trials) if trials else held, seeds)

    def _is_the_victims(self, batch: Batch | None) -> bool:
        """Not a decoy's samples? Those of all trials, as every caller hands them in."""
        return batch is None or torch.equal(batch.inputs, self.batch.inputs)

    def behind(self, defenses: Sequence[Defense]) -> Batch:
        """The attacked samples behind one seen update; see `Victims`."""
        return self.victims.behind(defenses)

    def decoys(self, defenses: Sequence[Defense] = ()) -> Batch:
        """Public samples with the victims' labels, none twice in a trial: what the controls are run on."""
        return decoys_for(self.behind(defenses), self.public, self.scenario.seeds)


def refuse_raw_logits(model: nn.Module, data: DataSpec, local: Client) -> None:
    """The loss `nll` is cross-entropy in two parts: a model without the first part has another loss."""
    if local.loss != NLL:
        return
    like = next(model.parameters())
    with torch.no_grad():
        total = torch.logsumexp(model.eval()(torch.zeros(1, *data.shape).to(like)).float(), -1)
    if float(total.abs().max()) > _ROUNDING:
        allowed = f"{NLL} where the model ends in log_softmax"
        do = f"say loss={NLL_ON_LOGITS}, or loss={CROSS_ENTROPY} if the loss has the softmax"
        raise BadInput("local: loss", allowed=allowed, got="a model that does not", do=do)


def _with_model_classes(scenario: Scenario, spec: DataSpec) -> DataSpec:
    """Own samples need not hold every class that an own model distinguishes."""
    if spec.target not in (ONE_CLASS, SEQUENCE) or not (
        catalog.is_own(scenario.model) and (catalog.is_own(scenario.data) or scenario.data.endswith(".npz"))
    ):
        return spec
    return dataclasses.replace(spec, classes=max(spec.classes, logits_of(scenario.model, spec, scenario.seed)))


def load_setup(
    scenario: Scenario, data_root: Path | None, device: str, trained: Mapping[str, Tensor] | None = None
) -> Setup:
    """Load what the scenario names; every mistake in it is found here, before anything runs.

    `trained` are the parameters of a model that went through the scenario's rounds already, in another process.
    """
    where, dtype = pick_device(device), dtype_of(scenario.precision)
    set_precision("float32")
    threat = threat_model(scenario.threat_model)
    victims = load(scenario.data, "test", data_root)
    data = _with_model_classes(scenario, victims.spec)
    model = load_model(scenario.model, data, scenario.seed, scenario.weights)
    check_samples(model, data, scenario.local, victims.take(range(min(len(victims), TRIED))))
    model = model.to(where)
    refuse_raw_logits(model, data, scenario.local)
    pool = shares(victims.labels, scenario.partition, scenario.seed)
    clients = max((behind_one(parse_chain(chain)) for chain in scenario.defenses), default=1)
    crowd = draw_victims(
        victims, scenario.trials, scenario.batch_size, scenario.seed, scenario.batch_labels, pool, clients
    )
    some = max(1, min(OTHERS, OTHERS_NUMBERS // torch.Size(victims.spec.shape).numel()))
    others = draw_others(
        victims, some, scenario.trials, scenario.batch_size, scenario.seed, scenario.batch_labels, pool
    )
    metrics = metrics_for(scenario.metrics, data)
    train_split = _train_split(scenario, data_root)
    public: Batch | None = None
    if train_split is not None:
        public = to_device(public_batch(train_split, PUBLIC_SAMPLES, scenario.seed), where, dtype)
    state = initial_state(scenario)
    if scenario.training.rounds and train_split is not None:
        if trained is not None:
            model.load_state_dict(trained)
        else:  # in float32: one model, whatever the attacks then run in
            model = _trained(model, train_split, scenario, data_root)
            state = _trained_state(model, victims, scenario)
    set_precision(scenario.precision)
    freeze_others(model, scenario.local.trained)  # behind the training, in which the whole model took part
    model, crowd = model.to(dtype), to_device(crowd, where, dtype)
    engine = choose_way(model, data) if catalog.is_own(scenario.model) else usual_way(model)
    depends = _unrelated_left_out(scenario)
    own = [*scenario.attacks, *(part for defense in scenario.defenses for part in split_chain(defense))]
    contents = [
        repr(model),
        *sorted({content_of(spec) for spec in own} - {""}),
        tensors_of(model.state_dict().values()),
    ]
    contents += _generators(scenario, data)
    contents += [tensors_of((b.inputs, b.labels)) for b in (crowd, public) if b is not None]
    key = key_of(scenario=depends, contents=contents, version=leakgauge.__version__, device=where.type)
    others = None if others is None else to_device(others, where, dtype)
    return Setup(
        scenario, data, model, Victims(scenario.batch_size, crowd), public, threat, metrics, key, state, engine, others
    )


def _unrelated_left_out(scenario: Scenario) -> dict[str, Any]:
    """What every cell depends on: not which others are run, nor how the result is judged."""
    bare = dataclasses.replace(scenario, attacks=(), defenses=(), assume="", variants="both", gate=None)
    return {k: v for k, v in bare.as_dict().items() if k not in ("suite", "ledger", "update", "blind")}


def decoys_for(batch: Batch, public: Batch | None, seeds: Sequence[int]) -> Batch:
    """For every private sample a public one of the same label, drawn by the trial's own seed."""
    if public is None:
        raise NotApplicable("a decoy is made of public samples, and this data has too few; add samples")
    pool = public.classes[0].cpu()
    rows = []
    for trial, seed in enumerate(seeds):
        order = torch.randperm(len(pool), generator=generator(seed, "decoy"))
        chosen: list[int] = []
        for label in batch.classes[trial].tolist():
            free = [i for i in order[pool[order] == label].tolist() if i not in chosen]
            if not free:
                raise NotApplicable(f"a decoy needs more public samples of label {label}; add some, or use other data")
            chosen.append(free[0])
        rows.append(chosen)
    index = torch.tensor(rows, device=public.inputs.device)
    return Batch(public.inputs[0][index].to(batch.inputs), public.labels[0][index].to(batch.labels))


def initial_state(scenario: Scenario) -> str:
    """Where the model's parameters come from, before any round of training."""
    if scenario.weights is not None:
        return f"weights from {scenario.weights}"
    return f"as {scenario.model} makes it" if catalog.is_own(scenario.model) else "untrained"


def pick_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:1`; refused if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        ok = device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < torch.cuda.device_count())
    except RuntimeError:
        ok = False
    if not ok:
        raise BadInput(
            "device", allowed="auto, cpu or a CUDA device of this machine", got=repr(name), do="use --device auto"
        )
    return device


def environment(device: torch.device) -> dict[str, str]:
    """Where a result was measured."""
    gpu = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return {
        "leakgauge": leakgauge.__version__,
        "commit": _commit() or "installed package",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": f"{device.type}{gpu}",
        "threads": str(torch.get_num_threads()),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _train_split(scenario: Scenario, data_root: Path | None) -> Dataset | None:
    """The public part of the data; None if there is none and the model needs no training."""
    try:
        return load(scenario.data, "train", data_root)
    except BadInput as error:
        if scenario.training.rounds == 0:
            return None  # own data too small to share any: attacks and floors that need public data say so
        raise BadInput(
            "training: rounds",
            allowed=f"0 where data {scenario.data!r} has no train split",
            got=f"{scenario.training.rounds} ({error})",
            do="add samples, or give a trained model with --weights",
        ) from error


def _trained(model: nn.Module, samples: Dataset, scenario: Scenario, data_root: Path | None) -> nn.Module:
    """Trained once for all scenarios of this process that name the same training, such as those of one table."""
    own = catalog.is_own(scenario.model) or scenario.weights is not None
    named = not own and scenario.data.replace("-", "").isalnum()  # own code and files may change meanwhile
    same = (
        scenario.model,
        scenario.data,
        data_root,
        scenario.training,
        scenario.seed,
        str(next(model.parameters()).device),
    )
    if named and same in _KEPT:
        _KEPT[same] = _KEPT.pop(same)  # the latest used goes last
        model.load_state_dict(_KEPT[same])
        return model.eval()
    with _enough_for_batchnorm("training", do="raise its batch_size or clients"):
        trained = train(model, samples, scenario.training, scenario.seed)
    if named:
        while len(_KEPT) >= _MODELS:
            _KEPT.pop(next(iter(_KEPT)))
        _KEPT[same] = {name: tensor.cpu().clone() for name, tensor in trained.state_dict().items()}
    return trained


def _trained_state(model: nn.Module, victims: Dataset, scenario: Scenario) -> str:
    """What the model went through and how well it does on the test split, of which it has seen nothing."""
    some = torch.randperm(len(victims), generator=generator(scenario.seed, "accuracy"))[:ACCURACY_SAMPLES]
    right = accuracy(model, victims, some)
    rounds = f"{scenario.training.rounds:,} round" + ("" if scenario.training.rounds == 1 else "s")
    start = "after" if scenario.weights is None else f"{initial_state(scenario)}, then"
    return f"{start} {rounds} of training, test accuracy {right:.2f} ({len(some):,} samples)"


def _generators(scenario: Scenario, data: DataSpec) -> list[str]:
    """Hashes of the generators that the attacks name, each loaded once so that one that does not fit is found here."""
    attacks = [catalog.build("attacks", spec) for spec in scenario.attacks if not catalog.is_own(spec)]
    names = {name for attack in attacks if (name := named_by(attack)) is not None} - {PUBLIC}
    for name in sorted(names):
        load_generator(name, data)
    return [content for name in sorted(names) if (content := generator_content(name))]


@contextmanager
def _enough_for_batchnorm(what: str, do: str) -> Iterator[None]:
    """BatchNorm in train mode needs more than one value to take statistics of; torch's words become ours."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, LeakgaugeError) or "more than 1 value per channel" not in str(error):
            raise
        raise BadInput(what, allowed="used with more than one value per channel", got="one", do=do) from error


def _commit() -> str | None:
    """The commit of this source tree; None if it is not one (another repository around us does not count)."""
    here = Path(__file__)
    try:
        for arguments in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "--short", "HEAD"]):
            git = subprocess.run(["git", *arguments], cwd=here.parent, capture_output=True, text=True, check=True)
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "."], cwd=here.parent, check=False).returncode
        return git.stdout.strip() + ("+changes" if changed else "")  # what ran is then not what the commit holds
    except (OSError, subprocess.CalledProcessError):
        return None


def metrics_for(names: Sequence[str], data: DataSpec) -> tuple[Metric, ...]:
    """The usual ones and those that were asked for."""
    return (*DEFAULT, *(m for name in names if (m := _metric(name, data)) not in DEFAULT))


def _metric(name: str, data: DataSpec) -> Metric:
    """A metric by name, tried once, so that missing weights are found before anything runs."""
    metric: Metric = catalog.get("metrics", name)
    blank = torch.zeros(1, *data.shape)
    metric(blank, blank, data)
    return metric


def to_device(batch: Batch, device: torch.device, dtype: torch.dtype) -> Batch:
    return Batch(batch.inputs.to(device, dtype), batch.labels.to(device))

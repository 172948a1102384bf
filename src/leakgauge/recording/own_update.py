"""An update of the user's own system: from a file, a recorded federation or a training loop to what an audit runs on.

With the private batch behind it everything is scored as usual, and before that the batch itself is put through the
claimed local step: if that does not give the update, the claims or the batch are wrong, and every score would be too.
Without the batch (`saved_observation`) there is only what an attacker sees.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import leakgauge
from leakgauge import catalog
from leakgauge.client.chain import prepared
from leakgauge.client.naming import by_own_names, shared_as
from leakgauge.client.observe import check_update, observe
from leakgauge.data import Dataset, load, public_batch
from leakgauge.data._arrays import own_spec, refuse_kind, refuse_labels
from leakgauge.data.loading import load_whole
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.engine.ways import choose_way, usual_way
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.models.loading import freeze_unused, logits_of, refuse_output
from leakgauge.reading.keys import content_of, key_of, tensors_of
from leakgauge.recording.belonging import belonging
from leakgauge.recording.marks import refuse_unmarked
from leakgauge.recording.recorded_clients import clients_of, filled_in, kept_by, lent_by, told_apart, update_of
from leakgauge.recording.saved_update import read_update
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import PUBLIC_SAMPLES, Setup, initial_state, metrics_for, pick_device, to_device
from leakgauge.types import UNDEFENDED, Batch, DataSpec, Fact, Observation, Scenario, SharedUpdate, threat_model

IN_PYTHON = "given-in-python"  # the name of a model or batch that no file holds


def holds_batch(scenario: Scenario) -> bool:
    """Is the private batch behind the update there? The user's own arrays are it, unless the scenario is blind.

    So are the samples that a recorder was asked to keep.
    """
    own = catalog.is_own(scenario.data) or scenario.data.endswith(".npz")
    return not scenario.blind and (own or _kept_its_samples(scenario))


def recorded_setup(scenario: Scenario, data_root: Path | None, device: str, *, checked: bool = True) -> Setup:
    """Load the model, the update and the batch behind it; every mistake is found here, before anything runs.

    Whether the batch belongs to the update is not asked where that was `checked` elsewhere: it takes replays.
    """
    refuse_what_a_file_fixes(scenario)
    if not holds_batch(scenario):
        raise BadInput(
            "data",
            allowed="FILE.py:FACTORY or FILE.npz with the batch behind the update, to score against",
            got=repr(scenario.data),
            do="give the batch, or --blind for what can be said without it",
        )
    if is_recording(scenario.update):
        return _setup_of_clients(scenario, data_root, device, checked)
    samples, public = load_whole(scenario.data)
    model, spec = _model_and_spec(scenario, samples.spec)
    update = _read(scenario, model)
    trials = update.trials
    if len(samples) % trials:
        raise BadInput(
            "data",
            allowed=f"as many samples for each of the {trials} clients in the update",
            got=f"{len(samples)} samples",
            do="return the clients' batches one after another",
        )
    size = len(samples) // trials
    batch = Batch(*samples.take(torch.arange(len(samples)).reshape(trials, size)))
    scenario = dataclasses.replace(scenario, trials=trials, batch_size=size)
    return _setup(scenario, model, update, batch, spec, public, device, checked)


def is_recording(update: str | Path | None) -> bool:
    """Is it a folder that a recorder wrote, and no file?"""
    return update is not None and Path(update).is_dir()


def setup_of(
    model: nn.Module, update: Mapping[str, Tensor], inputs: Tensor, labels: Tensor, scenario: Scenario, device: str
) -> Setup:
    """The same from what a training loop holds: one client's update and its batch (N, *shape), (N,)."""
    model = copy.deepcopy(model).eval()  # the loop goes on training its own
    spec = _spec_of(model, inputs, labels)
    freeze_unused(model, spec.shape)
    kind = "gradient" if scenario.local.kind == "fedsgd" else "weight_delta"
    if missing := [name for name, t in update.items() if not isinstance(t, Tensor)]:
        raise BadInput(
            "update",
            allowed="a tensor for each name",
            got=f"{type(update[missing[0]]).__name__} for {missing[0]!r}",
            do="leave out parameters without a gradient: if p.grad is not None",
        )
    chain = parse_chain(scenario.defenses[0] if scenario.defenses else UNDEFENDED)
    trained = prepared(model, *chain)
    named = by_own_names(trained, {n: t.detach()[None].clone() for n, t in update.items()})
    shared = shared_as(kind, trained, named)
    check_update(trained, shared, scenario.shared_layers)
    _refuse_zeros(shared)
    samples = Dataset(spec, inputs.detach().float().cpu(), labels.detach().long().cpu())
    batch = Batch(samples.inputs[None], samples.labels[None])
    scenario = dataclasses.replace(scenario, trials=1, batch_size=len(inputs))
    return _setup(scenario, model, shared, batch, spec, None, device)


def saved_observation(
    scenario: Scenario, update_file: Path, data_root: Path | None, device: str
) -> tuple[Observation, DataSpec]:
    """What an attacker sees of a saved update; `data` says what kind of samples it is and lends public ones."""
    where, dtype = pick_device(device), dtype_of(scenario.precision)
    set_precision(scenario.precision)
    public, spec = _public_half(scenario, data_root)
    model, spec = _model_and_spec(scenario, spec)
    declared = scenario.defenses[0] if scenario.defenses else UNDEFENDED
    chain = parse_chain(declared)
    model = prepared(model, *chain)
    if is_recording(update_file):
        read = update_of(clients_of(update_file, scenario), model)
    else:
        kind = "gradient" if scenario.local.kind == "fedsgd" else "weight_delta"
        read = read_update(update_file, kind, model, scenario.shared_layers)
    update = _moved_to(read, where, dtype)
    facts: dict[Fact, Any] = {
        Fact.INPUT_SPEC: spec,
        Fact.NUM_SAMPLES: scenario.batch_size,
        Fact.LOCAL_TRAINING: scenario.local,
    }
    if public is not None:
        facts[Fact.PUBLIC_DATA] = to_device(public_batch(public, PUBLIC_SAMPLES, scenario.seed), where, dtype)
    told = threat_model(scenario.threat_model)
    seen = observe(model.to(where, dtype), update, told, facts, scenario.shared_layers)
    refuse_unmarked(seen, chain, declared)
    return seen, spec


def _kept_its_samples(scenario: Scenario) -> bool:
    if scenario.update is None or not is_recording(scenario.update):
        return False
    return all(client.private is not None for client in clients_of(Path(scenario.update), scenario))


def _setup_of_clients(scenario: Scenario, data_root: Path | None, device: str, checked: bool) -> Setup:
    """Recorded clients side by side, with the samples that were kept, or those of `data` in whatever order."""
    folder = Path(str(scenario.update))
    scenario = filled_in(scenario, folder)
    clients = clients_of(folder, scenario)
    if kept := _kept_its_samples(scenario):
        lender, spec = _public_half(scenario, data_root)
        batches = kept_by(clients, spec)
        public = None if lender is None else lent_by(lender, batches, scenario.seed)
    else:
        samples, public = load_whole(scenario.data)
        spec, size = samples.spec, scenario.batch_size
        if len(samples) % size or len(samples) < size * len(clients):
            raise BadInput(
                "data",
                allowed=f"{size} samples for each of the {len(clients)} clients",
                got=f"{len(samples)} samples",
                do="return the clients' batches one after another",
            )
        batches = Batch(*samples.take(torch.arange(len(samples)).reshape(-1, size)))
    model, spec = _model_and_spec(scenario, spec)
    chain = parse_chain(scenario.defenses[0] if scenario.defenses else UNDEFENDED)
    update = update_of(clients, prepared(model, *chain))
    if not kept:
        batches = batches.take(told_apart(model, update, batches, scenario.local).tolist())
    scenario = dataclasses.replace(scenario, batch_size=batches.labels.shape[1])
    return _setup(scenario, model, update, batches, spec, public, device, checked)


def _setup(
    scenario: Scenario,
    model: nn.Module,
    update: SharedUpdate,
    batch: Batch,
    spec: DataSpec,
    public: Dataset | None,
    device: str,
    checked: bool = True,
) -> Setup:
    where, dtype = pick_device(device), dtype_of(scenario.precision)
    set_precision(scenario.precision)
    model = model.to(where, dtype).eval()
    update = _moved_to(update, where, dtype)
    batch = to_device(batch, where, dtype)
    known, others = None, None
    if public is not None:  # half for the attacker, half to compare recoveries with
        order = torch.randperm(len(public), generator=torch.Generator().manual_seed(scenario.seed))
        mine, rest = order[: -(-len(order) // 2)][:PUBLIC_SAMPLES], order[-(-len(order) // 2) :]
        known = to_device(Batch(*public.take(mine[None])), where, dtype)
        others = to_device(Batch(*public.take(rest[None])), where, dtype) if len(rest) else None
    own = catalog.is_own(scenario.model) or scenario.model == IN_PYTHON
    engine = choose_way(model, spec.shape, spec.classes) if own else usual_way(model)
    held = [tensors_of(t.values()) for t in (model.state_dict(), update.tensors)]
    held += [tensors_of((b.inputs, b.labels)) for b in (batch, known, others) if b is not None]
    content = [repr(model), *(content_of(s) for s in (*scenario.attacks, *scenario.defenses)), *held]
    said = {f: getattr(scenario, f) for f in ("seed", "threat_model", "shared_layers", "metrics", "precision")}
    said |= {"local": scenario.local.as_dict()}
    key = key_of(recorded=said, contents=content, version=leakgauge.__version__, device=where.type)
    setup = Setup(
        scenario,
        spec,
        model,
        batch,
        batch,
        known,
        threat_model(scenario.threat_model),
        metrics_for(scenario.metrics, spec),
        key,
        "as it was given" if scenario.model == IN_PYTHON else initial_state(scenario),
        engine,
        others,
        update,
    )
    return dataclasses.replace(setup, belonging=belonging(setup)) if checked else setup


def _public_half(scenario: Scenario, data_root: Path | None) -> tuple[Dataset | None, DataSpec]:
    """Public samples of this kind, or none where the user's own arrays are too few to lend any."""
    try:
        public = load(scenario.data, "train", data_root)
    except BadInput:
        if not (catalog.is_own(scenario.data) or scenario.data.endswith(".npz")):
            raise
        return None, load_whole(scenario.data)[0].spec
    return public, public.spec


def _model_and_spec(scenario: Scenario, spec: DataSpec) -> tuple[nn.Module, DataSpec]:
    """A batch need not hold every class: an own model says itself how many it tells apart."""
    if not catalog.is_own(scenario.model):
        return load_model(scenario.model, spec, scenario.seed, scenario.weights), spec
    classes = logits_of(scenario.model, spec, scenario.seed)
    if classes < spec.classes:
        raise BadInput(
            "labels in data",
            allowed=f"0 to {classes - 1}, as the model has {classes} outputs",
            got="larger ones",
            do="check that --model is the model this batch belongs to",
        )
    spec = dataclasses.replace(spec, classes=classes)
    return load_model(scenario.model, spec, scenario.seed, scenario.weights), spec


def _read(scenario: Scenario, model: nn.Module) -> SharedUpdate:
    assert scenario.update is not None
    chain = scenario.defenses[0] if scenario.defenses else UNDEFENDED
    kind = "gradient" if scenario.local.kind == "fedsgd" else "weight_delta"
    return read_update(Path(scenario.update), kind, prepared(model, *parse_chain(chain)), scenario.shared_layers)


def refuse_what_a_file_fixes(scenario: Scenario) -> None:
    """Settings of a simulated client have no meaning for an update that exists already."""
    refused = (
        ("training: rounds", scenario.training.rounds, 0, "give that model's parameters with --weights"),
        ("partition: kind", scenario.partition.kind, "none", "leave it out: the batch is what it is"),
        ("local: seen", scenario.local.seen, 1, "leave it out: one update was saved"),
        ("defenses", max(0, len(scenario.defenses) - 1), 0, "name the one chain that the update went through"),
    )
    for what, got, usual, do in refused:
        if got != usual:
            raise BadInput(what, allowed=f"{usual!r} with a saved update", got=repr(got), do=do)
    if threat_model(scenario.threat_model).may_change != "nothing":
        raise BadInput(
            "threat_model",
            allowed="one that changes nothing, for a saved update",
            got=repr(scenario.threat_model),
            do="use honest-but-curious; tampering servers are played against simulated clients",
        )


def _moved_to(update: SharedUpdate, where: torch.device, dtype: torch.dtype) -> SharedUpdate:
    tensors, buffers = ({n: t.to(where, dtype) for n, t in named.items()} for named in (update.tensors, update.buffers))
    return SharedUpdate(update.kind, tensors, buffers)


def _refuse_zeros(update: SharedUpdate) -> None:
    if not any(bool(t.any()) for t in update.tensors.values()):
        raise BadInput(
            "update",
            allowed="with entries other than zero",
            got="zeros only",
            do="take it before the weights are loaded back, and check that the client trained on something",
        )


def _spec_of(model: nn.Module, inputs: Any, labels: Any) -> DataSpec:
    """What the samples of a training loop are, refused where the audit cannot take their kind yet."""
    if not isinstance(inputs, Tensor) or not isinstance(labels, Tensor):
        got = type(labels if isinstance(inputs, Tensor) else inputs).__name__
        raise BadInput(
            "inputs and labels",
            allowed="one tensor each",
            got=got,
            do="put several inputs into one tensor that the model takes apart",
        )
    refuse_kind("your batch", tuple(inputs.shape[1:]), inputs.is_floating_point())
    refuse_labels("your batch", tuple(labels.shape), labels.is_floating_point(), len(inputs))
    with torch.no_grad():
        logits = model(inputs[:1].to(next(model.parameters())))
    refuse_output("of your model", logits, 1)
    return own_spec("your batch", tuple(inputs.shape[1:]), int(logits.shape[1]))

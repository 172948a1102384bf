"""An update of the user's own system: from a file, a recorded federation or a training loop to what an audit runs on.

With the private batch behind it everything is scored as usual, and before that the batch itself is put through the
claimed local step: if that does not give the update, the claims or the batch are wrong, and every score would be too.
Without the batch (`blind_setup`) there is only what an attacker sees, and nothing is scored.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import leakgauge
from leakgauge import catalog
from leakgauge.client.chain import prepared
from leakgauge.client.naming import by_own_names, shared_as
from leakgauge.client.observe import check_update
from leakgauge.data import Dataset, load, public_batch
from leakgauge.data.loading import load_whole, own_spec, refuse_kind, refuse_labels
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.engine.ways import choose_way, usual_way
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.models.loading import freeze_unused, logits_of, refuse_output
from leakgauge.reading.keys import content_of, key_of, tensors_of
from leakgauge.recording.belonging import belonging
from leakgauge.recording.marks import refuse_unmarked
from leakgauge.recording.recorded_clients import (
    clients_of,
    filled_in,
    kept_by,
    lent_by,
    names_of,
    readable,
    told_apart,
    update_of,
)
from leakgauge.recording.recorded_folder import Recorded
from leakgauge.recording.saved_update import read_update
from leakgauge.recording.triage import first_observation
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import PUBLIC_SAMPLES, Setup, initial_state, metrics_for, pick_device, to_device
from leakgauge.setup.victims import Victims
from leakgauge.types import UNDEFENDED, Batch, DataSpec, Defense, Scenario, SharedUpdate, threat_model

IN_PYTHON = "given-in-python"  # the name of a model or batch that no file holds


def holds_batch(scenario: Scenario, clients: Sequence[Recorded] | None = None) -> bool:
    """Is the private batch behind the update there? The user's own arrays are it, unless the scenario is blind.

    So are the samples that a recorder was asked to keep. `clients` are the recorded ones, where they were chosen.
    """
    own = catalog.is_own(scenario.data) or scenario.data.endswith(".npz")
    return not scenario.blind and (own or _kept_its_samples(scenario, clients))


def scored_setup(
    scenario: Scenario,
    data_root: Path | None,
    device: str,
    *,
    checked: bool = True,
    clients: Sequence[Recorded] | None = None,
) -> Setup:
    """Load the model, the update and the batch behind it; every mistake is found here, before anything runs.

    Whether the batch belongs to the update is not asked where that was `checked` elsewhere: it takes replays.
    Recorded `clients` are those that an audit takes by itself, unless given.
    """
    refuse_what_a_file_fixes(scenario)
    if not holds_batch(scenario, clients):
        raise BadInput(
            "data",
            allowed="FILE.py:FACTORY or FILE.npz with the batch behind the update, to score against",
            got=repr(scenario.data),
            do="give the batch, or --blind for what can be said without it",
        )
    set_precision(scenario.precision)
    if is_recording(scenario.update):
        return _setup_of_clients(scenario, data_root, device, checked, clients)
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
    return setup_from(
        scenario,
        model,
        Victims(size, batch, update),
        spec,
        _halved(public, scenario.seed),
        pick_device(device),
        checked,
    )


def blind_setup(
    scenario: Scenario, data_root: Path | None, device: str, *, clients: Sequence[Recorded] | None = None
) -> Setup:
    """The same without the batch: what an attacker sees. `data` says what kind of samples it is, and lends public ones.

    Refused is what cannot be without samples to compare with, and an update that its defense cannot have left so.
    """
    refuse_what_a_file_fixes(scenario)
    _refuse_what_needs_the_truth(scenario)
    set_precision(scenario.precision)
    chosen = clients
    if is_recording(scenario.update):
        chosen = clients or clients_of(Path(str(scenario.update)), scenario)
        scenario = filled_in(scenario, chosen)
    public, spec = _public_half(scenario, data_root)
    model, spec = _model_and_spec(scenario, spec)
    chain = _declared(scenario)
    names: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    if chosen is None:
        update = _read(scenario, model)
    else:
        trained = prepared(model, *chain)
        if clients is not None:
            chosen, unreadable = readable(chosen, trained)
        update, names = update_of(chosen, trained), names_of(chosen)
    names = names or tuple(map(str, range(update.trials)))
    victims = Victims(scenario.batch_size, shared=update, names=names, unreadable=unreadable)
    scenario = dataclasses.replace(scenario, trials=victims.trials)
    lent = None if public is None else public_batch(public, PUBLIC_SAMPLES, scenario.seed)
    setup = setup_from(scenario, model, victims, spec, (lent, None), pick_device(device), checked=False)
    refuse_unmarked(first_observation(setup, range(victims.trials)), chain, (*scenario.defenses, UNDEFENDED)[0])
    return setup


def is_recording(update: str | Path | None) -> bool:
    """Is it a folder that a recorder wrote, and no file?"""
    return update is not None and Path(update).is_dir()


def setup_of(
    model: nn.Module, update: Mapping[str, Tensor], inputs: Tensor, labels: Tensor, scenario: Scenario, device: str
) -> Setup:
    """The same from what a training loop holds: one client's update and its batch (N, *shape), (N,)."""
    set_precision(scenario.precision)
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
    trained = prepared(model, *_declared(scenario))
    named = by_own_names(trained, {n: t.detach()[None].clone() for n, t in update.items()})
    shared = shared_as(kind, trained, named)
    check_update(trained, shared, scenario.shared_layers)
    _refuse_zeros(shared)
    samples = Dataset(spec, inputs.detach().float().cpu(), labels.detach().long().cpu())
    batch = Batch(samples.inputs[None], samples.labels[None])
    scenario = dataclasses.replace(scenario, trials=1, batch_size=len(inputs))
    return setup_from(scenario, model, Victims(len(inputs), batch, shared), spec, (None, None), pick_device(device))


def _kept_its_samples(scenario: Scenario, clients: Sequence[Recorded] | None) -> bool:
    if scenario.update is None or not is_recording(scenario.update):
        return False
    chosen = clients_of(Path(scenario.update), scenario) if clients is None else clients
    return all(client.private is not None for client in chosen)


def _setup_of_clients(
    scenario: Scenario, data_root: Path | None, device: str, checked: bool, given: Sequence[Recorded] | None
) -> Setup:
    """Recorded clients side by side, with the samples that were kept, or those of `data` in whatever order.

    Of `given` clients those that cannot be read are left out and counted; else one of them is an error.
    """
    clients = given or clients_of(Path(str(scenario.update)), scenario)
    scenario = filled_in(scenario, clients)
    if kept := _kept_its_samples(scenario, clients):
        lender, spec = _public_half(scenario, data_root)
        batches = kept_by(clients, spec)
        public = None if lender is None else lent_by(lender, batches, scenario.seed)
    else:
        batches, public, spec = _given_batches(scenario, len(clients))
    model, spec = _model_and_spec(scenario, spec)
    trained = prepared(model, *_declared(scenario))
    chosen, unreadable = (clients, ()) if given is None else readable(clients, trained)
    update = update_of(chosen, trained)
    if kept:
        batches = batches.take([place for place, client in enumerate(clients) if client in chosen])
    else:
        batches = batches.take(told_apart(model, update, batches, scenario.local).tolist())
    scenario = dataclasses.replace(scenario, batch_size=batches.labels.shape[1], trials=len(chosen))
    victims = Victims(scenario.batch_size, batches, update, names_of(chosen), unreadable=unreadable)
    return setup_from(scenario, model, victims, spec, _halved(public, scenario.seed), pick_device(device), checked)


def _given_batches(scenario: Scenario, clients: int) -> tuple[Batch, Dataset | None, DataSpec]:
    """The clients' batches in `data`, in whatever order, and the public samples there."""
    samples, public = load_whole(scenario.data)
    size = scenario.batch_size
    if len(samples) % size or len(samples) < size * clients:
        raise BadInput(
            "data",
            allowed=f"{size} samples for each of the {clients} clients",
            got=f"{len(samples)} samples",
            do="return the clients' batches one after another",
        )
    return Batch(*samples.take(torch.arange(len(samples)).reshape(-1, size))), public, samples.spec


Lent = tuple[Batch | None, Batch | None]  # (1, K) each: for the attacker, and to compare recoveries with


def setup_from(
    scenario: Scenario,
    model: nn.Module,
    victims: Victims,
    spec: DataSpec,
    lent: Lent,
    where: torch.device,
    checked: bool = True,
) -> Setup:
    """A setup of what is at hand; the precision of this process is for the caller to set."""
    dtype = dtype_of(scenario.precision)
    model = model.to(where, dtype).eval()
    assert victims.shared is not None
    crowd = None if victims.crowd is None else to_device(victims.crowd, where, dtype)
    victims = dataclasses.replace(victims, crowd=crowd, shared=_moved_to(victims.shared, where, dtype))
    known, others = (None if batch is None else to_device(batch, where, dtype) for batch in lent)
    own = catalog.is_own(scenario.model) or scenario.model == IN_PYTHON
    engine = choose_way(model, spec) if own else usual_way(model)
    setup = Setup(
        scenario,
        spec,
        model,
        victims,
        known,
        threat_model(scenario.threat_model),
        metrics_for(scenario.metrics, spec),
        _key(scenario, model, victims, (known, others)),
        "as it was given" if scenario.model == IN_PYTHON else initial_state(scenario),
        engine,
        others,
    )
    if not checked:
        return setup
    return dataclasses.replace(setup, victims=dataclasses.replace(victims, belonging=belonging(setup)))


def _key(scenario: Scenario, model: nn.Module, victims: Victims, lent: Lent) -> str:
    """Of all that a cell depends on besides its attack and defense."""
    assert victims.shared is not None
    held = [tensors_of(t.values()) for t in (model.state_dict(), victims.shared.tensors)]
    held += [tensors_of((b.inputs, b.labels)) for b in (victims.crowd, *lent) if b is not None]
    content = [repr(model), *(content_of(s) for s in (*scenario.attacks, *scenario.defenses)), *held]
    said = {f: getattr(scenario, f) for f in ("seed", "threat_model", "shared_layers", "metrics", "precision")}
    said |= {"local": scenario.local.as_dict()}
    if victims.blind:
        said |= {"samples": victims.samples}
    where = next(model.parameters()).device.type
    return key_of(recorded=said, contents=content, version=leakgauge.__version__, device=where)


def _halved(public: Dataset | None, seed: int) -> Lent:
    """Half for the attacker, half to compare recoveries with."""
    if public is None:
        return None, None
    order = torch.randperm(len(public), generator=torch.Generator().manual_seed(seed))
    mine, rest = order[: -(-len(order) // 2)][:PUBLIC_SAMPLES], order[-(-len(order) // 2) :]
    return Batch(*public.take(mine[None])), Batch(*public.take(rest[None])) if len(rest) else None


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
    kind = "gradient" if scenario.local.kind == "fedsgd" else "weight_delta"
    return read_update(Path(scenario.update), kind, prepared(model, *_declared(scenario)), scenario.shared_layers)


def _declared(scenario: Scenario) -> tuple[Defense, ...]:
    """What the update is said to have gone through."""
    return parse_chain(scenario.defenses[0] if scenario.defenses else UNDEFENDED)


def _refuse_what_needs_the_truth(scenario: Scenario) -> None:
    for name, given in (("gate", scenario.gate), ("ledger", scenario.ledger), ("metrics", scenario.metrics)):
        if given:
            raise BadInput(
                name,
                allowed="used where the batch behind the update is known",
                got=repr(given),
                do="give it as --data FILE.py:FACTORY or FILE.npz, or leave this out",
            )
    if threat_model(scenario.threat_model).oracles:
        raise BadInput(
            "--threat-model",
            allowed="one without +labels and +batchnorm: a saved update comes without these facts",
            got=repr(scenario.threat_model),
            do="leave the oracle out",
        )


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

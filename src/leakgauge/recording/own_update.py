"""From a scenario to its setup: the one place where an audit gets its victims, whatever their source.

How the data goes, in every audit:

1. **Victims** (`setup.victims`): clients that are simulated here, or whose updates were saved, recorded or handed over;
   with the samples behind the updates, or blind.
2. **Client** (`client.chain`) and **update**: a simulated client trains on its samples, and the defenses act. A saved
   update is taken as it is.
3. **Observation** (`client.observe`): the update and the facts of the threat model pass, nothing else does.
4. **Attack** (`execution.table_cell`, `execution.batching`): as many trials side by side as fit into memory.
5. **Finding** (there as well): one for each attack, configuration and trial. It holds scores where the truth
   is known; without it, what the attack proved, which labels it read, and how well it explains the update.
6. **Verdict** (`verdict`) and **report** (`report`): the same for all. Without samples both say what is proven, and
   that nothing was scored.

A user's own update comes from a file, a recorded federation or a training loop. With the private batch behind it
everything is scored as usual, and before that the batch itself is put through the claimed local step: if that does not
give the update, the claims or the batch are wrong, and every score would be too. Without the batch there is only what
an attacker sees.
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
from leakgauge.client.partial import freeze_others
from leakgauge.data import Dataset, load, public_batch
from leakgauge.data.loading import load_whole, samples_of
from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.engine.ways import choose_way, usual_way
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.models.adapting import adapted
from leakgauge.models.loading import TRIED, check_forward, check_samples, freeze_unused, logits_of, outputs_on
from leakgauge.reading.keys import content_of, key_of, tensors_of
from leakgauge.recording import recorded_clients
from leakgauge.recording.belonging import belonging
from leakgauge.recording.recorded_folder import Recorded
from leakgauge.recording.sanity import refuse_unmarked
from leakgauge.recording.saved_update import read_update, refuse_zeros
from leakgauge.recording.triage import first_observation
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import (
    PUBLIC_SAMPLES,
    Setup,
    initial_state,
    load_setup,
    metrics_for,
    pick_device,
    refuse_raw_logits,
    to_device,
)
from leakgauge.setup.victims import Victims
from leakgauge.types import (
    ONE_CLASS,
    SEQUENCE,
    UNDEFENDED,
    Batch,
    DataSpec,
    Defense,
    Scenario,
    SharedUpdate,
    threat_model,
)

IN_PYTHON = "given-in-python"  # the name of a model or batch that no file holds
Lent = tuple[Batch | None, Batch | None]  # (1, K) each: for the attacker, and to compare recoveries with


def setup_for(
    scenario: Scenario,
    data_root: Path | None,
    device: str,
    *,
    trained: Mapping[str, Tensor] | None = None,
    checked: bool = True,
    clients: Sequence[Recorded] | None = None,
) -> Setup:
    """Load what the scenario names; every mistake in it is found here, before anything runs.

    For another process: `trained` are the parameters of a model that went through the scenario's rounds already. An
    update is held against its batch if `checked`; that takes replays. `clients` are recorded ones that were chosen
    already.
    """
    if scenario.update is None:
        return load_setup(scenario, data_root, device, trained)
    if holds_batch(scenario, clients):
        return scored_setup(scenario, data_root, device, checked=checked, clients=clients)
    return blind_setup(scenario, data_root, device, clients=clients)


def is_recording(update: str | Path | None) -> bool:
    """Is it a folder that a recorder wrote, and no file?"""
    return update is not None and Path(update).is_dir()


def holds_batch(scenario: Scenario, clients: Sequence[Recorded] | None = None) -> bool:
    """Is the private batch behind the update there? The user's own arrays are it, unless the scenario is blind.

    So are the samples that a recorder was asked to keep. `clients` are the recorded ones, where they were chosen.
    """
    if scenario.blind:
        return False
    return catalog.is_own(scenario.data) or scenario.data.endswith(".npz") or _kept_its_samples(scenario, clients)


def _kept_its_samples(scenario: Scenario, clients: Sequence[Recorded] | None) -> bool:
    return is_recording(scenario.update) and all(c.private is not None for c in _chosen(scenario, clients))


def _chosen(scenario: Scenario, given: Sequence[Recorded] | None) -> Sequence[Recorded]:
    return given or recorded_clients.clients_of(Path(str(scenario.update)), scenario)


def scored_setup(
    scenario: Scenario,
    data_root: Path | None,
    device: str,
    *,
    checked: bool = True,
    clients: Sequence[Recorded] | None = None,
) -> Setup:
    """Load the model, the update and the batch behind it. For `checked` and `clients` see `setup_for`."""
    refuse_what_a_file_fixes(scenario)
    if not holds_batch(scenario, clients):
        allowed = "FILE.py:FACTORY or FILE.npz with the batch behind the update, to score against"
        do = "give the batch, or --blind for what can be said without it"
        raise BadInput("data", allowed=allowed, got=repr(scenario.data), do=do)
    set_precision(scenario.precision)
    if is_recording(scenario.update):
        scenario, model, victims, public, spec = _scored_clients(scenario, data_root, clients)
    else:
        samples, public = load_whole(scenario.data)
        model, spec = _model_and_spec(scenario, samples.spec)
        check_samples(model, spec, scenario.local, samples.take(range(min(len(samples), TRIED))))
        update = _read(scenario, model)
        allowed = f"as many samples for each of the {update.trials} clients in the update"
        batches = _in_batches(samples, update.trials, len(samples) % update.trials == 0, allowed)
        victims = Victims(batches.labels.shape[1], batches, update)
    scenario = dataclasses.replace(scenario, trials=victims.trials, batch_size=victims.samples)
    return setup_from(scenario, model, victims, spec, _halved(public, scenario.seed), pick_device(device), checked)


def _scored_clients(
    scenario: Scenario, data_root: Path | None, given: Sequence[Recorded] | None
) -> tuple[Scenario, nn.Module, Victims, Dataset | None, DataSpec]:
    """Recorded clients side by side, with the samples that were kept, or those of `data` in whatever order."""
    clients = _chosen(scenario, given)
    scenario = recorded_clients.filled_in(scenario, clients)
    if kept := _kept_its_samples(scenario, clients):
        public, spec = _public_samples(scenario, data_root)
        batches = recorded_clients.kept_by(clients, spec)
        public = None if public is None else recorded_clients.lent_by(public, batches, scenario.seed)
    else:
        samples, public = load_whole(scenario.data)
        samples = samples.of_clients_with(scenario.batch_size)
        size, count, spec = scenario.batch_size, len(clients), samples.spec
        fits = len(samples) % size == 0 and len(samples) >= size * count
        allowed = f"{size} samples for each of the {count} clients"
        batches = _in_batches(samples, len(samples) // size, fits, allowed)
    model, spec = _model_and_spec(scenario, spec)
    readable, victims = _victims_of(clients, given is None, prepared(model, *_declared(scenario)), scenario.batch_size)
    if kept:
        rows = [place for place, client in enumerate(clients) if client in readable]
    else:
        assert victims.shared is not None
        if catalog.is_own(scenario.model):
            choose_way(model, spec)  # its updates are computed from here on
        rows = recorded_clients.batch_of_each(model, victims.shared, batches, scenario.local).tolist()
    batches = batches.take(rows)
    victims = dataclasses.replace(victims, samples=batches.labels.shape[1], crowd=batches)
    return scenario, model, victims, public, spec


def _victims_of(
    clients: Sequence[Recorded], all_needed: bool, model: nn.Module, samples: int
) -> tuple[Sequence[Recorded], Victims]:
    """Those that can be read, and what they shared. One that cannot be is an error if all are needed."""
    readable, unreadable = (clients, ()) if all_needed else recorded_clients.readable(clients, model)
    shared, names = recorded_clients.update_of(readable, model), recorded_clients.names_of(readable)
    return readable, Victims(samples, shared=shared, names=names, unreadable=unreadable)


def _in_batches(samples: Dataset, count: int, fits: bool, allowed: str) -> Batch:
    """(count, N) one after another."""
    if not fits:
        do = "return the clients' batches one after another"
        raise BadInput("data", allowed=allowed, got=f"{len(samples)} samples", do=do)
    return Batch(*samples.take(torch.arange(len(samples)).reshape(count, -1)))


def blind_setup(
    scenario: Scenario, data_root: Path | None, device: str, *, clients: Sequence[Recorded] | None = None
) -> Setup:
    """The same without the batch: what an attacker sees. `data` says what kind of samples it is, and lends public ones.

    Refused is what cannot be without samples to compare with, and an update that its defense cannot have left so.
    """
    refuse_what_a_file_fixes(scenario)
    _refuse_what_needs_the_truth(scenario)
    set_precision(scenario.precision)
    chosen: Sequence[Recorded] = ()
    if is_recording(scenario.update):
        chosen = _chosen(scenario, clients)
        scenario = recorded_clients.filled_in(scenario, chosen)
    public, spec = _public_samples(scenario, data_root)
    model, spec = _model_and_spec(scenario, spec)
    chain = _declared(scenario)
    if chosen:
        _, victims = _victims_of(chosen, clients is None, prepared(model, *chain), scenario.batch_size)
    else:
        update = _read(scenario, model)
        victims = Victims(scenario.batch_size, shared=update, names=tuple(map(str, range(update.trials))))
    scenario = dataclasses.replace(scenario, trials=victims.trials)
    lent = None if public is None else public_batch(public, PUBLIC_SAMPLES, scenario.seed)
    setup = setup_from(scenario, model, victims, spec, (lent, None), pick_device(device), checked=False)
    refuse_unmarked(first_observation(setup, range(victims.trials)), chain, (*scenario.defenses, UNDEFENDED)[0])
    return setup


def setup_of(
    model: nn.Module, update: Mapping[str, Tensor], inputs: Any, labels: Any, scenario: Scenario, device: str
) -> Setup:
    """The same from what a training loop holds: one client's update and its batch, N rows in every array.

    Several inputs are a dictionary by the names of the model's arguments.
    """
    set_precision(scenario.precision)
    samples = samples_of("your batch", inputs, labels)
    model, spec = _adapted_to(copy.deepcopy(model).cpu().eval(), samples.spec)  # the loop trains its own
    check_samples(model, spec, scenario.local, samples.take(range(min(len(samples), TRIED))))
    freeze_unused(model, spec.shape)
    freeze_others(model, scenario.local.trained)
    for name, tensor in update.items():
        if not isinstance(tensor, Tensor):
            got = f"{type(tensor).__name__} for {name!r}"
            do = "leave out parameters without a gradient: if p.grad is not None"
            raise BadInput("update", allowed="a tensor for each name", got=got, do=do)
    trained = prepared(model, *_declared(scenario))
    named = by_own_names(trained, {n: t.detach()[None].clone() for n, t in update.items()})
    shared = shared_as(_kind(scenario), trained, named)
    check_update(trained, shared, scenario.shared_layers)
    do = "take it before the weights are loaded back, and check that the client trained on something"
    refuse_zeros(shared, "update", do)
    batch = Batch(*samples.take(torch.arange(len(samples))[None]))
    scenario = dataclasses.replace(scenario, trials=1, batch_size=len(samples))
    return setup_from(scenario, model, Victims(len(samples), batch, shared), spec, (None, None), pick_device(device))


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
    crowd, known, others = (None if b is None else to_device(b, where, dtype) for b in (victims.crowd, *lent))
    tensors, buffers = (
        {n: t.to(where, dtype) for n, t in named.items()} for named in (victims.shared.tensors, victims.shared.buffers)
    )
    victims = dataclasses.replace(victims, crowd=crowd, shared=SharedUpdate(victims.shared.kind, tensors, buffers))
    own = catalog.is_own(scenario.model) or scenario.model == IN_PYTHON
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
        choose_way(model, spec) if own else usual_way(model),
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
    given = {f: getattr(scenario, f) for f in ("seed", "threat_model", "shared_layers", "metrics", "precision")}
    given |= {"local": scenario.local.as_dict()} | ({"samples": victims.samples} if victims.blind else {})
    where = next(model.parameters()).device.type
    return key_of(recorded=given, contents=content, version=leakgauge.__version__, device=where)


def _halved(public: Dataset | None, seed: int) -> Lent:
    """Half for the attacker, half to compare recoveries with."""
    if public is None:
        return None, None
    order = torch.randperm(len(public), generator=torch.Generator().manual_seed(seed))
    half = -(-len(order) // 2)
    mine, rest = order[:half][:PUBLIC_SAMPLES], order[half:]
    return Batch(*public.take(mine[None])), Batch(*public.take(rest[None])) if len(rest) else None


def _public_samples(scenario: Scenario, data_root: Path | None) -> tuple[Dataset | None, DataSpec]:
    """Public samples of this kind, or none where the user's own arrays are too few to lend any."""
    try:
        public = load(scenario.data, "train", data_root)
    except BadInput:
        if not (catalog.is_own(scenario.data) or scenario.data.endswith(".npz")):
            raise
        return None, load_whole(scenario.data)[0].spec
    return public, public.spec


def _model_and_spec(scenario: Scenario, spec: DataSpec) -> tuple[nn.Module, DataSpec]:
    """A batch need not hold every class: an own model has one output for each."""
    if catalog.is_own(scenario.model) and spec.target in (ONE_CLASS, SEQUENCE):
        classes = logits_of(scenario.model, spec, scenario.seed)
        if classes < spec.classes:
            allowed = f"0 to {classes - 1}, as the model has {classes} outputs"
            do = "check that --model is the model this batch belongs to"
            raise BadInput("labels in data", allowed=allowed, got="larger ones", do=do)
        spec = dataclasses.replace(spec, classes=classes)
    model = load_model(scenario.model, spec, scenario.seed, scenario.weights)
    refuse_raw_logits(model, spec, scenario.local)
    return freeze_others(model, scenario.local.trained), spec


def _read(scenario: Scenario, model: nn.Module) -> SharedUpdate:
    model = prepared(model, *_declared(scenario))
    return read_update(Path(str(scenario.update)), _kind(scenario), model, scenario.shared_layers)


def _kind(scenario: Scenario) -> str:
    return "gradient" if scenario.local.kind == "fedsgd" else "weight_delta"


def _declared(scenario: Scenario) -> tuple[Defense, ...]:
    """The defenses that the update went through, by the scenario."""
    return parse_chain(scenario.defenses[0] if scenario.defenses else UNDEFENDED)


def _refuse_what_needs_the_truth(scenario: Scenario) -> None:
    for name in ("gate", "ledger", "metrics"):
        if value := getattr(scenario, name):
            do = "give it as --data FILE.py:FACTORY or FILE.npz, or leave this out"
            raise BadInput(name, allowed="used where the batch behind the update is known", got=repr(value), do=do)
    model = threat_model(scenario.threat_model)
    if model.oracles:
        allowed = "one without +labels and +batchnorm: a saved update comes without these facts"
        raise BadInput("--threat-model", allowed=allowed, got=repr(model), do="leave the oracle out")


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
    model = threat_model(scenario.threat_model)
    if model.may_change != "nothing":
        allowed = "one that changes nothing, for a saved update"
        do = "use honest-but-curious; tampering servers are run against simulated clients"
        raise BadInput("threat_model", allowed=allowed, got=repr(model), do=do)


def _adapted_to(model: nn.Module, spec: DataSpec) -> tuple[nn.Module, DataSpec]:
    """The model, which takes samples as attacks search them; a batch need not hold every class of the model."""
    model = adapted(model, spec)
    classes = outputs_on(model, spec)
    if spec.target in (ONE_CLASS, SEQUENCE) and classes < spec.classes:
        allowed = f"0 to {classes - 1}, as the model has {classes} outputs"
        raise BadInput("labels", allowed=allowed, got="larger ones", do="check that the model is this batch's")
    if spec.target in (ONE_CLASS, SEQUENCE):
        spec = dataclasses.replace(spec, classes=classes)
    check_forward("your model", model, spec)
    return model, spec

"""The clients of a recorded federation as the trials of one audit.

An `update` may be the folder that a recorder wrote. The trials are then clients who had the same weights and did the
same: of the round that is asked for, or the earliest; where they differ, the largest group that did the same. What was
recorded of them (weights, local training, samples) holds unless the scenario says otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from leakgauge.client.chain import client_step
from leakgauge.data import Dataset
from leakgauge.errors import BadInput
from leakgauge.recording.recorded_folder import Recorded, private_of, read_folder, side_by_side, tensors_of, weights_of
from leakgauge.types import Batch, Client, DataSpec, Scenario, SharedUpdate

_SIMULATED = 1  # the batch size of a scenario that gives none
_LENT = 2512  # public samples that are kept: for the attacker, and to compare recoveries with
_SAME = 1e-3  # root mean square below which a public sample is a client's own


def clients_of(folder: Path, scenario: Scenario) -> tuple[Recorded, ...]:
    """Those that one audit takes."""
    entries = read_folder(folder)
    number = min(entry.origin.round for entry in entries) if scenario.round is None else scenario.round
    groups = side_by_side(of_round(entries, number))
    asked = [g for g in groups if g[0].origin.samples == scenario.batch_size != _SIMULATED]
    return max(asked or groups, key=len)  # the first of those that are equally many


class NothingReadable(BadInput):
    """None of the clients' updates can be read; `unreadable` gives the reason for each."""

    unreadable: tuple[tuple[str, str], ...] = ()


def groups_of(entries: Sequence[Recorded]) -> list[tuple[str, tuple[Recorded, ...]]]:
    """Clients of one round who had the same weights and did the same, by a name for them: `round-00003`."""
    found: list[tuple[str, tuple[Recorded, ...]]] = []
    for number in sorted({entry.origin.round for entry in entries}):
        groups = side_by_side(of_round(entries, number))
        for place, group in enumerate(groups, 1):
            found.append((f"round-{number:05d}" + (f"-{place}" if len(groups) > 1 else ""), group))
    return found


def readable(clients: Sequence[Recorded], model: nn.Module) -> tuple[tuple[Recorded, ...], tuple[tuple[str, str], ...]]:
    """Those whose update is one of this model, and the others with the reason."""
    kept: list[Recorded] = []
    unreadable: list[tuple[str, str]] = []
    for client in clients:
        try:
            tensors_of(client, model)
            kept.append(client)
        except BadInput as error:
            unreadable.append((client.name, str(error)))
    if kept:
        return tuple(kept), tuple(unreadable)
    refused = NothingReadable("recorded updates", allowed="readable", got=unreadable[0][1], do="record them again")
    refused.unreadable = tuple(unreadable)
    raise refused


def filled_in(scenario: Scenario, clients: Sequence[Recorded]) -> Scenario:
    """The scenario with what was recorded of these; filling it in twice changes nothing."""
    first = clients[0]
    samples = first.origin.samples if scenario.batch_size == _SIMULATED else scenario.batch_size
    if samples is None:
        do = "give their number with --batch-size"
        raise BadInput(f"{first.name}: samples", allowed="known", got="none recorded", do=do)
    return dataclasses.replace(
        scenario,
        round=first.origin.round,
        weights=scenario.weights or (None if first.weights is None else str(weights_of(first))),
        local=_local_of(first, scenario.local),
        batch_size=samples,
        trials=len(clients),
    )


def _local_of(client: Recorded, given: Client) -> Client:
    """The local training as it was recorded, unless another one is given."""
    if given == Client():
        return client.local()
    wanted = "fedsgd" if client.kind == "gradient" else "fedavg"
    if given.kind != wanted:
        allowed = f"{wanted}: {client.name} is a {client.kind}"
        raise BadInput("--local kind", allowed=allowed, got=given.kind, do="change it")
    return given


def names_of(clients: Sequence[Recorded]) -> tuple[str, ...]:
    """What the trials are called: by the recorder, or by their files where it knows no client."""
    return tuple(client.origin.client or client.name for client in clients)


def of_round(entries: Sequence[Recorded], number: int) -> list[Recorded]:
    """Those of one round, which must be among them."""
    chosen = [entry for entry in entries if entry.origin.round == number]
    if not chosen:
        rounds = ", ".join(str(r) for r in sorted({entry.origin.round for entry in entries}))
        raise BadInput("--round", allowed=f"one of those recorded: {rounds}", got=number, do="choose one of these")
    return chosen


def left_aside(scenario: Scenario, folder: Path) -> str | None:
    """What else the folder holds, in one line; None if all of it is audited."""
    every, taken = read_folder(folder), clients_of(folder, scenario)
    if len(taken) == len(every):
        return None
    first = taken[0].origin
    line = f"{len(taken)} of {len(every)} recorded updates are audited: those of round {first.round}"
    if len(of_round(every, first.round)) > len(taken):
        samples = "" if first.samples is None else f", {first.samples} samples each"
        line += f" that are alike{samples} (the others: another --batch-size)"
    rounds = sorted({entry.origin.round for entry in every})
    return line if len(rounds) == 1 else f"{line}; rounds {', '.join(map(str, rounds))} are there (--round)"


def update_of(clients: Sequence[Recorded], model: nn.Module) -> SharedUpdate:
    """What they shared, side by side; each is held against the model."""
    read = [tensors_of(client, model) for client in clients]
    buffers = set.intersection(*(set(update.buffers) for update in read))
    return SharedUpdate(
        read[0].kind,
        {name: torch.cat([update.tensors[name] for update in read]) for name in read[0].tensors},
        {name: torch.cat([update.buffers[name] for update in read]) for name in sorted(buffers)},
    )


def kept_by(clients: Sequence[Recorded], spec: DataSpec) -> Batch:
    """The samples behind the updates, which the recorder kept, held against the data set that is given for them."""
    kept = private_of(clients)
    assert kept is not None
    shape, classes = tuple(kept.inputs.shape[2:]), int(kept.labels.max()) + 1
    if shape != spec.shape or classes > spec.classes:
        allowed = f"of the shape of the recorded samples, {shape}, with their {classes} classes"
        got = f"{spec.name}: {spec.shape}, {spec.classes} classes"
        raise BadInput("data", allowed=allowed, got=got, do="name the data set that the clients' samples are of")
    return kept


def lent_by(public: Dataset, private: Batch, seed: int) -> Dataset | None:
    """Some of the public samples, without any that a client holds: an attacker who has those needs no update."""
    order = torch.randperm(len(public), generator=torch.Generator().manual_seed(seed))[:_LENT]
    inputs, labels = public.take(order)
    own = private.inputs.flatten(0, 1).flatten(1).float()
    far = torch.cdist(inputs.flatten(1), own, compute_mode="donot_use_mm_for_euclid_dist").amin(1)
    strange = far > _SAME * own.shape[1] ** 0.5
    if not bool(strange.any()):
        return None
    return dataclasses.replace(public, inputs=inputs[strange], labels=labels[strange])


def batch_of_each(model: nn.Module, update: SharedUpdate, batches: Batch, local: Client) -> Tensor:
    """Which of the (K, N) batches is behind each of the T updates: the one that gives the update most like it.

    A server does not know which client is which, so neither does what it recorded. This is for the score alone.
    """
    step, alike = client_step(local), []
    for k in range(batches.trials):  # one by one: of a large network the updates of all clients need not fit
        made = step(model, batches.take([k]), (0,)).tensors
        names = [n for n, t in made.items() if n in update.tensors and update.tensors[n].shape[1:] == t.shape[1:]]
        mine, theirs = (torch.cat([of[n].double().flatten(1) for n in names], 1) for of in (made, update.tensors))
        alike.append(torch.nn.functional.cosine_similarity(theirs, mine, dim=1))
    return torch.as_tensor(linear_sum_assignment(torch.stack(alike, 1).numpy(), maximize=True)[1])

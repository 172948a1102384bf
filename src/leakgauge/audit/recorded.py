"""Attack recorded updates: triage first, then each attack on all clients that can be attacked side by side.

There is no truth to score against unless the recorder kept the private samples. Nothing is left out of the result: an
update that cannot be read and an attack that does not apply stand in it with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.client.observe import observe
from leakgauge.data import Dataset, public_batch
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.batching import reconstruct
from leakgauge.metrics.scoring import Scores, score
from leakgauge.models import load_model
from leakgauge.recording.recorded_clients import local_of
from leakgauge.recording.recorded_folder import Recorded, private_of, tensors_of, weights_of
from leakgauge.recording.triage import triage
from leakgauge.setup.plan import informed_by
from leakgauge.setup.setup import PUBLIC_SAMPLES, to_device
from leakgauge.types import (
    Attack,
    Batch,
    Clue,
    Defense,
    Fact,
    Known,
    LocalTraining,
    Observation,
    Reconstruction,
    SharedUpdate,
    threat_model,
)
from leakgauge.types.attack import no_progress


@dataclass(frozen=True)
class Attacked:
    """One attack on one group: what it claims, its scores where the truth was kept, or why it stopped."""

    attack: str  # spec
    adaptive: bool  # does it know the defence?
    result: Reconstruction | None
    scores: Scores | None
    error: str | None = None

    @property
    def label(self) -> str:
        """A short name, also for files: `linear`, or `linear-informed` for one who knows the defence."""
        return self.attack.partition(":")[0] + ("-informed" if self.adaptive else "")


@dataclass(frozen=True)
class Group:
    """Clients attacked side by side."""

    entries: tuple[Recorded, ...]
    unreadable: tuple[tuple[str, str], ...]  # (name, why) of those that are no update of this model
    clues: tuple[Clue, ...]
    attacked: tuple[Attacked, ...]
    truth: Batch | None


@dataclass(frozen=True)
class Assumed:
    """What the user says of the clients; it goes before what the recorder was told."""

    model: str
    data: Dataset
    weights: str | None = None
    samples: int | None = None
    local: LocalTraining | None = None
    defenses: tuple[Defense, ...] = ()  # what the clients do, known to the attacker
    seed: int = 0


def audit_group(
    entries: Sequence[Recorded], assumed: Assumed, attacks: Sequence[Attack], device: torch.device
) -> Group:
    """Triage and attacks on clients of one group, see `recorded.side_by_side`."""
    first = entries[0]
    samples = assumed.samples or first.origin.samples
    if samples is None:
        raise BadInput(
            f"{first.name}: samples", allowed="known", got="none recorded", do="give their number with --batch-size"
        )
    spec = assumed.data.spec
    weights = str(weights_of(first)) if first.weights else assumed.weights
    model = load_model(assumed.model, spec, assumed.seed, weights)
    readable: list[tuple[Recorded, SharedUpdate]] = []
    unreadable: list[tuple[str, str]] = []
    for entry in entries:
        try:
            readable.append((entry, tensors_of(entry, model)))
        except BadInput as error:
            unreadable.append((entry.name, str(error)))
    kept = tuple(entry for entry, _ in readable)
    if not kept:
        return Group((), tuple(unreadable), (), (), None)
    update = _joined([u for _, u in readable], device)
    facts = {
        Fact.INPUT_SPEC: spec,
        Fact.NUM_SAMPLES: samples,
        Fact.LOCAL_TRAINING: local_of(first, assumed.local),
        Fact.PUBLIC_DATA: to_device(public_batch(assumed.data, PUBLIC_SAMPLES, assumed.seed), device, torch.float32),
    }
    seen = observe(model.to(device), update, threat_model("honest-but-curious"), facts)
    truth = private_of(kept)
    seeds = [assumed.seed + t for t in range(seen.trials)]
    played = [(attack, *variant) for attack in attacks for variant in _variants(attack, assumed.defenses)]
    attacked = tuple(_attacked(*each, seen, seeds, truth) for each in played)
    return Group(kept, tuple(unreadable), triage(seen, ranks=False), attacked, truth)


def pictures(group: Group, attacked: Attacked) -> Tensor | None:
    """(K, C, H, W) in [0, 1]: what the attack claims of all clients, one after another; matched where it was scored."""
    result, scores = attacked.result, attacked.scores
    if result is None or result.inputs is None:
        return None
    shown = result.inputs if scores is None or scores.matched is None else scores.matched
    flat = shown.detach().cpu().flatten(0, 1)
    return flat.nan_to_num(0.5).clamp(0, 1) if flat.dim() == 4 and group.entries else None


def findings(group: Group, defense: str) -> list[dict[str, Any]]:
    """One for each attack and client, in the words of `attack --update`."""
    return [_finding(group, attacked, defense, t) for attacked in group.attacked for t in range(len(group.entries))]


def _finding(group: Group, attacked: Attacked, defense: str, t: int) -> dict[str, Any]:
    entry, result, scores = group.entries[t], attacked.result, attacked.scores
    one: dict[str, Any] = {
        "attack": attacked.attack.partition(":")[0],
        "spec": attacked.attack,
        "defense": defense,
        "adaptive": attacked.adaptive,
        "trial": t,
        "update": entry.name,
        "client": entry.origin.client,
        "round": entry.origin.round,
        "scores": {},
        "labels": None,
        "objective": None,
        "flags": ["no-ground-truth"] if group.truth is None else [],
        "error": attacked.error,
    }
    if result is not None:
        objective = result.objective[t]
        one["labels"] = result.labels_of(t)
        one["objective"] = float(objective) if torch.isfinite(objective) else None
    if scores is not None:
        one["scores"] = {f"{m}_mean_per_image": mean for m, mean in scores.means(t).items()}
        if scores.label_accuracy is not None:
            one["scores"]["label_accuracy"] = float(scores.label_accuracy[t])
    return one


def _variants(attack: Attack, defenses: Sequence[Defense]) -> list[tuple[bool, tuple[Known, ...]]]:
    """An attacker who knows nothing, then one who knows the defenses."""
    return [(False, ()), *((True, known) for known in informed_by(attack, defenses))]


def _attacked(
    attack: Attack,
    adaptive: bool,
    known: tuple[Known, ...],
    seen: Observation,
    seeds: Sequence[int],
    truth: Batch | None,
) -> Attacked:
    try:
        result = reconstruct(attack, seen, seeds, no_progress, known)
    except LeakgaugeError as error:
        return Attacked(attack.spec, adaptive, None, None, str(error))
    spec = seen.fact(Fact.INPUT_SPEC)
    where = seen.update.tensors[next(iter(seen.update.tensors))].device
    scores = None if truth is None else score(to_device(truth, where, torch.float32), result, spec)
    return Attacked(attack.spec, adaptive, result, scores)


def _joined(updates: Sequence[SharedUpdate], device: torch.device) -> SharedUpdate:
    """T updates of one client each, side by side; running statistics are no part of what is attacked here."""
    names = updates[0].tensors
    tensors = {n: torch.cat([u.tensors[n] for u in updates]).to(device, torch.float32) for n in names}
    return SharedUpdate(updates[0].kind, tensors)

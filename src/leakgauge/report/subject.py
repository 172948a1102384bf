"""What was attacked, whose updates they were and what the attacker knew, in words that all pages share."""

from __future__ import annotations

from leakgauge.recording.own_update import IN_PYTHON
from leakgauge.report.numbers import counted
from leakgauge.types import (
    CATEGORIES,
    ONE_CLASS,
    ORACLES,
    QUANTITIES,
    SEQUENCE,
    SEVERAL_CLASSES,
    AuditReport,
    DataSpec,
    Fact,
    Scenario,
    threat_model,
)

SIMULATED, GIVEN, RECORDED = "simulated", "given", "recorded"
_FACTS = {
    Fact.INPUT_SPEC.value: "the shape and range of an input and the number of classes",
    Fact.NUM_SAMPLES.value: "how many samples are behind the update",
    Fact.LOCAL_TRAINING.value: "how the client trains locally",
    Fact.PUBLIC_DATA.value: "public samples of the same kind, none of them a victim's",
    Fact.LABELS.value: "the true labels",
    Fact.BATCHNORM_STATISTICS.value: "the private batch's BatchNorm statistics",
}


def kind_of_update(scenario: Scenario) -> str:
    """Where the attacked updates come from."""
    if scenario.update is not None and scenario.round is not None:  # only a recorder's folder has rounds
        return RECORDED
    return GIVEN if scenario.update is not None or in_python(scenario) else SIMULATED


def in_python(scenario: Scenario) -> bool:
    """Were model, update and batch handed over in Python, so that no file names them?"""
    return scenario.model == IN_PYTHON


def title_of(report: AuditReport) -> str:
    s = report.scenario
    return "A model and an update given in Python" if in_python(s) else f"{s.model} on {s.data}"


def update_of(scenario: Scenario) -> str:
    """What was attacked, in a few words."""
    kind = kind_of_update(scenario)
    if kind == SIMULATED:
        return "of simulated clients"
    if scenario.update is None:
        return "given in Python"
    return f"{scenario.update} (round {scenario.round} of a recording)" if kind == RECORDED else scenario.update


def was(count: int) -> str:
    return "was" if count == 1 else "were"


def triage_note(scenario: Scenario) -> str:
    """What the clues before any attack are about."""
    which = "first victim's undefended update"
    if kind_of_update(scenario) != SIMULATED:
        which = "update that was given" if scenario.trials == 1 else "first of the given updates"
    return (
        f"What the architecture and the {which} allow, and whether that update is what it is claimed to be. Nothing "
        "was recovered for this."
    )


def client_name(report: AuditReport, trial: int) -> str:
    """Whose update it is: by the name that somebody gave, or by its number."""
    return report.clients[trial] if report.clients else str(trial)


def attacked(report: AuditReport) -> list[tuple[str, str]]:
    """Name and value of everything that describes the target; what a given update leaves open is not made up."""
    s, d = report.scenario, report.data
    simulated, given = kind_of_update(s) == SIMULATED, in_python(s)
    weights = report.environment.get("model state") or s.weights or "freshly initialised from the seed"
    kind = f"({d.kind}, {_shape(d)}, {_targets(d)})"
    labels = f" (labels within a batch: {s.batch_labels})" if simulated else ""
    trials = f"{counted('victim', s.trials)} per cell" if simulated else counted("update", s.trials)
    return [
        ("Model", "given in Python" if given else s.model),
        ("Weights", weights.removeprefix("weights from ")),
        ("Data", f"{'the batch given in Python' if given else s.data} {kind}"),
        ("Update", update_of(s)),
        ("Samples per update", f"{s.batch_size}{labels}"),
        ("Clients", clients(s)),
        ("Local training", local_training(s)),
        ("Layers that are seen", s.shared_layers),
        ("Precision", s.precision),
        ("Defenses", ", ".join(s.defenses) or "none"),
        *([("Informed attackers take the defense for", s.assume)] if s.assume else []),
        ("Attacks", ", ".join(s.attacks) or f"the suite {s.suite}"),
        ("Trials", trials),
        ("Seed", str(s.seed)),
    ]


def _shape(data: DataSpec) -> str:
    """Of a sample as the model takes it: "3 × 32 × 32", "numbers 4, words 8 of 40 values"."""
    said = []
    for part in data.parts:
        size = f" of {part.size} values" if part.kind == CATEGORIES else ""
        said.append(f"{part.name} {_by(part.shape) or 'one'}{size}".strip())
    return ", ".join(said) or _by(data.shape)


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _targets(data: DataSpec) -> str:
    if data.target == QUANTITIES:
        return f"targets are {_by(data.target_shape) or 'one'} number{'' if data.classes == 1 else 's'}"
    if data.target == SEVERAL_CLASSES:
        return f"any of {data.classes} classes"
    places = f" at each of {_by(data.target_shape)} places" if data.target == SEQUENCE else ""
    return f"{data.classes} classes{places}"


def clients(scenario: Scenario) -> str:
    if (kind := kind_of_update(scenario)) != SIMULATED:
        one = scenario.trials == 1
        return (
            f"{'the one whose update' if one else f'the {scenario.trials} whose updates'} {was(scenario.trials)} {kind}"
        )
    p = scenario.partition
    if p.kind == "none":
        return "every batch from one pool"
    skew = {"iid": "equal shares", "classes": f"{p.classes} labels each", "dirichlet": f"Dirichlet, alpha {p.alpha:g}"}
    return f"{p.clients}, {skew[p.kind]}"


def local_training(scenario: Scenario) -> str:
    local = scenario.local
    mode = "running" if local.batchnorm == "eval" else "batch"
    norm = f"BatchNorm, if any, uses {mode} statistics"
    if local.seen > 1:
        norm += f"; an attacker who knows the defense sees {local.seen} rounds with the same samples and weights"
    if local.kind == "fedsgd":
        return f"fedsgd: one gradient is shared; {norm}"
    batch = f"mini-batches of {local.batch_size}" if local.batch_size else "all samples at once"
    passes = "1 local epoch" if local.epochs == 1 else f"{local.epochs} local epochs"
    return f"{local.kind}: {passes}, {batch}, learning rate {local.lr:g}; {norm}"


def facts_given(report: AuditReport) -> list[str]:
    """What the attacker had besides the model and the update; oracles are named as such."""
    given = {fact.value for fact in threat_model(report.scenario.threat_model).oracles}
    read = {Fact.BATCHNORM_STATISTICS.value} - given
    oracles = {fact.value for fact in ORACLES} - read
    return [
        _FACTS.get(fact, fact)
        + (" (an oracle: real attackers do not have it)" if fact in oracles else "")
        + (" (read off the running averages that were shared)" if fact in read else "")
        for fact in report.facts
    ]


def facts_not_given(report: AuditReport) -> list[str]:
    return [words for fact, words in _FACTS.items() if fact not in report.facts]


def labels_sentence(report: AuditReport) -> str:
    given = Fact.LABELS.value in report.facts
    if report.data.target != ONE_CLASS:
        held = "given to the attacker" if given else "not given: an attack searched them with the samples"
        read = "" if given else " Where the last layer shows something of them, the attack labels says what it read."
        return f"Targets are no single class, so no label is scored. They were {held}.{read}"
    if given:
        return "The true labels were given to the attacker, so recovered labels prove nothing."
    return "The true labels were not given: an attack that uses labels had to infer them."

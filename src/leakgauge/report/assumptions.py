"""What was attacked and what the attacker knew, in words; page and text share them."""

from __future__ import annotations

from leakgauge.report.subject import SIMULATED, counted, data_of, kind_of_update, model_of, update_of
from leakgauge.types import ORACLES, AuditReport, Fact, Scenario, threat_model

_FACTS = {
    Fact.INPUT_SPEC: "the shape and range of an input and the number of classes",
    Fact.NUM_SAMPLES: "how many samples are behind the update",
    Fact.LOCAL_TRAINING: "how the client trains locally",
    Fact.PUBLIC_DATA: "public samples of the same kind, none of them a victim's",
    Fact.LABELS: "the true labels",
    Fact.BATCHNORM_STATISTICS: "the private batch's BatchNorm statistics",
}
_WORDS = {fact.value: words for fact, words in _FACTS.items()}


def attacked(report: AuditReport) -> list[tuple[str, str]]:
    """Name and value of everything that describes the target; what a given update leaves open is not made up."""
    s, d = report.scenario, report.data
    shape = " × ".join(map(str, d.shape))
    weights = report.environment.get("model state") or s.weights or "freshly initialised from the seed"
    simulated = kind_of_update(s) == SIMULATED
    return [
        ("Model", model_of(s)),
        ("Weights", weights.removeprefix("weights from ")),
        ("Data", f"{data_of(s)} ({d.kind}, {shape}, {d.classes} classes)"),
        ("Update", update_of(s)),
        (
            "Samples per update",
            f"{s.batch_size}" + (f" (labels within a batch: {s.batch_labels})" if simulated else ""),
        ),
        ("Clients", clients(s)),
        ("Local training", local_training(s)),
        ("Layers that are seen", s.shared_layers),
        ("Precision", s.precision),
        ("Defenses", ", ".join(s.defenses) or "none"),
        *([("Informed attackers take the defense for", s.assume)] if s.assume else []),
        ("Attacks", ", ".join(s.attacks) or f"the suite {s.suite}"),
        ("Trials", f"{counted('victim', s.trials)} per cell" if simulated else counted("update", s.trials)),
        ("Seed", str(s.seed)),
    ]


def clients(scenario: Scenario) -> str:
    if (kind := kind_of_update(scenario)) != SIMULATED:
        those = "the one" if scenario.trials == 1 else f"the {scenario.trials}"
        return f"{those} whose update{'' if scenario.trials == 1 else 's'} {_were(scenario.trials)} {kind}"
    p = scenario.partition
    if p.kind == "none":
        return "every batch from one pool"
    skew = {"iid": "equal shares", "classes": f"{p.classes} labels each", "dirichlet": f"Dirichlet, alpha {p.alpha:g}"}
    return f"{p.clients}, {skew[p.kind]}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


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


def told(report: AuditReport) -> list[str]:
    """What the attacker had besides the model and the update; oracles are named as such."""
    given = {fact.value for fact in threat_model(report.scenario.threat_model).oracles}
    read = {Fact.BATCHNORM_STATISTICS.value} - given
    oracles = {fact.value for fact in ORACLES} - read
    return [
        _WORDS.get(fact, fact)
        + (" (an oracle: real attackers do not have it)" if fact in oracles else "")
        + (" (read off the running averages that were shared)" if fact in read else "")
        for fact in report.facts
    ]


def not_told(report: AuditReport) -> list[str]:
    return [words for fact, words in _WORDS.items() if fact not in report.facts]


def labels_sentence(report: AuditReport) -> str:
    if Fact.LABELS.value in report.facts:
        return "The true labels were given to the attacker, so recovered labels prove nothing."
    return "The true labels were not given: an attack that uses labels had to infer them."

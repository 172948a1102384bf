"""Whose updates were attacked, in words: simulated clients', the user's own, or those that a recorder saved."""

from __future__ import annotations

from leakgauge.recording.own_update import IN_PYTHON
from leakgauge.types import AuditReport, Scenario

SIMULATED, GIVEN, RECORDED = "simulated", "given", "recorded"


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


def model_of(scenario: Scenario) -> str:
    return "given in Python" if in_python(scenario) else scenario.model


def data_of(scenario: Scenario) -> str:
    return "the batch given in Python" if in_python(scenario) else scenario.data


def update_of(scenario: Scenario) -> str:
    """What was attacked, in a few words."""
    kind = kind_of_update(scenario)
    if kind == SIMULATED:
        return "of simulated clients"
    if scenario.update is None:
        return "given in Python"
    return f"{scenario.update} (round {scenario.round} of a recording)" if kind == RECORDED else scenario.update


def counted(noun: str, number: int) -> str:
    """ "1 record", "6 records"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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

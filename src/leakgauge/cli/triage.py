"""`leakgauge triage`: what an architecture and an update allow, in seconds and before any attack."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leakgauge.cli.console import deliver, show, show_table
from leakgauge.cli.options import Place, Update, flag, flags_from
from leakgauge.client.chain import prepared
from leakgauge.client.observe import observe
from leakgauge.errors import BadInput
from leakgauge.recording.own_update import blind_setup
from leakgauge.recording.sanity import refuse_wrong
from leakgauge.recording.triage import first_observation
from leakgauge.recording.triage import triage as look
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import UNDEFENDED, Clue, Observation, Scenario

FILE = "triage.json"


@dataclass(frozen=True, kw_only=True)
class TriageFlags(Update):
    """The options of `leakgauge triage`."""

    update: Path | None = flag("Look at this saved update instead of a simulated client's.")
    defense: list[str] | None = flag("NAME[:field=value,...] of the simulated client; repeat to chain.")
    out: Path | None = flag(f"Folder for {FILE}. Default: none.")


@flags_from(TriageFlags)
def triage(given: TriageFlags) -> int:
    """Say what an update allows, before any attack, and whether it is what it is claimed to be. Exit code 2 if not.

    Example: `leakgauge triage --model mlp --data digits --batch-size 8`
    """
    chain = "+".join(given.defense or [])
    scenario = given.over(Scenario(trials=1), update=None, defenses=(chain,) if chain else None)
    seen = _simulated(scenario, given) if given.update is None else _saved(scenario, given.update, given)
    clues = look(seen, claimed=given.update is not None)
    result = {"clues": [dataclasses.asdict(clue) for clue in clues], "scenario": scenario.as_dict()}
    deliver(result, given.as_json, lambda: show_clues(clues), given.out and given.out / FILE)
    refuse_wrong(clues)
    return 0


def show_clues(clues: Sequence[Clue]) -> None:
    """The table, what is wrong first."""
    rows = [[clue.severity, clue.what, clue.value, clue.meaning] for clue in clues]
    show_table(["", "looked at", "seen", "what it means"], rows)
    show("")


def _simulated(scenario: Scenario, place: Place) -> Observation:
    setup = load_setup(scenario, place.data_root, place.device)
    defenses = parse_chain(scenario.defenses[0] if scenario.defenses else UNDEFENDED)
    sent = prepared(setup.model, *defenses)
    facts = setup.facts(sent, setup.behind(defenses), setup.threat_model.facts)
    return observe(sent, setup.update(defenses, setup.model), setup.threat_model, facts, scenario.shared_layers)


def _saved(scenario: Scenario, path: Path, place: Place) -> Observation:
    for name, value in (("--defense", scenario.defenses), ("--training", scenario.training.rounds)):
        if value:
            do = "leave it out: the file is what it is"
            raise BadInput(name, allowed="used without --update", got=repr(value), do=do)
    setup = blind_setup(dataclasses.replace(scenario, update=str(path)), place.data_root, place.device)
    return first_observation(setup, range(setup.victims.trials))

"""From a scenario to its setup: the one place where an audit gets its victims, whatever their source.

How the data goes, in every audit:

1. **Victims** (`setup.victims`): clients that are simulated here, or whose updates were saved, recorded or handed over;
   with the samples behind the updates, or blind.
2. **Client** (`client.chain`) and **update**: a simulated client trains on its samples, and the defenses act. A saved
   update is taken as it is.
3. **Observation** (`client.observe`): the update and the facts of the threat model pass, nothing else does.
4. **Attack** (`execution.trial_run`, `execution.batching`): as many trials side by side as fit into memory.
5. **Finding** (`execution.table_cell`): one for each attack, configuration and trial. It holds scores where the truth
   is known; without it, what the attack proved, which labels it read, and how well it explains the update.
6. **Verdict** (`verdict`) and **report** (`report`): the same for all. Without samples both say what is proven, and
   that nothing was scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from leakgauge.recording.own_update import blind_setup, holds_batch, scored_setup
from leakgauge.recording.recorded_folder import Recorded
from leakgauge.setup.setup import Setup, load_setup
from leakgauge.types import Scenario


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

    For another process: `trained` are the parameters of a model that went through the scenario's rounds already, and a
    saved update that was `checked` elsewhere is not held against its batch again. `clients` are recorded ones that were
    chosen already.
    """
    if scenario.update is None:
        return load_setup(scenario, data_root, device, trained)
    if holds_batch(scenario, clients):
        return scored_setup(scenario, data_root, device, checked=checked, clients=clients)
    return blind_setup(scenario, data_root, device, clients=clients)

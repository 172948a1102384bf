"""`leakgauge property`: can a server see from an update whether its batch has a property?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from leakgauge.audit.property_inference import SHUFFLES, PropertyInference, PropertyReport, infer_property
from leakgauge.cli.console import deliver, say, show, show_table
from leakgauge.cli.options import DATA, MODEL, TRAINING, Victim, flag, flags_from
from leakgauge.cli.running import interval
from leakgauge.reading.files import make_folder
from leakgauge.types import Interval, Scenario


@dataclass(frozen=True, kw_only=True)
class PropertyFlags(Victim):
    """The options of `leakgauge property`."""

    property: str = flag("class:K, bright, or patch[:PIXELS], which is stamped on.", default="patch")
    share: float | None = flag("Share of a batch that carries it, where it is there. Default 0.4.")
    batches: int | None = flag("Batches that the attacker computes updates of. Default 400.")
    public: int | None = flag("Public samples that the attacker has. Default 512.")
    trees: int | None = flag("Trees of the attacker's forest. Default 100.")
    pooling: str | None = flag("Features: both, inputs (as published), energy or best.")
    model: MODEL = "cnn-melis"
    data: DATA = "photos32"
    defenses: str | None = flag("Configurations to compare: 'gaussian:std=0.1 prune'; a+b chains.")
    batch_size: int = flag("Private samples behind one update.", default=32)
    trials: int = flag("Victims; every second one has the property.", default=100)
    training: TRAINING = None
    threat_model: str | None = flag("NAME, or NAME+labels, NAME+batchnorm for an oracle.")
    out: Path | None = flag("Folder for property.json. Default: none.")


@flags_from(PropertyFlags)
def infer(given: PropertyFlags) -> int:
    """Ask of each update whether its batch has a property: AUC and accuracy beside guessing, with and without defenses.

    Example: `leakgauge property --property bright --data photos32 --trials 20 --defenses "gaussian:std=0.001"`
    """
    scenario = given.over(Scenario(), defenses=tuple(d for d in (given.defenses or "").split() if d != "none"))
    own = {f.name: getattr(given, f.name, None) for f in dataclasses.fields(PropertyInference)}
    inference = PropertyInference.from_mapping({name: value for name, value in own.items() if value is not None})
    if given.out is not None:
        make_folder(given.out)  # a place that cannot be written is found now
    report = infer_property(
        scenario,
        inference,
        data_root=given.data_root,
        device=given.device,
        on_progress=lambda name: say(f"updates: {name} ..."),
    )
    deliver(report.as_dict(), given.as_json, lambda: _show(report), given.out and given.out / "property.json")
    return 0


def _show(report: PropertyReport) -> None:
    """The table, the worst attacker per configuration, and what the numbers rest on."""
    rows = []
    for row in report.rows:
        accuracy = Interval(row.accuracy.value, row.accuracy.low, row.accuracy.high)
        scores = interval(row.auc, 3), interval(row.control, 2), interval(accuracy, 2)
        rows.append([row.defense, row.attacker, *scores, f"{row.seconds:.0f} s"])
    show_table(["defense", "attacker", "AUC [95 %]", "shuffled labels", "accuracy [95 %]", "time"], rows)
    show("")
    for configuration in dict.fromkeys(row.defense for row in report.rows):
        show(_sentence(report, configuration))
    size, with_it = report.scenario.batch_size, sum(report.has)
    show(
        f"{len(report.has)} victims of {size} samples, of which {with_it} have {report.inference.property!r} in "
        f"{report.carriers} samples and the others in none; guessing gives 0.5. "
        f"Control: the mean of {SHUFFLES} attackers taught with shuffled labels."
    )
    for name, counts in report.pools.items():
        carry, do_not = counts["carry it"], counts["do not"]
        kinds = f"any of {do_not}, stamped" if report.stamped else f"{carry} that carry it, {do_not} that do not"
        show(f"samples of the {name}: {kinds}")


def _sentence(report: PropertyReport, configuration: str) -> str:
    """A configuration is as good as the better attacker leaves it."""
    worst = max((r for r in report.rows if r.defense == configuration), key=lambda r: r.auc.value or 0.0)
    shown = worst.auc.low is not None and worst.auc.low > 0.5
    verdict = "the update reveals the property" if shown else "no better than guessing could be shown"
    return f"{configuration}: {verdict} (AUC {interval(worst.auc, 3)}, {worst.attacker} attacker)."

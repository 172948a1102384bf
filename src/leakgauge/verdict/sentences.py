"""What the attacks on one configuration add up to: the strongest one, labels that were read, traces of records."""

from __future__ import annotations

from collections.abc import Sequence

from leakgauge.metrics.intervals import at_least
from leakgauge.types import UNDEFENDED, ConfigurationVerdict, Guarantee, LabelsRead, Summary, Traces
from leakgauge.verdict.credible import FAILING

LABELS = "label_accuracy_mean_per_trial"
_LABELS_SURE = 0.8  # that labels were read and not guessed: the lower end errs once in ten; records count for more
_TRACES = 0.001  # p-value from which poor recoveries are said to point to their records


def conclusion(
    defense: str, rows: Sequence[Summary], guarantee: Guarantee | None, size: int, classes: int = 0
) -> ConfigurationVerdict:
    """What the attacks that ran on a configuration add up to; `size` records stand behind each trial."""
    attacked = [r for r in rows if r.success_rate.records]
    labels = _labels_read(rows, size, classes)
    if not attacked:
        nothing = (
            "no attack of this run claims records." if rows else "nothing could be scored: no attack of this run fits."
        )
        sentence = f"{_where(defense)}, {nothing}{_said_of_labels(labels)}"
        return ConfigurationVerdict(defense, False, sentence, guarantee=guarantee, labels=labels)
    worst = max(attacked, key=_severity)
    leaks = worst.success_rate.recovered > 0
    traces = None if leaks else _traces(attacked)
    return ConfigurationVerdict(
        defense,
        leaks,
        _of_records(defense, worst) + _said_of_traces(traces) + _said_of_labels(labels),
        undecided=0 if leaks else max(r.undecided for r in attacked),
        traces=traces,
        attack=worst.attack,
        adaptive=worst.adaptive,
        rate=worst.success_rate,
        guarantee=guarantee,
        labels=labels,
    )


def _where(defense: str) -> str:
    return "Without defense" if defense == UNDEFENDED else f"With {defense}"


def _of_records(defense: str, worst: Summary) -> str:
    """The first sentence: what became of the records under the strongest attack."""
    found = worst.success_rate
    name = f"{worst.attack}{' (knowing the defense)' if worst.adaptive else ''}"
    if found.recovered:
        share = (
            f"at least {found.low:.0%} at 95 %"
            if found.recovered == found.records
            else f"95 %: {found.low:.0%} to {found.high:.0%}"
        )
        reached = share_of(found.recovered, found.records)
        return f"{_where(defense)}, {name} recovers {reached} ({found.criterion}; {share})."
    if worst.met:
        reached = share_of(worst.met, found.records)
        return f"{_where(defense)}, {name} meets {found.criterion} for {reached}, {_why_not(worst)}."
    share = f"{found.criterion}; at most {found.high:.0%} at 95 %"
    attacked = f"any of {found.records} records" if found.records > 1 else "the one record"
    return f"{_where(defense)}, no attack recovered {attacked} ({share})."


def share_of(count: int, records: int) -> str:
    """ "2 of 6 records", "1 of 1 record"."""
    return f"{count} of {records} record{'' if records == 1 else 's'}"


def _why_not(row: Summary) -> str:
    """Why scores that meet the criterion count for nothing, or for nothing yet."""
    control = row.control
    if row.undecided:
        return "and there are too few other samples to tell whether by chance: nothing is decided"
    if FAILING & set(row.flags):
        return "but by a search that failed: no recovery is shown"
    if control is not None and control.convincing is False:
        if control.better:
            return "but is not clearly nearer to them than to others of the same kind: no recovery is shown"
        return "but comes no closer to them than to others of the same kind: nothing was recovered"
    return "but is no closer to them than a guess or another sample: no recovery is shown"


def _severity(row: Summary) -> tuple[float, int, int, float]:
    psnr = row.metrics.get("psnr_mean_per_image")
    score = psnr.value if psnr and psnr.value is not None else 0.0
    return row.success_rate.value, row.undecided, row.met or 0, score


def _traces(rows: Sequence[Summary]) -> Traces | None:
    """Recoveries too poor to count that still point to their own records, far beyond chance; None if there are none."""
    found = [
        (c.first / c.records, r.attack, c)
        for r in rows
        if (c := r.control) and min(c.p_mean, c.p_best, c.p_first) <= _TRACES
    ]
    if not found:
        return None
    _, attack, control = max(found, key=lambda row: row[:2])
    return Traces(attack, control.first, control.records, control.candidates)


def _said_of_traces(traces: Traces | None) -> str:
    if traces is None:
        return ""
    nearer = "is nearer to its" if traces.first == 1 else "are nearer to their"
    return (
        f" Something gets through: {traces.first} of {traces.records} recoveries of {traces.attack} "
        f"{nearer} own record than to {traces.candidates} others."
    )


def _labels_read(rows: Sequence[Summary], size: int, classes: int) -> LabelsRead | None:
    """What the update gives away of the labels, if it is more than a guess; None otherwise.

    A guess is as good as the better of the floor that was measured, on a few records, and one among all classes.
    An attack that claims labels alone is told in records, so that nobody takes its share for recovered ones. Labels
    that the updates themselves prove need no statistics: one of one is read. Labels that were given are not read.
    """
    proven = max(rows, key=lambda r: r.labels_proven, default=None)
    certain = proven.labels_proven if proven is not None else 0
    named = [
        (r, share)
        for r in rows
        if "labels-given" not in r.flags and (i := r.metrics.get(LABELS)) and (share := i.value) is not None
    ]
    if proven is not None and certain and not named:
        named = [(proven, certain / (size * proven.trials))]
    if not named:
        return None
    best, share = max(named, key=lambda pair: pair[1])
    guess = max((i.value or 0.0 for floor in best.floor.values() if (i := floor.get(LABELS))), default=0.0)
    guess = max(guess, 1 / classes if classes else 0.0)
    ran = best.trials - best.failed
    counted = size * ran if size and not best.success_rate.records else None
    named_of = best.success_rate.records or size * ran
    shown = at_least(round(share * named_of), named_of, _LABELS_SURE) if named_of else share
    if shown <= guess and not certain:  # a few labels more than a guess names are chance
        return None
    if shown <= guess and proven is not None:
        best, share, counted = proven, certain / (size * proven.trials), size * proven.trials
    read = None if counted is None else round(share * counted)
    return LabelsRead(best.attack, share, guess, counted, read, certain)


def _said_of_labels(labels: LabelsRead | None) -> str:
    if labels is None:
        return ""
    said = f" The attack {labels.attack} names {labels.share:.0%} of the labels"
    if labels.records is not None and labels.read is not None:
        said = f" The attack {labels.attack} reads the labels of {share_of(labels.read, labels.records)}"
    said += f" (guessing: {labels.guess:.0%})"
    if not labels.proven:
        return f"{said}."
    which = "it" if labels.proven == labels.records == 1 else f"{labels.proven} of them"
    return f"{said}; what was shared proves {which}."

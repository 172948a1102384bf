"""From findings to the table's rows, and from the rows to what the audit concludes, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from leakgauge.metrics.criterion import Scored, criterion_of, gain
from leakgauge.metrics.intervals import at_least, bootstrap_mean, clopper_pearson, mean_of_shares, rate, tail_of
from leakgauge.types import (
    UNDEFENDED,
    ConfigurationVerdict,
    Control,
    DataSpec,
    Finding,
    Guarantee,
    Interval,
    LabelsRead,
    LowerSide,
    Proven,
    Summary,
    Traces,
    UpperSide,
    Verdict,
)
from leakgauge.verdict.bounds import NOT_ACCOUNTED, both_sides, lower_side, standing
from leakgauge.verdict.credible import FAILING, is_credible, is_recovered, is_undecided
from leakgauge.verdict.flags import NO_BETTER_THAN_CONTROL
from leakgauge.verdict.gate import Gate, gate_result
from leakgauge.verdict.roles import attack_rows, attacks_in, cell_of, is_floor

LABELS = "label_accuracy_mean_per_trial"
_LABELS_SURE = 0.8  # that labels were read and not guessed: the lower end errs once in ten; records count for more
_TRACES = 0.001  # p-value from which poor recoveries are said to point to their records
_NOTHING_SCORED = "nothing could be scored: no attack of this run fits."
_NOT_CLAIMED = "the update is not what was claimed"
_NO_SIDES = LowerSide(), UpperSide()
_GRAVITY = ("leaks", "cannot tell", "labels read", "not tested", "no leak found", "protected")

# --- the rows of the table --------------------------------------------------------------------------


def summarise(
    findings: Sequence[Finding], data: DataSpec, controls: Mapping[str, Control] | None = None
) -> tuple[Summary, ...]:
    """One row per (attack, defense, plain or adaptive), in the order they were run; failures stay in.

    `controls` is by `cell_name`. Whether a score is credible stands in the findings; see `leakgauge.verdict.credible`.
    """
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(cell_of(finding), []).append(finding)
    floors = {group[0].attack: _means(group) for group in groups.values() if is_floor(group[0].attack)}
    return tuple(_row(group, data, floors, (controls or {}).get(name)) for name, group in groups.items())


def _row(
    group: Sequence[Finding], data: DataSpec, floors: Mapping[str, Mapping[str, Interval]], control: Control | None
) -> Summary:
    attack = group[0].attack
    scored = [(f, i, r) for f in group for i, r in enumerate(f.records)]
    size = max((len(f.records) for f in group), default=0)
    lost = sum(size for f in group if f.error is not None)  # attacked and not recovered
    recovered = sum(is_recovered(data, f, i) for f, i, _ in scored)
    rule, flags = criterion_of(data), {flag for f in group for flag in f.flags}
    values = [v for _, _, r in scored if (v := r.get(rule.metric)) is not None]  # what is not claimed is lost as well
    if control is not None and control.better is False:
        flags.add(NO_BETTER_THAN_CONTROL)
    return Summary(
        attack=attack,
        defense=group[0].defense,
        adaptive=group[0].adaptive,
        trials=len(group),
        failed=sum(f.error is not None or "diverged" in f.flags for f in group),
        metrics=_means(group) | _attack_success(group),
        success_rate=rate(recovered, len(scored) + lost, str(rule)),
        worst=_most_exposed(data, scored),
        floor={} if is_floor(attack) else dict(floors),
        flags=tuple(sorted(flags)),
        seconds=sum(f.seconds for f in group),
        error=group[0].error if all(f.error for f in group) else None,
        steps_median=_median([f.steps for f in group if f.error is None]),
        evaluations_median=_median([f.evaluations for f in group if f.error is None]),
        tail=tail_of(rule.metric, values, lost + len(scored) - len(values)) if values else None,
        control=control,
        labels_proven=sum(f.labels_proven or 0 for f in group),
        met=sum(rule.met(r) for _, _, r in scored),
        undecided=sum(is_undecided(data, f, i) for f, i, _ in scored),
    )


def _median(counts: Sequence[int]) -> Interval:
    """The median with its quartiles: a few very long trials do not move it, as they would a mean."""
    if not counts:
        return Interval(None, None, None)
    low, middle, high = np.percentile(counts, [25, 50, 75]).tolist()
    return Interval(middle, low, high)


def _means(group: Sequence[Finding]) -> dict[str, Interval]:
    means = {}
    for name in sorted({name for f in group for name in f.scores}):
        values = torch.tensor([v for f in group if (v := f.scores.get(name)) is not None])
        if name == "label_accuracy":
            means[LABELS] = mean_of_shares(values)
        else:
            means[f"{name}_mean_per_image"] = bootstrap_mean(values)
    return means


def _attack_success(group: Sequence[Finding]) -> dict[str, Interval]:
    """ASR_c and ASR_l of Wei et al. 2020, as shares of all trials: the objective met its threshold; all labels right.

    Neither looks at the samples, so that a solved trial need not show anything.
    """
    counts = {}
    if any(f.solved is not None for f in group):
        counts["asr_content_share_of_trials"] = sum(f.solved is True for f in group)
    if any(f.scores.get("label_accuracy") is not None for f in group):
        counts["asr_label_share_of_trials"] = sum(f.scores.get("label_accuracy") == 1 for f in group)
    return {name: Interval(k / len(group), *clopper_pearson(k, len(group))) for name, k in counts.items()}


def _most_exposed(data: DataSpec, scored: Sequence[tuple[Finding, int, Scored]]) -> dict[str, float | None]:
    """The record that was recovered best, which is the worst for its owner.

    A credible score comes before one that may be chance, and that one before one that is no evidence.
    """
    name, worth = criterion_of(data).metric, {True: 2, None: 1, False: 0}
    rated = [(worth[is_credible(f, i)], gain(name, r[name]), f, i, r) for f, i, r in scored if r.get(name) is not None]
    if not rated:
        return {}
    _, _, finding, index, record = max(rated, key=lambda row: row[:2])
    return {"trial": finding.trial, "record": index, **record}


# --- the verdict ------------------------------------------------------------------------------------


def conclude(
    rows: Sequence[Summary],
    findings: Sequence[Finding],
    configurations: Sequence[str],
    guarantees: Mapping[str, Guarantee | None],
    gate: Gate | None,
    data: DataSpec,
    uppers: Mapping[str, UpperSide] | None = None,
    unproven: str = "",
) -> Verdict:
    """The verdict: the worst attack decides for each configuration; the ones under test decide for the whole.

    `uppers` has the upper side of each configuration (`bounds.upper_side`); one that is missing has no guarantee.
    `unproven` says why it is not known that the update came from these records, if so: then nothing is cleared.
    """
    judged = [r for r in attack_rows(rows, findings) if r.error is None]
    size = max((len(f.records) for f in findings), default=0)
    attacks, entries = attacks_in(findings), []
    for c in configurations:
        mine, upper = [r for r in judged if r.defense == c], UpperSide(why="nothing of this configuration was run")
        lower = _lower([f for f in attacks if f.defense == c], data)
        if mine:  # a guarantee counts for nothing where the defense that gives it never ran
            upper = (uppers or {}).get(c, UpperSide(why=NOT_ACCOUNTED))
        guarantee = guarantees.get(c) if mine else None
        entries.append(conclusion(c, mine, guarantee, size, data.classes, (lower, upper), unproven))
    decide = [e for e in entries if e.defense != UNDEFENDED] or entries
    sentence = " ".join(e.sentence for e in _gravest_first(decide)) or "Nothing was measured."
    judgement = None if gate is None else gate_result(gate, attacks, [e.defense for e in decide], unproven)
    return Verdict(any(e.leaks for e in decide), sentence, tuple(entries), judgement)


def _lower(findings: Sequence[Finding], data: DataSpec) -> LowerSide:
    """The lower side: records that any attack recovered.

    The attacks together are one attacker, so none of them is picked for how well it did.
    """
    places = {(f.trial, i) for f in findings for i in range(len(f.records))}
    found = {(f.trial, i) for f in findings for i in range(len(f.records)) if is_recovered(data, f, i)}
    proven: dict[tuple[str, bool], int] = {}
    for f in findings:
        if f.certified is not None:
            proven[f.attack, f.adaptive] = proven.get((f.attack, f.adaptive), 0) + f.certified
    return lower_side(len(found), len(places), max(proven.values(), default=None))


def conclusion(
    defense: str,
    rows: Sequence[Summary],
    guarantee: Guarantee | None,
    size: int,
    classes: int = 0,
    sides: tuple[LowerSide, UpperSide] = _NO_SIDES,
    unproven: str = "",
) -> ConfigurationVerdict:
    """What the attacks that ran on a configuration add up to; `size` records stand behind each trial."""
    attacked = [r for r in rows if r.success_rate.records]
    worst = max(attacked, key=_severity, default=None)
    leaks = worst is not None and worst.success_rate.recovered > 0
    undecided = 0 if leaks else max((r.undecided for r in attacked), default=0)
    traces = None if leaks else _traces(attacked)
    labels = _labels_read(rows, size, classes)
    doubt = f" It is not known whether the update came from these records: {unproven}." if unproven else ""
    where = "Without defense" if defense == UNDEFENDED else f"With {defense}"
    return ConfigurationVerdict(
        defense=defense,
        leaks=leaks,
        sentence=f"{where}, {_of_records(worst, bool(rows))}{_of_traces(traces)}{_of_labels(labels)}{doubt}",
        undecided=undecided,
        traces=traces,
        attack=None if worst is None else worst.attack,
        adaptive=worst is not None and worst.adaptive,
        rate=None if worst is None else worst.success_rate,
        guarantee=guarantee,
        labels=labels,
        tested=bool(rows),
        lower=sides[0],
        upper=sides[1],
        sides=both_sides(*sides),
        unproven=unproven,
        standing=standing(leaks, sides[1], undecided),
    )


def _severity(row: Summary) -> tuple[float, int, int, float]:
    psnr = row.metrics.get("psnr_mean_per_image")
    score = psnr.value if psnr and psnr.value is not None else 0.0
    return row.success_rate.value, row.undecided, row.met or 0, score


def _of_records(worst: Summary | None, tested: bool) -> str:
    """The first sentence: what became of the records under the strongest attack."""
    if worst is None:
        return "no attack of this run claims records." if tested else _NOTHING_SCORED
    found = worst.success_rate
    name = f"{worst.attack}{' (knowing the defense)' if worst.adaptive else ''}"
    if found.recovered:
        share = f"95 %: {found.low:.0%} to {found.high:.0%}"
        if found.recovered == found.records:
            share = f"at least {found.low:.0%} at 95 %"
        return f"{name} recovers {_counted(found.recovered, found.records)} ({found.criterion}; {share})."
    if worst.met:
        return f"{name} meets {found.criterion} for {_counted(worst.met, found.records)}, {_why_not(worst)}."
    attacked = f"any of {found.records} records" if found.records > 1 else "the one record"
    return f"no attack recovered {attacked} ({found.criterion}; at most {found.high:.0%} at 95 %)."


def _counted(count: int, of: int, noun: str = "record") -> str:
    """ "2 of 6 records", "1 of 1 record"."""
    return f"{count} of {of:,} {noun}{'' if of == 1 else 's'}"


def _why_not(row: Summary) -> str:
    """Why scores that meet the criterion count for nothing, or for nothing yet."""
    control = row.control
    if row.undecided:
        return "and there are too few other samples to exclude chance: nothing is decided"
    if FAILING & set(row.flags):
        return "but by a search that failed: no recovery is shown"
    if control is not None and control.convincing is False:
        if control.better:
            return "but is not clearly nearer to them than to others of the same kind: no recovery is shown"
        return "but comes no closer to them than to others of the same kind: nothing was recovered"
    return "but is no closer to them than a guess or another sample: no recovery is shown"


def _traces(rows: Sequence[Summary]) -> Traces | None:
    """Recoveries too poor to count that still point to their own records, far beyond chance; None if there are none."""
    found = [(c, r.attack) for r in rows if (c := r.control) and min(c.p_mean, c.p_best, c.p_first) <= _TRACES]
    if not found:
        return None
    control, attack = max(found, key=lambda pair: (pair[0].first / pair[0].records, pair[1]))
    return Traces(attack, control.first, control.records, control.candidates)


def _of_traces(traces: Traces | None) -> str:
    if traces is None:
        return ""
    nearer = "is nearer to its" if traces.first == 1 else "are nearer to their"
    which = f"{traces.first} of {traces.records} recoveries of {traces.attack}"
    return f" Something gets through: {which} {nearer} own record than to {traces.candidates} others."


def _labels_read(rows: Sequence[Summary], size: int, classes: int) -> LabelsRead | None:
    """What the update gives away of the labels, if it is more than a guess; None otherwise.

    A guess is as good as the better of the floor that was measured, on a few records, and one among all classes.
    An attack that claims labels alone is counted in records, so that nobody takes its share for recovered ones. Labels
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


def _of_labels(labels: LabelsRead | None) -> str:
    if labels is None:
        return ""
    what = f"names {labels.share:.0%} of the labels"
    if labels.records is not None and labels.read is not None:
        what = f"reads the labels of {_counted(labels.read, labels.records)}"
    which = "it" if labels.proven == labels.records == 1 else f"{labels.proven} of them"
    proof = f"; what was shared proves {which}" if labels.proven else ""
    return f" The attack {labels.attack} {what} (guessing: {labels.guess:.0%}){proof}."


# --- without samples to compare with: nothing is scored, and some things are certain ----------------


def unscored_verdict(findings: Sequence[Finding], trials: int, samples: int, doubt: str = "") -> Verdict:
    """What attacks and updates prove by themselves; `samples` private records are behind each of `trials` updates.

    `doubt` is what speaks against the claimed training, if anything does.
    """
    every = trials * samples
    proven = Proven(_most(findings, "certified", trials), every, _most(findings, "labels_proven", trials), every)
    counts = f"{_counted(proven.records, every)} and {_counted(proven.labels, every, 'label')}"
    sentence = f"Not scored: no samples to compare with; proven: {counts}."
    sentence += f" It cannot be told what else leaks: {doubt}." if doubt else ""
    return Verdict(leaks=proven.records > 0, sentence=sentence, configurations=(), proven=proven, doubt=doubt)


def all_proven(findings: Sequence[Finding], trials: int, samples: int) -> bool:
    """Does every record carry a proof of its own?"""
    return _most(findings, "certified", trials) == trials * samples


def _most(findings: Sequence[Finding], kind: str, trials: int) -> int:
    """How many of all clients together, each by the attack that proved most of it."""
    most = [0] * trials
    for finding in findings:
        most[finding.trial] = max(most[finding.trial], getattr(finding, kind) or 0)
    return sum(most)


# --- the verdict in a few words ---------------------------------------------------------------------


def headline(verdict: Verdict) -> str:
    """The verdict in a few words. It names the configurations it speaks of, unless these are all under test."""
    if verdict.proven is not None:
        if verdict.proven.records:
            return "Leaks: the updates alone prove private records"
        if verdict.doubt:
            return f"Cannot tell: {_NOT_CLAIMED}" + (", but labels are proven" if verdict.proven.labels else "")
        return "Labels are proven, no record is" if verdict.proven.labels else "Nothing is proven"
    tested = under_test(verdict)
    states = {state_of(c) for c in tested}
    if verdict.leaks:
        labels = _in_state(tested, "labels read")
        return f"Leaks{_in_state(tested, 'leaks')}" + (f", labels read{labels}" if labels else "")
    if states == {"not tested"}:
        return "Not tested: no attack could be carried out"
    if "cannot tell" in states:
        why = "too few other samples to compare with"
        if any(c.unproven for c in tested):
            why = _NOT_CLAIMED if verdict.doubt else "the update may not belong to these records"
        words = f"Cannot tell{_in_state(tested, 'cannot tell')}: {why}"
        return words + (", but labels read" if any(c.labels for c in tested) else "")
    if "labels read" in states:
        return f"No record recovered, but labels read{_in_state(tested, 'labels read')}"
    if "not tested" in states:
        return "No leak found, but not everything could be tested"
    if states == {"protected"}:
        return "Protected by a guarantee, and no leak found"
    bounded = tested and all(c.upper.guaranteed for c in tested)
    return f"No leak found, and {'only a weak guarantee' if bounded else 'no guarantee'}"


def _in_state(tested: Sequence[ConfigurationVerdict], state: str) -> str:
    """ " with one and another defense" if others are in another state; nothing if all are in this one."""
    found = [c.defense for c in tested if state_of(c) == state]
    return f" with {in_a_row(found)}" if found and len(found) < len(tested) else ""


def in_a_row(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def under_test(verdict: Verdict) -> list[ConfigurationVerdict]:
    """The configurations that the verdict speaks of, the gravest first; the bare update only if it is all there is."""
    tested = [c for c in verdict.configurations if c.defense != UNDEFENDED] or list(verdict.configurations)
    return _gravest_first(tested)


def _gravest_first(configurations: Sequence[ConfigurationVerdict]) -> list[ConfigurationVerdict]:
    """Those that leak most come first; equal ones keep their order."""
    return sorted(configurations, key=lambda c: (_GRAVITY.index(state_of(c)), -(c.rate.value if c.rate else 0)))


def state_of(configuration: ConfigurationVerdict) -> str:
    """One configuration's verdict. Labels that were read are no recovered record, but they are a leak of their own."""
    if configuration.leaks:
        return "leaks"
    if not configuration.tested:
        return "not tested"
    protected = configuration.standing == "protected"  # whoever the records belong to; nothing else holds so
    if configuration.undecided or (configuration.unproven and not protected):
        return "cannot tell"
    if configuration.labels:
        return "labels read"
    return "protected" if protected else "no leak found"

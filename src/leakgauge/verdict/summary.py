"""From findings to the table's rows, and from the rows to what the audit concludes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from leakgauge.metrics.criterion import Scored, criterion_of, gain
from leakgauge.metrics.intervals import bootstrap_mean, clopper_pearson, mean_of_shares, rate, tail_of
from leakgauge.types import (
    UNDEFENDED,
    ConfigurationVerdict,
    Control,
    DataSpec,
    Finding,
    Guarantee,
    Interval,
    LowerSide,
    Summary,
    Tail,
    UpperSide,
    Verdict,
    cell_name,
)
from leakgauge.verdict.bounds import NOT_ACCOUNTED, both_sides, lower_side, standing
from leakgauge.verdict.credible import is_credible, is_recovered, is_undecided
from leakgauge.verdict.flags import NO_BETTER_THAN_CONTROL
from leakgauge.verdict.gate import Gate, gate_result
from leakgauge.verdict.proven import headline_of
from leakgauge.verdict.roles import attack_rows, attacks_in, is_floor
from leakgauge.verdict.sentences import LABELS, conclusion

_REDUCED = {"label_accuracy": LABELS}
_NO_BOUND = UpperSide(why=NOT_ACCOUNTED)
_NOT_TESTED = UpperSide(why="nothing of this configuration was run")


def summarise(
    findings: Sequence[Finding], data: DataSpec, controls: Mapping[str, Control] | None = None
) -> tuple[Summary, ...]:
    """One row per (attack, defense, plain or adaptive), in the order they were run; failures stay in.

    `controls` is by `cell_name`. What a score is worth is in the findings; see `leakgauge.verdict.credible`.
    """
    groups: dict[tuple[str, str, bool], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.attack, finding.defense, finding.adaptive), []).append(finding)
    floors = {attack: _means(group) for (attack, _, _), group in groups.items() if is_floor(attack)}
    known = controls or {}
    return tuple(_row(key, group, data, floors, known.get(cell_name(*key))) for key, group in groups.items())


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
        mine = [r for r in judged if r.defense == c]
        tested = bool(mine)  # a promise counts for nothing where the defense that makes it never ran
        entry = conclusion(c, mine, guarantees.get(c) if tested else None, size, data.classes)
        upper = (uppers or {}).get(c, _NO_BOUND) if tested else _NOT_TESTED
        lower = _lower([f for f in attacks if f.defense == c], data)
        entries.append(_with_sides(entry, lower, upper, unproven, tested))
    decide = [e for e in entries if e.defense != UNDEFENDED] or entries
    sentence = " ".join(e.sentence for e in gravest_first(decide)) or "Nothing was measured."
    judgement = None if gate is None else gate_result(gate, attacks, [e.defense for e in decide], unproven)
    return Verdict(any(e.leaks for e in decide), sentence, tuple(entries), judgement)


def _with_sides(
    entry: ConfigurationVerdict, lower: LowerSide, upper: UpperSide, unproven: str, tested: bool
) -> ConfigurationVerdict:
    return replace(
        entry,
        lower=lower,
        upper=upper,
        sides=both_sides(lower, upper),
        standing=standing(entry.leaks, upper, entry.undecided),
        tested=tested,
        unproven=unproven,
        sentence=entry.sentence + _said_of_doubt(unproven),
    )


def _said_of_doubt(unproven: str) -> str:
    return f" Whether the update came from these records cannot be told: {unproven}." if unproven else ""


def _row(
    key: tuple[str, str, bool],
    group: Sequence[Finding],
    data: DataSpec,
    floors: Mapping[str, Mapping[str, Interval]],
    control: Control | None,
) -> Summary:
    attack, defense, adaptive = key
    scored = [(f, i, r) for f in group for i, r in enumerate(f.records)]
    size = max((len(f.records) for f in group), default=0)
    lost = sum(size for f in group if f.error is not None)  # attacked and not recovered
    recovered = sum(is_recovered(data, f, i) for f, i, _ in scored)
    rule, flags = criterion_of(data), {flag for f in group for flag in f.flags}
    if control is not None and control.better is False:
        flags.add(NO_BETTER_THAN_CONTROL)
    return Summary(
        attack=attack,
        defense=defense,
        adaptive=adaptive,
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
        tail=_tail(data, [r for _, _, r in scored], lost),
        control=control,
        labels_proven=sum(f.labels_proven or 0 for f in group),
        met=sum(rule.met(r) for _, _, r in scored),
        undecided=sum(is_undecided(data, f, i) for f, i, _ in scored),
    )


def _tail(data: DataSpec, records: Sequence[Scored], lost: int) -> Tail | None:
    name = criterion_of(data).metric
    values = [v for r in records if (v := r.get(name)) is not None]
    lost += len(records) - len(values)  # what is not claimed is lost as well
    return tail_of(name, values, lost) if values else None


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


def _median(counts: Sequence[int]) -> Interval:
    """The median with its quartiles: a few trials that ran on for long do not move it, as they would a mean."""
    if not counts:
        return Interval(None, None, None)
    low, middle, high = torch.tensor(counts).double().quantile(torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    return Interval(middle, low, high)


def _means(group: Sequence[Finding]) -> dict[str, Interval]:
    names = {name for f in group for name in f.scores}
    means = {}
    for name in sorted(names):
        values = [v for f in group if (v := f.scores.get(name)) is not None]
        mean = mean_of_shares if name in _REDUCED else bootstrap_mean
        means[_REDUCED.get(name, f"{name}_mean_per_image")] = mean(torch.tensor(values))
    return means


def _attack_success(group: Sequence[Finding]) -> dict[str, Interval]:
    """ASR_c and ASR_l of Wei et al. 2020, as shares of all trials: the objective met its threshold; all labels right.

    Neither looks at the samples, so that a solved trial need not show anything.
    """
    shares = {}
    if any(f.solved is not None for f in group):
        shares["asr_content_share_of_trials"] = _share(sum(f.solved is True for f in group), len(group))
    if any(f.scores.get("label_accuracy") is not None for f in group):
        right = sum(f.scores.get("label_accuracy") == 1 for f in group)
        shares["asr_label_share_of_trials"] = _share(right, len(group))
    return shares


def _share(count: int, of: int) -> Interval:
    return Interval(count / of, *clopper_pearson(count, of))


def _most_exposed(data: DataSpec, scored: Sequence[tuple[Finding, int, Scored]]) -> dict[str, float | None]:
    """The record that was recovered best, which is the worst for its owner.

    A score that is credible goes before one that may be chance, and that one before one that is no evidence.
    """
    name, worth = criterion_of(data).metric, {True: 2, None: 1, False: 0}
    rated = [(worth[is_credible(f, i)], gain(name, r[name]), f, i, r) for f, i, r in scored if r.get(name) is not None]
    if not rated:
        return {}
    _, _, finding, index, record = max(rated, key=lambda row: row[:2])
    return {"trial": finding.trial, "record": index, **record}


_GRAVITY = ("leaks", "cannot tell", "labels read", "not tested", "no leak found", "protected")


def under_test(verdict: Verdict) -> list[ConfigurationVerdict]:
    """The configurations that the verdict speaks of, the gravest first; the bare update only if it is all there is."""
    tested = [c for c in verdict.configurations if c.defense != UNDEFENDED] or list(verdict.configurations)
    return gravest_first(tested)


def gravest_first(configurations: Sequence[ConfigurationVerdict]) -> list[ConfigurationVerdict]:
    """Those that leak most come first; equal ones keep their order."""
    return sorted(configurations, key=lambda c: (_GRAVITY.index(state_of(c)), -(c.rate.value if c.rate else 0)))


def headline(verdict: Verdict) -> str:
    """The verdict in a few words. It names the configurations it speaks of, unless these are all under test."""
    if verdict.proven is not None:
        return headline_of(verdict.proven)
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
            why = "the update may not belong to these records"
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


def _is_unproven(configuration: ConfigurationVerdict) -> bool:
    """A guarantee holds whoever the records belong to; nothing else does."""
    return bool(configuration.unproven) and configuration.standing != "protected"


def state_of(configuration: ConfigurationVerdict) -> str:
    """One configuration's verdict. Labels that were read are no recovered record, but no clean bill either."""
    if configuration.leaks:
        return "leaks"
    if not configuration.tested:
        return "not tested"
    if configuration.undecided or _is_unproven(configuration):
        return "cannot tell"
    if configuration.labels:
        return "labels read"
    return "protected" if configuration.standing == "protected" else "no leak found"

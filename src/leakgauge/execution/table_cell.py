"""One cell of the table: one attack against one configuration, on all trials or on those that are still missing.

What the attack makes of them becomes findings here: with scores where the truth is known, and without where it is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.client.trained_on import scores_beside
from leakgauge.engine.memory import is_out_of_memory
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.execution.trial_run import TrialRun
from leakgauge.metrics.criterion import beats, criterion_of
from leakgauge.metrics.scoring import Scores, claims_of, score
from leakgauge.metrics.worst_case import with_answers, worst_case
from leakgauge.setup.plan import ON_A_DECOY, Cell, OnDecoy, parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.types import (
    BLANK,
    NOT_APPLICABLE,
    Attack,
    Batch,
    DataSpec,
    Defense,
    Fact,
    Finding,
    Reconstruction,
    ThreatModel,
)
from leakgauge.verdict.film import with_film
from leakgauge.verdict.flags import (
    FLAGS,
    NO_TRUTH,
    generator_flags,
    never_moved,
    objective_fell,
    oracle_flags,
    ran_out_of_time,
)

FLOOR = ThreatModel(
    "floor",
    "knows the kind of data and nothing of the update",
    "baseline",
    frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.PUBLIC_DATA}),
)
_TOLD = 24  # values of an objective that a report keeps per trial: enough for a curve, little enough for 500 trials
# Findings, and beside each what was recovered, its further answers or film behind it: (findings, (1 + A) N, *shape).
Done = tuple[list[Finding], Tensor | None]


def run_cell(
    setup: Setup,
    cell: Cell,
    progress: Callable[[float], None],
    trials: Sequence[int] | None = None,
    notice: Callable[[str], None] = lambda _: None,
    last: LastTrialRun | None = None,
) -> Done:
    """One cell on `trials` (all of them unless given). After an interrupt: the trials that were finished by then.

    `notice` is told what is known against the attack before it starts. `last` lends what another part of the same
    cell has prepared.
    """
    wanted = list(range(setup.scenario.trials) if trials is None else trials)
    attack, _ = played_by(cell)
    try:
        trial_run = (last or LastTrialRun()).of(setup, cell)
        for concern in trial_run.concerns(wanted[0]):
            notice(f"{cell.label}: {FLAGS[concern].reason}")
        ran, result = _whole(trial_run.of(wanted, progress), wanted)
        held = _held_against(setup, cell, trial_run.defenses, ran, result) if setup.scored else _unscored(result)
    except BadInput:
        raise
    except Exception as error:
        if not isinstance(error, LeakgaugeError) and not is_out_of_memory(error):
            raise _mistake_of(attack, error) from error
        kind = NOT_APPLICABLE if isinstance(error, NotApplicable) else ""  # this cell failed; it stays in the table
        text = f"{kind}{str(error) or type(error).__name__}"
        return [failed(setup, cell, trial, text) for trial in wanted], None
    flags = [*oracle_flags(trial_run.told), *trial_run.concerns(wanted[0]), *held.flags]
    if ran_out_of_time(attack, held.result):
        flags.append("time-budget-spent")
    if trial_run.defenses and trial_run.defense_did_nothing:
        flags.append("defense-without-effect")
    findings = _findings(cell, ran, held.result, held.scores, setup, flags)
    return findings, None if held.kept is None else held.kept.cpu()


def played_by(cell: Cell) -> tuple[Attack, bool]:
    """The attack that runs, and whether it runs on a decoy."""
    return (cell.attack.attack, True) if isinstance(cell.attack, OnDecoy) else (cell.attack, False)


@dataclass(frozen=True)
class _Held:
    """A reconstruction as it is kept: with its scores, or without any."""

    result: Reconstruction
    scores: Scores
    flags: tuple[str, ...]
    kept: Tensor | None  # (T, (1 + A) N, *shape): what was recovered, further answers or film behind it


def _held_against(
    setup: Setup, cell: Cell, defenses: Sequence[Defense], ran: Sequence[int], result: Reconstruction
) -> _Held:
    """The reconstruction of these trials in the order of the truth, and its scores."""
    attack, control = played_by(cell)
    truth = _truth(setup, attack, defenses).take(ran)
    result = _as_many_as_there_are(result, truth, setup)
    worst = worst_case(truth, result, setup.data)
    result = result if worst is None else worst.result
    scores = score(truth, result, setup.data, setup.metrics)
    if not (control or cell.adaptive or attack.baseline):  # an informed attacker gives the client's own samples
        more = scores_beside(truth, result, defenses, [setup.scenario.seeds[t] for t in ran], setup.data)
        scores = dataclasses.replace(scores, records=dict(scores.records) | more)
    size = setup.scenario.batch_size
    own = None if scores.matched is None else scores.matched[:, :size]
    if own is not None and worst is not None:
        own = with_answers(own, worst.matched[:, :, :size])
    if own is not None and result.film is not None and scores.order is not None:
        own = with_film(own, result.film, scores.order)
    return _Held(result, scores, generator_flags(attack, truth), own)


def _unscored(result: Reconstruction) -> _Held:
    """The reconstruction as it came: nobody knows which answer is closest, or in which order the records were."""
    if result.inputs is None:
        nothing_failed = torch.zeros_like(result.objective, dtype=torch.bool)
        return _Held(result, Scores({}, None, None, nothing_failed), (NO_TRUTH,), None)
    _, claims, failed = claims_of(result, result.inputs)
    trials, samples = claims.shape
    claims = claims.reshape(trials, samples, *[1] * (result.inputs.dim() - 2))
    kept = result.inputs.detach().where(claims, torch.nan)
    if result.answers is not None:
        kept = with_answers(kept, result.answers.detach())
    if result.film is not None:
        order = torch.arange(samples, device=kept.device).expand(trials, -1)
        kept = with_film(kept, result.film, order)
    return _Held(result, Scores({}, None, None, failed), (NO_TRUTH,), kept)


def _mistake_of(attack: Attack, error: Exception) -> Exception:
    """A mistake in the user's own attack is said in one line; one of ours is not hidden."""
    if not catalog.is_users(attack):
        return error
    return BadInput(
        f"attack {attack.name!r}",
        allowed="one that runs",
        got=f"{type(error).__name__}: {error}",
        do="mend it; --debug shows where",
    )


class LastTrialRun:
    """The meeting of the cell that ran last: its parts share what a server prepared for it."""

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._cell: Cell | None = None
        self._trial_run: TrialRun | None = None

    def of(self, setup: Setup, cell: Cell) -> TrialRun:
        if self._trial_run is None or self._setup is not setup or self._cell != cell:
            self._trial_run = None  # let go of the old one first
            self._trial_run, self._setup, self._cell = _trial_run(setup, cell), setup, cell
        return self._trial_run


def _trial_run(setup: Setup, cell: Cell) -> TrialRun:
    attack, control = played_by(cell)
    defenses = parse_chain(cell.defense)
    behind = None
    if setup.scored:  # the update's own samples; the scores are always those of the truth
        behind = setup.decoys(defenses) if control else _truth(setup, attack, defenses)
    told = FLOOR if attack.baseline else setup.threat_model
    return TrialRun(setup, attack, defenses, told, behind, cell.adaptive, cell.known)


def _truth(setup: Setup, attack: Attack, defenses: Sequence[Defense]) -> Batch:
    return setup.victims.everyone if attack.baseline else setup.behind(defenses)  # a floor stands for every record


def _as_many_as_there_are(result: Reconstruction, truth: Batch, setup: Setup) -> Reconstruction:
    """For an attacker who believes in another number of samples: the first claims, or none for those it missed."""
    if Fact.NUM_SAMPLES not in setup.assumed or result.inputs is None:
        return result
    samples = truth.inputs.shape[1]
    claims = result.inputs[:, :samples]
    missing = claims.new_full((len(claims), samples - claims.shape[1], *claims.shape[2:]), BLANK)
    said = torch.ones(claims.shape[:2], dtype=torch.bool) if result.claimed is None else result.claimed[:, :samples]
    claimed = torch.nn.functional.pad(said, (0, missing.shape[1]), value=False)
    return dataclasses.replace(
        result,
        inputs=torch.cat((claims, missing), 1),
        labels=None,
        claimed=claimed,
        answers=None,
        answer_names=(),
        film=None,
        film_steps=(),
    )


def _whole(result: Reconstruction, wanted: Sequence[int]) -> tuple[list[int], Reconstruction]:
    """The trials that an interrupt did not cut off, and what was made of them."""
    if result.finished is None:
        return list(wanted), result
    rows: list[int] = torch.nonzero(result.finished)[:, 0].tolist()
    if not rows:
        raise KeyboardInterrupt
    return [wanted[row] for row in rows], result.take(rows)


def _findings(
    cell: Cell, ran: Sequence[int], result: Reconstruction, scores: Scores, setup: Setup, flags: list[str]
) -> list[Finding]:
    size = next((v.shape[1] for v in scores.records.values()), 0)
    fell, failed = objective_fell(result).tolist(), scores.failed.tolist()
    still = never_moved(result).tolist()
    labels = None if scores.label_accuracy is None else scores.label_accuracy.tolist()
    traces = _traces(result)
    rows = []
    for t, trial in enumerate(ran):
        means = scores.means(t)
        if setup.scored:
            means["label_accuracy"] = None if labels is None else labels[t]
        own = [*flags, *(["diverged"] if failed[t] else []), *([] if fell[t] else ["objective-did-not-fall"])]
        own += ["never-moved"] if still[t] else []
        each = tuple(scores.record(t, i) for i in range(size))
        objective = float(result.objective[t])
        rows.append(
            Finding(
                attack=cell.label,
                defense=cell.defense,
                adaptive=cell.adaptive,
                trial=trial,
                seed=setup.scenario.seeds[trial],
                scores=means,
                records=each,
                objective=objective if torch.isfinite(result.objective[t]) else None,
                steps=int(result.steps[t]),
                evaluations=int(result.evaluations[t]),
                seconds=result.seconds / len(ran),
                flags=tuple(sorted(own)),
                spec=cell.attack.spec,
                note="" if result.notes is None else result.notes[t],
                is_decoy=isinstance(cell.attack, OnDecoy),
                certified=None if result.certified is None else int(result.certified[t]),
                labels_proven=None if result.labels_proven is None else int(result.labels_proven[t]),
                solved=None if result.solved is None else bool(result.solved[t]),
                film=() if result.film is None else result.film_steps,
                trace=traces[t],
                labels=None if setup.scored or (read := result.labels_of(t)) is None else tuple(read),
            )
        )
    return rows


def compared(setup: Setup, cell: Cell, findings: Sequence[Finding], earlier: Sequence[Finding]) -> list[Finding]:
    """The findings of a cell, flagged where the mean image or the cell's own control did as well.

    Apart from running, so that cells need not wait for one another.
    """
    guesses = {f.trial: f for f in earlier if f.attack == "mean-image"}
    beside = (cell.label + ON_A_DECOY, cell.defense, cell.adaptive)
    decoys = {f.trial: f for f in earlier if (f.attack, f.defense, f.adaptive) == beside}
    told = []
    for f in findings:
        flags, guess, decoy = set(f.flags), guesses.get(f.trial), decoys.get(f.trial)
        if f.error is None:
            if not cell.attack.baseline and guess and _no_better(setup.data, f.scores, f.records, guess):
                flags.add("no-better-than-mean")
            if decoy and not _beats(setup.data, f.scores, decoy):
                flags.add("no-better-than-decoy")
        told.append(dataclasses.replace(f, flags=tuple(sorted(flags))))
    return told


def _traces(result: Reconstruction) -> list[tuple[float, ...]]:
    """Per trial a few values of the own objective, from the first check of the kept attempt to its last."""
    if result.trace is None:
        return [()] * len(result.objective)
    told = []
    for row in result.trace.detach().double().cpu():
        known = row[torch.isfinite(row)]  # behind its end there is nothing
        picks = torch.linspace(0, max(0, len(known) - 1), min(_TOLD, len(known))).round().long()
        told.append(tuple(float(f"{value:.4g}") for value in known[picks].tolist()))
    return told


def _no_better(
    data: DataSpec, means: Mapping[str, float | None], each: Sequence[Mapping[str, float | None]], guess: Finding
) -> bool:
    """Does the mean of public data score as well, and is no record of the trial recovered by the criterion?"""
    floors = [f for r in guess.records[: len(each)] if (f := r.get("psnr")) is not None]
    mine, floor = means.get("psnr"), sum(floors) / len(floors) if floors else guess.scores.get("psnr")
    rule = criterion_of(data)
    recovered = any(rule.met(r) and beats(rule.metric, r, g) for r, g in zip(each, guess.records, strict=False))
    behind = mine is not None and floor is not None and not beats("psnr", means, {"psnr": floor})
    return behind and not recovered


def _beats(data: DataSpec, means: Mapping[str, float | None], decoy: Finding) -> bool:
    """Does the attack score better than its control? By the criterion's metric; True without a score."""
    name = criterion_of(data).metric
    return means.get(name) is None or beats(name, means, decoy.scores)


def failed(setup: Setup, cell: Cell, trial: int, error: str) -> Finding:
    """A trial that could not be run, as it stands in the table."""
    return Finding(
        cell.label,
        cell.defense,
        cell.adaptive,
        trial,
        setup.scenario.seeds[trial],
        {},
        error=error,
        spec=cell.attack.spec,
        is_decoy=isinstance(cell.attack, OnDecoy),
    )

"""One cell of the table: one attack against one configuration, on all trials or on those that are still missing.

A `TrialRun` sends the model, the clients answer, and the attacker sees what its threat model allows. What the attack
makes of that becomes findings: with scores where the truth is known, and without where it is not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge import catalog
from leakgauge.client.chain import prepared
from leakgauge.client.observe import observe
from leakgauge.client.trained_on import scores_beside
from leakgauge.engine.memory import is_out_of_memory
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.execution.batching import asks_again, at_once, bytes_per_trial, in_batches
from leakgauge.metrics.criterion import beats, criterion_of
from leakgauge.metrics.scoring import Scores, claims_of, score
from leakgauge.metrics.worst_case import with_answers, worst_case
from leakgauge.setup.plan import ON_A_DECOY, Cell, OnDecoy, parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.setup.suites import ALLOWED
from leakgauge.types import (
    BLANK,
    NOT_APPLICABLE,
    Attack,
    Batch,
    DataSpec,
    Defense,
    Fact,
    Finding,
    Known,
    Observation,
    Progress,
    Reconstruction,
    SharedUpdate,
    TamperingServer,
    ThreatModel,
)
from leakgauge.verdict import flags as known_flags
from leakgauge.verdict.film import with_film

FLOOR = ThreatModel(
    "floor",
    "knows the kind of data and nothing of the update",
    "baseline",
    frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.PUBLIC_DATA}),
)
_KEPT = 24  # values of an objective that a report keeps per trial: enough for a curve, little enough for 500 trials
_COPIES = 4  # of an update: the client's, the defended one, and what an attack makes of it
_LARGE = 2**26  # bytes of an update from which one trial must speak for all
_SPEAKERS = 32  # trials that are asked whether a defense does anything
_MOST_QUERIES = 100  # a server that is still not content by then never will be
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

    `notice` gets what is known against the attack before it starts. `last` lends what another part of the same cell has
    prepared.
    """
    wanted = list(range(setup.scenario.trials) if trials is None else trials)
    attack, _ = _played_by(cell)
    try:
        trial_run = (last or LastTrialRun()).of(setup, cell)
        concerns = trial_run.concerns(wanted[0])
        for concern in concerns:
            notice(f"{cell.label}: {known_flags.FLAGS[concern].reason}")
        ran, result = _whole(trial_run.of(wanted, progress), wanted)
        held = _scored(setup, cell, trial_run.defenses, ran, result) if setup.scored else _unscored(result)
    except BadInput:
        raise
    except Exception as error:
        if not isinstance(error, LeakgaugeError) and not is_out_of_memory(error):
            if not catalog.is_users(attack):
                raise
            got = f"{type(error).__name__}: {error}"  # a mistake in the user's own attack takes one line
            do = "correct it; --debug shows where"
            raise BadInput(f"attack {attack.name!r}", allowed="one that runs", got=got, do=do) from error
        kind = NOT_APPLICABLE if isinstance(error, NotApplicable) else ""  # this cell failed; it stays in the table
        text = f"{kind}{str(error) or type(error).__name__}"
        return [failed(setup, cell, trial, text) for trial in wanted], None
    flags = [*known_flags.oracle_flags(trial_run.threat), *concerns, *held.flags]
    if known_flags.ran_out_of_time(attack, held.result):
        flags.append("time-budget-spent")
    if trial_run.defenses and trial_run.defense_did_nothing:
        flags.append("defense-without-effect")
    findings = _findings(setup, cell, ran, held, flags)
    return findings, None if held.kept is None else held.kept.cpu()


def _played_by(cell: Cell) -> tuple[Attack, bool]:
    """The attack that runs, and whether it runs on a decoy."""
    return (cell.attack.attack, True) if isinstance(cell.attack, OnDecoy) else (cell.attack, False)


@dataclass(frozen=True)
class _Held:
    """A reconstruction as it is kept: with its scores, or without any."""

    result: Reconstruction
    scores: Scores
    flags: tuple[str, ...]
    kept: Tensor | None  # (T, (1 + A) N, *shape): what was recovered, further answers or film behind it


def _scored(setup: Setup, cell: Cell, defenses: Sequence[Defense], ran: Sequence[int], result: Reconstruction) -> _Held:
    """The reconstruction of these trials in the order of the truth, and its scores."""
    attack, on_decoy = _played_by(cell)
    truth = _truth(setup, attack, defenses).take(ran)
    result = _as_many_as_there_are(result, truth, setup)
    worst = worst_case(truth, result, setup.data)
    result = result if worst is None else worst.result
    scores = score(truth, result, setup.data, setup.metrics)
    if not (on_decoy or cell.adaptive or attack.baseline):  # an informed attacker gives the client's own samples
        more = scores_beside(truth, result, defenses, [setup.scenario.seeds[t] for t in ran], setup.data)
        scores = dataclasses.replace(scores, records=dict(scores.records) | more)
    size = setup.scenario.batch_size
    kept = None if scores.matched is None else scores.matched[:, :size]
    if kept is not None and worst is not None:
        kept = with_answers(kept, worst.matched[:, :, :size])
    if kept is not None and result.film is not None and scores.order is not None:
        kept = with_film(kept, result.film, scores.order)
    return _Held(result, scores, known_flags.generator_flags(attack, truth), kept)


def _unscored(result: Reconstruction) -> _Held:
    """The reconstruction as it came: nobody knows which answer is closest, or in which order the records were."""
    if result.inputs is None:
        nothing_failed = torch.zeros_like(result.objective, dtype=torch.bool)
        return _Held(result, Scores({}, None, None, nothing_failed), (known_flags.NO_TRUTH,), None)
    _, claims, failed = claims_of(result, result.inputs)
    trials, samples = claims.shape
    claims = claims.reshape(trials, samples, *[1] * (result.inputs.dim() - 2))
    kept = result.inputs.detach().where(claims, torch.nan)
    if result.answers is not None:
        kept = with_answers(kept, result.answers.detach())
    if result.film is not None:
        order = torch.arange(samples, device=kept.device).expand(trials, -1)
        kept = with_film(kept, result.film, order)
    return _Held(result, Scores({}, None, None, failed), (known_flags.NO_TRUTH,), kept)


@dataclass(frozen=True)
class TrialRun:
    """One attack, one configuration, and the clients that hold `behind`."""

    setup: Setup
    attack: Attack
    defenses: tuple[Defense, ...]
    threat: ThreatModel
    behind: Batch | None  # the samples behind the updates; None in a blind audit
    informed: bool = False  # does the attacker know the defenses, and combine several rounds?
    known: tuple[Known, ...] = ()  # what it knows of them

    @cached_property
    def played(self) -> Attack:
        """The attack; of a tampering server, as it is with what it knows."""
        if not isinstance(self.attack, TamperingServer):
            return self.attack
        return reduce(lambda server, k: k.defense.informs_server(server), reversed(self.known), self.attack)

    @cached_property
    def sent(self) -> nn.Module:
        """The model that the clients get first: the global one, or what a tampering server makes of it."""
        if not isinstance(self.played, TamperingServer):
            return self.setup.model
        if self.setup.victims.shared is not None:
            raise NotApplicable(f"{self.played.name} changes the model that a client gets, and this update was saved")
        if self.played.changes not in ALLOWED[self.setup.threat_model.may_change]:
            raise NotApplicable(
                f"{self.played.name} changes the model's {self.played.changes}, which "
                f"{self.setup.threat_model.name!r} may not; use --threat-model malicious-{self.played.changes}"
            )
        return self.played.prepare(self.setup.model, self.setup.data, self.setup.public)

    def concerns(self, trial: int) -> tuple[str, ...]:
        """What is known against the attack before it starts; the same for every trial."""
        if type(self.played).concerns is Attack.concerns:
            return ()
        return self.played.concerns(self._seen([trial], self.sent))

    def of(self, trials: Sequence[int], progress: Progress) -> Reconstruction:
        """What the attack makes of these trials; after an interrupt, of those up to it."""

        def play(some: Sequence[int], attack: Attack, progress: Progress) -> Reconstruction:
            return attack(self._final(some), [self.setup.scenario.seeds[t] for t in some], progress, self.known)

        return in_batches(play, self.played, trials, self.at_once(trials), self.setup.device, progress)

    def at_once(self, trials: Sequence[int]) -> int:
        """How many of these trials one call of the attack takes, by the memory that is free now."""
        if len(trials) == 1 or asks_again(self.played):
            return 1
        updates = (_COPIES + self._rounds) * self._update_bytes()
        return at_once(updates, self._attack_bytes, self.setup.device)

    @cached_property
    def defense_did_nothing(self) -> bool:
        """Is the first update what it would have been without the defenses? The first trials speak for all."""
        if self.setup.victims.shared is not None:
            return False  # nobody knows what it would have been
        few = range(1 if self._update_bytes() > _LARGE else min(_SPEAKERS, self.setup.scenario.trials))
        with_them = self.setup.update(self.defenses, self.sent, self.behind, few)
        return known_flags.is_unchanged(with_them, self.setup.update((), self.sent, self.behind, few))

    def _final(self, rows: Sequence[int]) -> Observation:
        """What the attacker sees at the end: after its only query, or after its last."""
        seen = self._seen(rows, self.sent)
        if not isinstance(self.played, TamperingServer) or not self.played.asks_again:
            return seen
        for asked in range(1, _MOST_QUERIES):
            following = self.played.ask_again(seen, asked)
            if following is None:
                return seen
            seen = self._seen(rows, following)
        raise LeakgaugeError(f"{self.played.name} still asks after {_MOST_QUERIES} queries")

    def _seen(self, rows: Sequence[int], sent: nn.Module) -> Observation:
        model = prepared(sent, *self.defenses)
        update = _no_update(model, len(rows))
        if not self.played.baseline:  # a floor does not look at it, and for large models it costs minutes
            of = self.setup.combined_update if self._rounds > 1 else self.setup.update
            update = of(self.defenses, sent, self.behind, rows, self.informed)
        held = None if self.behind is None else self.behind.take(rows)
        facts = self.setup.facts(model, held, self.threat.facts, self._rounds)
        if self.played.baseline:
            return Observation(model, update, self.threat, {f: v for f, v in facts.items() if f in self.threat.facts})
        return observe(model, update, self.threat, facts, self.setup.scenario.shared_layers)

    @property
    def _rounds(self) -> int:
        """Rounds behind what the attacker looks at."""
        return self.setup.scenario.local.seen if self.informed else 1

    @cached_property
    def _attack_bytes(self) -> int:
        """What the attack holds for one trial."""
        return bytes_per_trial(self.played, self._seen([0], self.sent), self.known)

    def _update_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.sent.parameters() if p.requires_grad)


def _no_update(model: nn.Module, trials: int) -> SharedUpdate:
    zero = next(model.parameters()).new_zeros(())
    shapes = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    return SharedUpdate("gradient", {name: zero.expand(trials, *shape) for name, shape in shapes.items()})


class LastTrialRun:
    """The trial run of the cell that ran last: its parts share what a server prepared for it."""

    def __init__(self) -> None:
        self._last: tuple[Setup, Cell, TrialRun] | None = None

    def of(self, setup: Setup, cell: Cell) -> TrialRun:
        if self._last is None or self._last[0] is not setup or self._last[1] != cell:
            self._last = None  # let go of the old one first
            self._last = setup, cell, _trial_run(setup, cell)
        return self._last[2]


def _trial_run(setup: Setup, cell: Cell) -> TrialRun:
    attack, on_decoy = _played_by(cell)
    defenses = parse_chain(cell.defense)
    behind = None
    if setup.scored:  # the update's own samples; the scores are always those of the truth
        behind = setup.decoys(defenses) if on_decoy else _truth(setup, attack, defenses)
    threat = FLOOR if attack.baseline else setup.threat_model
    return TrialRun(setup, attack, defenses, threat, behind, cell.adaptive, cell.known)


def _truth(setup: Setup, attack: Attack, defenses: Sequence[Defense]) -> Batch:
    return setup.victims.everyone if attack.baseline else setup.behind(defenses)  # a floor stands for every record


def _as_many_as_there_are(result: Reconstruction, truth: Batch, setup: Setup) -> Reconstruction:
    """For an attacker who assumes another number of samples: the first claims, or none for those it missed."""
    if Fact.NUM_SAMPLES not in setup.assumed or result.inputs is None:
        return result
    samples = truth.inputs.shape[1]
    claims = result.inputs[:, :samples]
    missing = claims.new_full((len(claims), samples - claims.shape[1], *claims.shape[2:]), BLANK)
    claimed = torch.ones(claims.shape[:2], dtype=torch.bool) if result.claimed is None else result.claimed[:, :samples]
    claimed = torch.nn.functional.pad(claimed, (0, missing.shape[1]), value=False)
    result = dataclasses.replace(result, answers=None, answer_names=(), film=None, film_steps=())
    return dataclasses.replace(result, inputs=torch.cat((claims, missing), 1), labels=None, claimed=claimed)


def _whole(result: Reconstruction, wanted: Sequence[int]) -> tuple[list[int], Reconstruction]:
    """The trials that an interrupt did not cut off, and what was made of them."""
    if result.finished is None:
        return list(wanted), result
    rows: list[int] = torch.nonzero(result.finished)[:, 0].tolist()
    if not rows:
        raise KeyboardInterrupt
    return [wanted[row] for row in rows], result.take(rows)


def _findings(setup: Setup, cell: Cell, ran: Sequence[int], held: _Held, flags: Sequence[str]) -> list[Finding]:
    result, scores, trials = held.result, held.scores, len(ran)
    size = next((v.shape[1] for v in scores.records.values()), 0)
    counts = ("steps", "evaluations", "certified", "labels_proven")
    columns = {name: _column(getattr(result, name), int, trials) for name in counts}
    columns |= {"objective": _column(result.objective, float, trials), "solved": _column(result.solved, bool, trials)}
    marks = {
        "diverged": scores.failed.tolist(),
        "objective-did-not-fall": (~known_flags.objective_fell(result)).tolist(),
        "never-moved": known_flags.never_moved(result).tolist(),
    }
    accuracies, traces = _column(scores.label_accuracy, float, trials), _traces(result)
    rows = []
    for t, trial in enumerate(ran):
        own = {name: column[t] for name, column in columns.items()}
        own["objective"] = own["objective"] if math.isfinite(own["objective"]) else None
        labels = None if setup.scored else result.labels_of(t)
        rows.append(
            dataclasses.replace(
                _finding(setup, cell, trial),
                scores=scores.means(t) | ({"label_accuracy": accuracies[t]} if setup.scored else {}),
                records=tuple(scores.record(t, i) for i in range(size)),
                seconds=result.seconds / trials,
                flags=tuple(sorted([*flags, *(flag for flag, there in marks.items() if there[t])])),
                note="" if result.notes is None else result.notes[t],
                film=() if result.film is None else result.film_steps,
                trace=traces[t],
                labels=None if labels is None else tuple(labels),
                **own,
            )
        )
    return rows


def _column(tensor: Tensor | None, kind: Callable[[Any], Any], trials: int) -> list[Any]:
    return [None] * trials if tensor is None else [kind(value) for value in tensor.tolist()]


def _finding(setup: Setup, cell: Cell, trial: int) -> Finding:
    """What is known of a trial before it is run."""
    seed, on_decoy = setup.scenario.seeds[trial], isinstance(cell.attack, OnDecoy)
    spec = cell.attack.spec
    return Finding(cell.label, cell.defense, cell.adaptive, trial, seed, scores={}, spec=spec, is_decoy=on_decoy)


def failed(setup: Setup, cell: Cell, trial: int, error: str) -> Finding:
    """A trial that could not be run, as it stands in the table."""
    return dataclasses.replace(_finding(setup, cell, trial), error=error)


def compared(setup: Setup, cell: Cell, findings: Sequence[Finding], earlier: Sequence[Finding]) -> list[Finding]:
    """The findings of a cell, flagged where the mean image or the cell's own control did as well.

    Apart from running, so that cells need not wait for one another.
    """
    guesses = {f.trial: f for f in earlier if f.attack == "mean-image"}
    beside = (cell.label + ON_A_DECOY, cell.defense, cell.adaptive)
    decoys = {f.trial: f for f in earlier if (f.attack, f.defense, f.adaptive) == beside}
    flagged = []
    for f in findings:
        flags, guess, decoy = set(f.flags), guesses.get(f.trial), decoys.get(f.trial)
        if f.error is None:
            if not cell.attack.baseline and guess and _no_better(setup.data, f, guess):
                flags.add("no-better-than-mean")
            if decoy and not _beats(setup.data, f, decoy):
                flags.add("no-better-than-decoy")
        flagged.append(dataclasses.replace(f, flags=tuple(sorted(flags))))
    return flagged


def _traces(result: Reconstruction) -> list[tuple[float, ...]]:
    """Per trial a few values of the own objective, from the first check of the kept attempt to its last."""
    if result.trace is None:
        return [()] * len(result.objective)
    kept = []
    for row in result.trace.detach().double().cpu():
        known = row[torch.isfinite(row)]  # behind its end there is nothing
        picks = torch.linspace(0, max(0, len(known) - 1), min(_KEPT, len(known))).round().long()
        kept.append(tuple(float(f"{value:.4g}") for value in known[picks].tolist()))
    return kept


def _no_better(data: DataSpec, finding: Finding, guess: Finding) -> bool:
    """Does the mean of public data score as well, and is no record of the trial recovered by the criterion?"""
    floors = [f for r in guess.records[: len(finding.records)] if (f := r.get("psnr")) is not None]
    floor = sum(floors) / len(floors) if floors else guess.scores.get("psnr")
    mine, rule = finding.scores.get("psnr"), criterion_of(data)
    pairs = zip(finding.records, guess.records, strict=False)
    recovered = any(rule.met(r) and beats(rule.metric, r, g) for r, g in pairs)
    behind = mine is not None and floor is not None and not beats("psnr", finding.scores, {"psnr": floor})
    return behind and not recovered


def _beats(data: DataSpec, finding: Finding, decoy: Finding) -> bool:
    """Does the attack score better than its control? By the criterion's metric; True without a score."""
    name = criterion_of(data).metric
    return finding.scores.get(name) is None or beats(name, finding.scores, decoy.scores)

"""Does a saved update come from the batch that stands beside it, under the training and the defenses that are claimed?

An attack that is scored against the wrong batch finds nothing, and the audit would call that safety. So the client is
replayed with the batch. What may be left between its update and the one that was shared is rounding, in the precision
of the numbers that were shared and of the arithmetic behind them, and what the client or a defense drew: the order of
mini-batches, dropout, noise. Anything else is refused, with what would fit. An angle alone is no test: on some networks
every picture of a label gives the same update to a cosine of 0.999.

What fits must also fit better than other batches do: the same labels on other samples, the batch mirrored or under
noise, and the batch with one sample changed. Where those fit as well, nobody can tell, and that is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.fedavg import local_steps
from leakgauge.client.summed import behind_one
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.metrics.criterion import criterion_of
from leakgauge.recording.lookalikes import near_batches, other_batches, unlike_batches
from leakgauge.recording.other_training import other_trainings
from leakgauge.recording.redrawn import FARTHER, Redrawn
from leakgauge.recording.replays import Client, Rows
from leakgauge.recording.rounding import LEAST, Matching, left_out_of
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.types import NLL_ON_LOGITS, Batch, Belonging, Defense, Finding, LocalTraining
from leakgauge.verdict.roles import is_attack

_LEFT_OUT = 0.05  # share of entries that are zero from which some count as left out
_SOLVED = 1e-7  # of where a search began: what is left of the objective then is rounding
_OPPOSITE, _TIMES = "its opposite", "times that"
_UNLIKE, _LONGER = 0.5, 2.0  # a cosine and a ratio of lengths beyond which draws explain nothing


def belonging(setup: Setup) -> Belonging | None:
    """What replaying the clients of a saved update says; None for simulated ones. Refuses what cannot be."""
    if setup.victims.shared is None:
        return None
    chain = parse_chain(setup.scenario.defenses[0]) if setup.scenario.defenses else ()
    if behind_one(chain) > 1:
        return Belonging(False, "batch-unproven", "the other clients of the sum are not at hand")
    names = tuple(setup.victims.shared.tensors)
    matching = Matching(setup.victims.shared, names, setup.batch, tuple(setup.scenario.seeds))
    return _Check(setup, Client(setup.model, setup.scenario.local, chain, names), matching).result()


def origin_of(setup: Setup, findings: Sequence[Finding]) -> Belonging:
    """What replays say of the batch, and then what the attacks say of it.

    An attack that explains the update to the last digit with other records speaks against the batch, or says that the
    update leaves its records open.
    """
    if setup.victims.belonging is None:
        return Belonging(True)
    if setup.victims.belonging.sure and any(_explains_with_others(setup, f) for f in findings):
        return Belonging(False, "explained-by-others", "an attack explains it to the last digit with other records")
    return setup.victims.belonging


def _explains_with_others(setup: Setup, finding: Finding) -> bool:
    if not is_attack(finding) or finding.error or not finding.trace:
        return False
    start, objective = finding.trace[0], finding.objective
    solved = objective is not None and finding.steps > 0 and 0 <= objective <= _SOLVED * start
    claimed = [r for r in finding.records if any(v is not None for v in r.values())]
    return solved and bool(claimed) and not any(criterion_of(setup.data).met(r) for r in claimed)


@dataclass
class _Check:
    setup: Setup
    client: Client
    matching: Matching

    def __post_init__(self) -> None:
        self.batch, self.seeds, self.seen = self.matching.batch, self.matching.seeds, self.matching.seen
        began = time.perf_counter()
        self.exact = self.client.replay(self.batch, self.seeds)
        self.seconds = (time.perf_counter() - began) / self.batch.trials

    def result(self) -> Belonging:
        """In order: is it rounding; can it be what was drawn; else what would fit."""
        drawing = self.client.drawing(self.batch.take([0]), self.seeds[:1])
        if not drawing and (arithmetic := self.matching.explained(self.exact, self.client)) is not None:
            return self._told_apart(arithmetic)
        self._refuse_defense_that_did_nothing(drawing)
        size = self.batch.labels.shape[1]
        if drawing or self.client.shuffles(size) or self.client.drops():
            return self._drawn(drawing, order=self.client.shuffles(size), drops=self.client.drops())
        raise self._refusal()

    # --- what can be recomputed ----------------------------------------------------------------------

    def _told_apart(self, arithmetic: str) -> Belonging:
        """The batch gives the update. Do other batches as well?"""
        tolerance = self.matching.tolerance(arithmetic, self.exact, self.client)
        mine = self.matching.match(self.exact, tolerance)
        for others in self._near_side_by_side():
            theirs = self.matching.match(self.client.replay(others, self.seeds), tolerance)
            if not theirs.is_clearly_further_than(mine):
                return Belonging(False, "batch-unproven", "other batches give the same update")
        return Belonging(True)

    def _near_side_by_side(self) -> Iterator[Batch]:
        """The same kind of other batch for all trials at once; a trial that has fewer goes on with its last."""
        each = [self._look_alikes(near_batches, t) for t in range(self.batch.trials)]
        for number in range(max(map(len, each))):
            chosen = [o[min(number, len(o) - 1)] if o else self.batch.take([t]) for t, o in enumerate(each)]
            yield Batch(torch.cat([b.inputs for b in chosen]), torch.cat([b.labels for b in chosen]))

    def _look_alikes(self, kind: Callable[..., list[Batch]], trial: int) -> list[Batch]:
        pools = [pool for pool in (self.setup.public, self.setup.others) if pool is not None]
        return kind(self.batch.take([trial]), pools, self.seeds[trial], self.setup.data)

    # --- what was drawn ------------------------------------------------------------------------------

    def _drawn(self, drawing: Sequence[Defense], *, order: bool, drops: bool) -> Belonging:
        kinds = [w for w, there in (("the order of mini-batches", order), ("dropout", drops)) if there]
        left_out = bool(drawing) and not kinds and self._is_left_out(drawing)
        for trial in range(self.batch.trials):
            told = self._redrawn(trial, order, drops)
            size = told.size()
            if drawing and size.low:
                raise self._contradiction(trial, "less was added to it or left out of it than that does")
            if size.high:
                if drawing:
                    raise self._contradiction(trial, "it is further from what the batch gives than that explains")
                if self._is_far(trial):
                    raise self._refusal()
                unlike = f"it is further from what the batch gives than {' and '.join(kinds)} would explain"
                return Belonging(False, "batch-unproven", unlike)
            if left_out:
                continue
            if (why := told.no_nearer()) is not None:
                if why == FARTHER and not drawing and self._is_far(trial):
                    raise self._refusal()
                if why == FARTHER and drawing:
                    raise self._contradiction(trial, "other batches with these labels explain it as well as this one")
                explained = f"{why}" if drawing else f"{why}; {' and '.join(kinds)} cannot be replayed"
                return Belonging(False, "batch-unproven", explained)
        return Belonging(True, "batch-only-alike" if kinds else "")

    def _is_left_out(self, drawing: Sequence[Defense]) -> bool:
        """Is what was shared, where it is not zero, the batch's update without what is drawn, and no near batch's?"""
        plain = self.client.under([d for d in self.client.defenses if d not in drawing])
        made = plain.replay(self.batch, self.seeds)
        if not _alike(made, self.seen):
            return False
        gone, expected = left_out_of(made, self.seen), left_out_of(made, self.exact)
        if bool((torch.minimum(gone, expected) < _LEFT_OUT).any()):
            return False
        if (other := (gone - expected).abs() > _LEFT_OUT).any():
            trial = int(other.int().argmax())
            raise self._contradiction(
                trial, f"{gone[trial]:.0%} of it is left out, where {expected[trial]:.0%} should be"
            )
        kept, factor = self.matching.kept_of(made)
        rounding = self.matching.tolerance("tf32 or float16", made, plain)
        tolerance = {n: factor.abs().clamp_min(1) * rows for n, rows in rounding.items()}
        mine = self.matching.match(kept, tolerance)
        if not mine.all_fit:
            return False
        for others in self._near_side_by_side():
            theirs, _ = self.matching.kept_of(plain.replay(others, self.seeds))
            if not self.matching.match(theirs, tolerance).is_clearly_further_than(mine):
                return False
        return True

    def _redrawn(self, trial: int, order: bool, drops: bool) -> Redrawn:
        rounding = {
            n: float((g[trial].pow(2).mean() + (LEAST * self.exact[n][trial]).pow(2).mean()).sqrt())
            for n, g in self.matching.grids.items()
        }
        batch, seed = self.batch.take([trial]), self.seeds[trial]
        return Redrawn(
            self.client,
            batch,
            seed,
            {name: rows[trial] for name, rows in self.seen.items()},
            rounding,
            self._look_alikes(other_batches, trial),
            unlike_batches(batch, seed, self.setup.data),
            self.seconds,
            order,
            drops,
        )

    def _is_far(self, trial: int) -> bool:
        cosine, factor = _likeness(self.exact, self.seen, trial)
        return abs(cosine) < _UNLIKE or not 1 / _LONGER < factor < _LONGER

    # --- what to say ---------------------------------------------------------------------------------

    def _refuse_defense_that_did_nothing(self, drawing: Sequence[Defense]) -> None:
        """Is it the update without the defenses, or without what they draw?"""
        chain = self.client.defenses
        if not chain:
            return
        declared = self.setup.scenario.defenses[0]
        for kept in dict.fromkeys((tuple(d for d in chain if d not in drawing), ())):
            if kept == chain:
                continue
            plain = self.client.under(kept)
            made = plain.replay(self.batch, self.seeds)
            if not _alike(made, self.seen):
                continue
            if self.matching.explained(made, plain, unlike=self.exact) is not None:
                missing = "the defense" if not kept else "what it draws"
                raise BadInput(
                    "update",
                    allowed=f"what the batch gives under --defenses {declared}",
                    got=f"what the batch gives without {missing}",
                    do="the declared defense was not applied: check the client, or leave it out of --defenses",
                )

    def _contradiction(self, trial: int, how: str) -> BadInput:
        declared = self.setup.scenario.defenses[0]
        which = f" of client {trial}" if self.batch.trials > 1 else ""
        return BadInput(
            f"update{which}",
            allowed=f"what the batch gives under --defenses {declared}",
            got=f"another one: {how}",
            do="check the batch, --weights, --local, and the strength of the defense as the client applied it",
        )

    def _refusal(self) -> BadInput:
        """The worst client's likeness, and the first change of the claims that would explain the update."""
        worst = min(range(self.batch.trials), key=lambda t: abs(_likeness(self.exact, self.seen, t)[0]))
        cosine, factor = _likeness(self.exact, self.seen, worst)
        local, allowed = self.setup.scenario.local, "what the batch in --data gives"
        if self.setup.scenario.defenses:
            allowed += f" under --defenses {self.setup.scenario.defenses[0]}"
        if self._fits_scaled(factor if cosine > 0 else -factor):
            return _scaled(cosine, factor, local, allowed)
        for do in self._causes():
            return BadInput("update", allowed=allowed, got="another one", do=do)
        if cosine < -_UNLIKE:
            return _scaled(cosine, factor, local, allowed)
        claimed = ""
        if local.kind == "fedavg":
            steps = local_steps(self.batch.labels.shape[1], local)
            claimed = f" (claimed: lr={local.lr:g}, epochs={local.epochs}, batch_size={local.batch_size}, no momentum"
            claimed += f"; {steps} steps)"
        named = "" if self.setup.scenario.defenses else "; name a defense that changed it with --defenses"
        return BadInput(
            "update",
            allowed=allowed,
            got=f"one with a cosine of {_near_one(cosine)} to that and {factor:.2g} times as long: more than rounding",
            do=f"check the batch, --weights, --local{claimed}, and batchnorm=train if there is BatchNorm{named}",
        )

    def _fits_scaled(self, factor: float) -> bool:
        if factor == 0:
            return False
        made = {name: factor * rows for name, rows in self.exact.items()}
        tolerance = self.matching.tolerance("tf32 or float16", self.exact, self.client)
        return self.matching.match(
            made, {name: abs(factor) * rows + self.matching.grids[name] for name, rows in tolerance.items()}
        ).all_fit

    def _causes(self) -> Iterator[str]:
        """Other claims under which the batch would give the update, each as what to do."""
        local = self.setup.scenario.local
        other = "train" if local.batchnorm == "eval" else "eval"
        tries: list[tuple[LocalTraining, str]] = []
        if any(isinstance(m, _BatchNorm) for m in self.setup.model.modules()):
            tries.append((replace(local, batchnorm=other), f"it fits --local batchnorm={other}: say so"))
        if local.loss != NLL_ON_LOGITS:
            tries.append((replace(local, loss=NLL_ON_LOGITS), f"it fits --local loss={NLL_ON_LOGITS}: say so"))
        for claim, do in tries:
            client = replace(self.client, local=claim)
            try:
                made = client.replay(self.batch, self.seeds)
            except (LeakgaugeError, ValueError, RuntimeError):  # BatchNorm of one value, say
                continue
            if self.matching.explained(made, client) is not None:
                yield do
        if self.client.defenses:
            return
        for training in other_trainings(self.client, self.batch.labels.shape[1]):
            try:
                made = training.replay(self.client, self.batch)
            except (ValueError, RuntimeError):
                continue
            if self.matching.match(made, self.matching.roughly(made, self.client)).all_fit:
                yield f"it fits {training.words}, which cannot be claimed yet: train without it, or --blind"


def _alike(made: Rows, seen: Rows) -> bool:
    return made.keys() == seen.keys() and all(made[n].shape == seen[n].shape for n in made)


def _likeness(made: Rows, seen: Rows, trial: int) -> tuple[float, float]:
    """Cosine of the update with a replay, and its length over that one's; of any size, as long as it is not zero."""
    mine, theirs = (torch.cat([rows[name][trial] for name in made]) for rows in (made, seen))
    (a, b) = (float(v.abs().max()) for v in (mine, theirs))
    if not a or not b:
        return 0.0, 0.0
    mine, theirs = mine / a, theirs / b
    return float(torch.nn.functional.cosine_similarity(mine, theirs, dim=0)), float(theirs.norm() / mine.norm()) * b / a


def _scaled(cosine: float, factor: float, local: LocalTraining, allowed: str) -> BadInput:
    if cosine < 0:
        do = "a weight difference is weights after minus weights before, and is said with --local kind=fedavg"
        if local.kind == "fedavg":
            do = (
                "a gradient is said with --local kind=fedsgd; a weight difference is weights after minus weights before"
            )
        return BadInput("update", allowed=allowed, got=f"{_OPPOSITE}, {factor:.3g} times as long", do=do)
    do = "share the mean gradient, not a sum, or say --local kind=fedavg for a weight difference"
    if local.kind == "fedavg":
        do = f"if it is the learning rate, say --local lr={factor * local.lr:.3g} (now {local.lr:g})"
    return BadInput("update", allowed=allowed, got=f"{factor:.3g} {_TIMES}", do=do)


def _near_one(cosine: float) -> str:
    """0.9998 is not 1, and is not written so."""
    return f"{cosine:.3g}" if abs(cosine) < 0.9995 else f"{cosine:.9f}".rstrip("0")

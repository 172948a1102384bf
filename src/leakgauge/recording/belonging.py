"""Does a saved update come from the batch that stands beside it, under the training and the defenses that are claimed?

An attack that is scored against the wrong batch finds nothing, and the audit would call that safety. So the client is
replayed with the batch. What may be left between its update and the one that was shared is rounding (of the numbers
that were shared, whose precision they show themselves, and of the arithmetic behind them, which is tried out on the
client at hand) and what the client or a defense drew: the order of mini-batches, dropout, noise. Anything else is
refused, with what would fit. An angle alone is no test: on some networks every picture of a label gives the same update
to a cosine of 0.999.

What fits must also fit better than other batches do: the same labels on other samples, the batch mirrored or under
noise, and the batch with one sample changed. Where those fit as well, nobody can tell, and the result says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from leakgauge.client.fedavg import local_steps
from leakgauge.client.summed import behind_one
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.matching.shared_precision import shared_precision
from leakgauge.metrics.criterion import criterion_of
from leakgauge.recording.lookalikes import near_batches, other_batches, unlike_batches
from leakgauge.recording.other_claims import OtherClaim, as_text, other_claims, rounded_claims, solved_for
from leakgauge.recording.redrawn import FARTHER, Redrawn
from leakgauge.recording.replays import SINGLE, ReplayedClient, Rows, flat
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.types import Batch, Belonging, Client, Defense, Finding, SharedUpdate
from leakgauge.verdict.roles import is_attack

_SOLVED = 1e-7  # of where a search began: what is left of the objective then is rounding
_UNLIKE, _LONGER = 0.5, 2.0  # a cosine and a ratio of lengths beyond which draws explain nothing
_HALF, _BFLOAT16 = 10, 7  # bits of mantissa of tf32 and float16, and of bfloat16
_LEAST = 2e-5  # of a tensor's average entry: kernels of other machines add up in another order
_ROUNDING = 8.0  # an entry may be off by so many times what rounding does to its tensor on average
_ROUGHLY = 2e-3  # of a tensor's average entry
_STRAY = 0.02  # share of a tensor's entries that may be further off: a compression's threshold flips some
_FEW = 2  # and so many entries of a small tensor
_APART, _SURELY = 3.0, 5  # so many times as many entries are off, and so many more, where another way is no way
_SHAKEN, _OFTEN = 6, 4.0  # replays whose rounding is shaken, and how much further than them an entry may be off
_NAMING, _NAMING_FIRST = 30.0, 5.0  # seconds of computing that the search for a claim that fits may take
_OTHER_RATE = 0.02  # of the rate, from which another one is tried
_NEAREST = 3  # claims whose rate, decay and momentum are solved for
_CLOSE = 0.3  # of a tensor's average entry: what is left of half of the entries where a claim is nearly right
_LEFT_OUT = 0.05  # share of entries that are zero from which some count as left out


Again = Callable[..., Rows]  # a replay in other arithmetic: (bits=, shaken=)


def belonging(setup: Setup) -> Belonging | None:
    """The result of replaying the clients of a saved update; None for simulated ones. Refuses what cannot be."""
    if setup.victims.shared is None:
        return None
    chain = parse_chain(setup.scenario.defenses[0]) if setup.scenario.defenses else ()
    if behind_one(chain) > 1:
        return Belonging(False, "batch-unproven", "the other clients of the sum are not at hand")
    return _Check(setup, setup.victims.shared, chain).result()


def origin_of(setup: Setup, findings: Sequence[Finding]) -> Belonging:
    """The result of the replays, or that of the attacks if they contradict it.

    An attack that explains the update to the last digit with other records speaks against the batch, or shows that the
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


@dataclass(frozen=True)
class _Match:
    """How far a replay is from what was shared, trial by trial."""

    off: Tensor  # (T,) entries that rounding does not explain
    fits: Tensor  # (T,) bool

    @property
    def all_fit(self) -> bool:
        return bool(self.fits.all())

    def is_clearly_further_than(self, other: _Match) -> bool:
        """In every trial."""
        return bool((self.off > _APART * other.off + _SURELY).all())


class _Check:
    """What was shared, beside replays of its batch (T, N)."""

    def __init__(self, setup: Setup, shared: SharedUpdate, chain: tuple[Defense, ...]) -> None:
        self.setup, self.shared, self.batch, self.seeds = setup, shared, setup.batch, setup.scenario.seeds
        self.local, self.declared = setup.scenario.local, (*setup.scenario.defenses, "")[0]
        names = tuple(shared.tensors)
        self.client = ReplayedClient(setup.model, self.local, chain, names)
        self.seen = flat(shared, names)
        self.grids = self._grids()
        self._shaken: dict[tuple[Client, tuple[Defense, ...], int | None], Rows] = {}
        began = time.perf_counter()
        self.exact = self.client.replay(self.batch, self.seeds)
        self.seconds = (time.perf_counter() - began) / self.batch.trials

    def _grids(self) -> Rows:
        """(T, P) how far rounding moved each number that was shared."""
        grids = []
        for t in range(self.shared.trials):
            precision = shared_precision([tensor[t] for tensor in self.shared.tensors.values()])
            half = {n: 0.5 * (precision.relative * seen[t].abs() + precision.spacing) for n, seen in self.seen.items()}
            grids.append(half)
        return {name: torch.stack([half[name] for half in grids]) for name in self.seen}

    def result(self) -> Belonging:
        """In order: is it rounding; can it be what was drawn; else what would fit.

        A claim a little beside the one made can pass for coarse arithmetic, so that one is looked for before.
        """
        drawing = self.client.drawing(self.batch.take([0]), self.seeds[:1])
        itself = self.client.draws_itself(self.batch.take([0]), self.seeds[:1])
        if not drawing and not itself:
            for bits in (SINGLE, _HALF, _BFLOAT16):
                if bits == _HALF:
                    self._refuse_if_named(self._claim_nearby())
                if self._explained(self.exact, self.client, (bits,)) is not None:
                    return self._compared_with_others(bits)
        self._refuse_defense_that_did_nothing(drawing)
        order, drops = self.client.shuffles(self.batch.labels.shape[1]), self.client.drops()
        if order and not (drawing or drops or itself):  # what the order would hide, if the order was the one given
            self._refuse_if_named(self._fitting_claim(_NAMING_FIRST))
        if drawing or order or drops or itself:
            return self._drawn(drawing, order, drops, itself)
        raise self._refusal()

    # --- rounding ------------------------------------------------------------------------------------

    def _explained(
        self,
        made: Rows,
        client: ReplayedClient,
        arithmetic: Sequence[int] = (SINGLE, _HALF, _BFLOAT16),
        unlike: Rows | None = None,
    ) -> int | None:
        """Bits of the finest arithmetic of the client whose rounding explains what its replay leaves; None if none.

        None counts in which `unlike`, another way to the update, would look much the same.
        """
        for bits in arithmetic:
            tolerance = self._tolerance(made, client, bits)
            found = self._match(made, tolerance)
            if found.all_fit:
                other = None if unlike is None else self._match(made, tolerance, unlike)
                return bits if other is None or other.is_clearly_further_than(found) else None
        return None

    def _tolerance(self, made: Rows, client: ReplayedClient, bits: int | None, again: Again | None = None) -> Rows:
        """(T, P) how far off an entry of the client's replay may be in such arithmetic; roughly without `bits`.

        Where rounding turns the sign of a gradient near zero, an optimiser that divides by sizes takes a whole step the
        other way. That is tried for every entry by itself: an average over a tensor would let all of them go astray.
        """
        again = again or partial(client.replay, self.batch, self.seeds)
        moved: Rows
        if bits is None:
            moved = {name: _ROUGHLY * _average(rows) for name, rows in made.items()}
        elif client.turns_signs:
            moved = self._moved_by_rounding(made, client, bits, again)
        else:
            coarsely = again(bits=bits)
            moved = {name: _ROUNDING * _average(coarsely[name] - rows) for name, rows in made.items()}
        before = {n: p.detach().double().flatten() for n, p in client.model.named_parameters()}
        stored = shared_precision(list(client.model.parameters()))  # a difference is of weights, on their own grid
        found = {}
        for name, rows in made.items():
            found[name] = 1.01 * self.grids[name] + moved[name] + _LEAST * _average(rows)
            if self.shared.kind == "weight_delta" and len(before[name]) == rows.shape[1]:
                found[name] = found[name] + stored.relative * before[name].abs() + stored.spacing
        return found

    def _moved_by_rounding(self, made: Rows, client: ReplayedClient, bits: int, again: Again) -> Rows:
        """(T, P) the furthest that an entry was off in replays whose rounding was shaken, and some more."""
        key = client.local, client.defenses, bits
        if key not in self._shaken:
            far = {name: torch.zeros_like(rows) for name, rows in made.items()}
            for number in range(_SHAKEN):
                shaken = again(bits=bits, shaken=number)
                far = {n: torch.maximum(rows, (shaken[n] - made[n]).abs()) for n, rows in far.items()}
            self._shaken[key] = {n: _OFTEN * rows for n, rows in far.items()}
        return self._shaken[key]

    def _match(self, made: Rows, tolerance: Rows, seen: Rows | None = None) -> _Match:
        """`made` beside what was shared, or beside `seen` in its place."""
        off, fits = torch.zeros(len(self.seeds)), torch.ones(len(self.seeds), dtype=torch.bool)
        for name, rows in made.items():
            wrong = (((seen or self.seen)[name] - rows).abs() > tolerance[name]).sum(1).cpu()
            off += wrong
            fits &= wrong <= _STRAY * rows.shape[1] + _FEW
        return _Match(off, fits)

    # --- what can be recomputed ----------------------------------------------------------------------

    def _compared_with_others(self, bits: int) -> Belonging:
        """The batch gives the update. Do other batches as well?"""
        tolerance = self._tolerance(self.exact, self.client, bits)
        mine = self._match(self.exact, tolerance)
        for others in self._near_side_by_side():
            theirs = self._match(self.client.replay(others, self.seeds), tolerance)
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

    def _drawn(self, drawing: Sequence[Defense], order: bool, drops: bool, itself: bool) -> Belonging:
        named = (("the order of mini-batches", order), ("dropout", drops), (f"what {self.local.fit} draws", itself))
        kinds = [words for words, there in named if there]
        left_out = bool(drawing) and not kinds and self._is_left_out(drawing)
        for trial in range(self.batch.trials):
            redrawn = self._redrawn(trial, order, drops)
            near, far = redrawn.too_near_or_far()
            if drawing and near:
                raise self._contradiction(trial, "less was added to it or left out of it than that does")
            if far:
                if drawing:
                    raise self._contradiction(trial, "it is further from what the batch gives than that explains")
                if self._is_far(trial):
                    raise self._refusal()
                unlike = f"it is further from what the batch gives than {' and '.join(kinds)} would explain"
                return Belonging(False, "batch-unproven", unlike)
            if left_out:
                continue
            if (why := redrawn.no_nearer()) is not None:
                if why == FARTHER and not drawing and self._is_far(trial):
                    raise self._refusal()
                if why == FARTHER and drawing:
                    raise self._contradiction(trial, "other batches with these labels explain it as well as this one")
                explained = why if drawing else f"{why}; {' and '.join(kinds)} cannot be replayed"
                return Belonging(False, "batch-unproven", explained)
        return Belonging(True, "batch-only-alike" if kinds else "")

    def _is_left_out(self, drawing: Sequence[Defense]) -> bool:
        """Is what was shared, where it is not zero, the batch's update without what is drawn, and no near batch's?"""
        plain = replace(self.client, defenses=tuple(d for d in self.client.defenses if d not in drawing))
        made = plain.replay(self.batch, self.seeds)
        if not _same_shapes(made, self.seen):
            return False
        gone, expected = (_share_left_out(made, seen) for seen in (self.seen, self.exact))
        if bool((torch.minimum(gone, expected) < _LEFT_OUT).any()):
            return False
        if (other := (gone - expected).abs() > _LEFT_OUT).any():
            t = int(other.int().argmax())
            raise self._contradiction(t, f"{gone[t]:.0%} of it is left out, where {expected[t]:.0%} should be")
        kept, factor = self._kept_of(made)
        tolerance = {n: factor.abs().clamp_min(1) * rows for n, rows in self._tolerance(made, plain, _HALF).items()}
        mine = self._match(kept, tolerance)
        if not mine.all_fit:
            return False
        others = (self._kept_of(plain.replay(batch, self.seeds))[0] for batch in self._near_side_by_side())
        return all(self._match(theirs, tolerance).is_clearly_further_than(mine) for theirs in others)

    def _kept_of(self, made: Rows) -> tuple[Rows, Tensor]:
        """(T, P) of a replay what was not left out of the update, at the one factor (T, 1) that fits best."""
        along = torch.stack([(self.seen[n] * rows).sum(1) for n, rows in made.items()]).sum(0)
        size = torch.stack([((self.seen[n] != 0) * rows.square()).sum(1) for n, rows in made.items()]).sum(0)
        factor = (along / size.clamp_min(1e-300))[:, None]
        return {n: torch.where(self.seen[n] != 0, factor * rows, 0) for n, rows in made.items()}, factor

    def _redrawn(self, trial: int, order: bool, drops: bool) -> Redrawn:
        batch, seed = self.batch.take([trial]), self.seeds[trial]
        return Redrawn(
            self.client,
            batch,
            seed,
            shared={name: rows[trial] for name, rows in self.seen.items()},
            rounding={
                n: float((g[trial].square().mean() + (_LEAST * self.exact[n][trial]).square().mean()).sqrt())
                for n, g in self.grids.items()
            },
            others=self._look_alikes(other_batches, trial),
            probes=unlike_batches(batch, seed, self.setup.data),
            seconds=self.seconds,
            order=order,
            drops=drops,
        )

    def _is_far(self, trial: int) -> bool:
        cosine, factor = _likeness(self.exact, self.seen, trial)
        return abs(cosine) < _UNLIKE or not 1 / _LONGER < factor < _LONGER

    # --- refusals ------------------------------------------------------------------------------------

    def _refuse_defense_that_did_nothing(self, drawing: Sequence[Defense]) -> None:
        """Is it the update without the defenses, or without what they draw?"""
        chain = self.client.defenses
        for kept in dict.fromkeys((tuple(d for d in chain if d not in drawing), ())):
            if kept == chain:
                continue
            plain = replace(self.client, defenses=kept)
            made = plain.replay(self.batch, self.seeds)
            if _same_shapes(made, self.seen) and self._explained(made, plain, unlike=self.exact) is not None:
                got = f"what the batch gives without {'what it draws' if kept else 'the defense'}"
                do = "the declared defense was not applied: check the client, or leave it out of --defenses"
                raise BadInput("update", allowed=self._allowed("the batch"), got=got, do=do)

    def _allowed(self, batch: str) -> str:
        return f"what {batch} gives" + (f" under --defenses {self.declared}" if self.declared else "")

    def _contradiction(self, trial: int, how: str) -> BadInput:
        which = f" of client {trial}" if self.batch.trials > 1 else ""
        do = "check the batch, --weights, --local, and the strength of the defense as the client applied it"
        return BadInput(f"update{which}", allowed=self._allowed("the batch"), got=f"another one: {how}", do=do)

    def _refusal(self) -> BadInput:
        """The worst client's likeness, and the first change of the claims that would explain the update."""
        likenesses = (_likeness(self.exact, self.seen, t) for t in range(self.batch.trials))
        cosine, factor = min(likenesses, key=lambda likeness: abs(likeness[0]))
        got, do = _scaled(cosine, factor, self.local)
        if not self._fits_scaled(factor if cosine > 0 else -factor):
            if (fitting := self._fitting_claim(_NAMING)) is not None:
                got, do = "another one", f"it fits {fitting.words}"
            elif cosine >= -_UNLIKE:
                angle = f"one with a cosine of {_near_one(cosine)} to that"
                got = f"{angle} and {factor:.2g} times as long: more than rounding"
                do = f"check the batch, --weights, --local{self._claimed()}, and batchnorm=train if there is BatchNorm"
                do += "" if self.declared else "; name a defense that changed it with --defenses"
        return self._refused(got, do)

    def _refuse_if_named(self, other: OtherClaim | None) -> None:
        if other is not None:
            raise self._refused("another one", f"it fits {other.words}")

    def _refused(self, got: str, do: str) -> BadInput:
        return BadInput("update", allowed=self._allowed("the batch in --data"), got=got, do=do)

    def _claimed(self) -> str:
        if self.local.kind != "fedavg":
            return ""
        return f" (claimed: {as_text(self.local)}; {local_steps(self.batch.labels.shape[1], self.local)} steps)"

    def _fits_scaled(self, factor: float) -> bool:
        tolerance = self._tolerance(self.exact, self.client, _HALF)
        wider = {name: abs(factor) * rows + self.grids[name] for name, rows in tolerance.items()}
        return factor != 0 and self._match({n: factor * rows for n, rows in self.exact.items()}, wider).all_fit

    # --- what would fit ------------------------------------------------------------------------------

    def _claim_nearby(self) -> OtherClaim | None:
        """The claim with another rate, decay or momentum, to the last digit; None if there is none or it takes long."""
        if self.local.kind != "fedavg" or self.local.fit or self.client.defenses:
            return None
        return self._solved(self.local, time.thread_time() + _NAMING)

    def _solved(self, start: Client, until: float) -> OtherClaim | None:
        near, steps = self._left(self._replayed(OtherClaim(start))), local_steps(self.batch.labels.shape[1], start)
        if near is None or near > _CLOSE:
            return None
        for claim in solved_for(start, self.seen, lambda local: OtherClaim(local).replay(*self._behind), steps, until):
            if self._fits(OtherClaim(claim)):
                return next((o for o in map(OtherClaim, rounded_claims(claim, start)) if self._fits(o)), None)
        return None

    def _fitting_claim(self, seconds: float) -> OtherClaim | None:
        """The first other claim under which the batch gives the update, else the nearest of those that nearly do."""
        if self.local.fit:
            return None
        until, left = time.thread_time() + seconds, list[tuple[float, int, OtherClaim]]()
        for tried in (OtherClaim(self.local), *other_claims(self.client, self.batch.labels.shape[1])):
            if self.client.defenses and tried.local.optimizer != self.local.optimizer:
                continue
            if time.thread_time() > until:
                break
            for other, made in self._at_rates(tried):
                gone = self._left(made)
                if gone is None or gone > _CLOSE:
                    continue
                if self._fits(other):
                    return other
                left.append((gone, len(left), other))
        averaging = self.local.kind == "fedavg" and not self.client.defenses
        for _, _, other in sorted(left)[: _NEAREST * averaging]:
            claim = None if other.one_hot or time.thread_time() > until else self._solved(other.local, until)
            if claim is not None:
                return claim
        return next((other for _, _, other in sorted(left) if self._fits(other, roughly=True)), None)

    def _at_rates(self, other: OtherClaim) -> Iterator[tuple[OtherClaim, Rows | None]]:
        """The claim, and the same at the rate that makes the update as long as it is; with their replays."""
        made = self._replayed(other)
        yield other, made
        if other.local.kind != "fedavg" or made is None or not _same_shapes(made, self.seen):
            return
        cosine, factor = _likeness(made, self.seen, 0)
        if cosine > _UNLIKE and abs(factor - 1) > _OTHER_RATE:
            scaled = replace(other, local=replace(other.local, lr=float(f"{factor * other.local.lr:.2g}")))
            yield scaled, self._replayed(scaled)

    @property
    def _behind(self) -> tuple[ReplayedClient, Batch, Sequence[int]]:
        return self.client, self.batch, self.seeds

    def _replayed(self, other: OtherClaim) -> Rows | None:
        try:
            return other.replay(*self._behind)
        except (LeakgaugeError, ValueError, RuntimeError):  # BatchNorm of one value, say
            return None

    def _left(self, made: Rows | None) -> float | None:
        """What a replay leaves of half of the entries, in average entries of their tensors; of the worst trial."""
        if made is None or not _same_shapes(made, self.seen):
            return None
        rows = [(self.seen[n] - made[n]).abs() / _average(self.seen[n]).clamp_min(1e-30) for n in made]
        return float(torch.cat(rows, 1).median(1).values.max())

    def _fits(self, other: OtherClaim, roughly: bool = False) -> bool:
        """To the last digit, or to a few."""
        made = self._replayed(other)
        if made is None or not _same_shapes(made, self.seen):
            return False
        client = replace(self.client, local=other.local)
        bits = None if roughly else SINGLE
        again = partial(other.replay, *self._behind)
        tolerance = self._tolerance(made, client, bits, again)
        return self._match(made, tolerance).all_fit


def _average(rows: Tensor) -> Tensor:
    """(T, 1) root of the mean square of entries."""
    return rows.pow(2).mean(1, keepdim=True).sqrt()


def _share_left_out(made: Rows, seen: Rows) -> Tensor:
    """(T,) the share of a replay's entries that are zeros in what was seen."""
    here = torch.stack([(rows != 0).sum(1) for rows in made.values()]).sum(0)
    gone = torch.stack([((rows != 0) & (seen[n] == 0)).sum(1) for n, rows in made.items()]).sum(0)
    return gone.cpu() / here.clamp_min(1).cpu()


def _same_shapes(made: Rows, seen: Rows) -> bool:
    return made.keys() == seen.keys() and all(made[n].shape == seen[n].shape for n in made)


def _likeness(made: Rows, seen: Rows, trial: int) -> tuple[float, float]:
    """Cosine of the update with a replay, and its length over that one's; of any size, as long as it is not zero."""
    mine, theirs = (torch.cat([rows[name][trial] for name in made]) for rows in (made, seen))
    a, b = (float(v.abs().max()) for v in (mine, theirs))
    if not a or not b:
        return 0.0, 0.0
    mine, theirs = mine / a, theirs / b
    return float(torch.nn.functional.cosine_similarity(mine, theirs, dim=0)), float(theirs.norm() / mine.norm()) * b / a


def _scaled(cosine: float, factor: float, local: Client) -> tuple[str, str]:
    """What came and what to do, where the update is a multiple of what the batch gives."""
    averaging, after = local.kind == "fedavg", "a weight difference is weights after minus weights before"
    if cosine < 0:
        do = f"a gradient is said with --local kind=fedsgd; {after}"
        if not averaging:
            do = f"{after}, and is said with --local kind=fedavg"
        return f"its opposite, {factor:.3g} times as long", do
    do = "share the mean gradient, not a sum, or say --local kind=fedavg for a weight difference"
    if averaging:
        do = f"if it is the learning rate, say --local lr={factor * local.lr:.3g} (now {local.lr:g})"
    return f"{factor:.3g} times that", do


def _near_one(cosine: float) -> str:
    """0.9998 is not 1, and is not written so."""
    return f"{cosine:.3g}" if abs(cosine) < 0.9995 else f"{cosine:.9f}".rstrip("0")

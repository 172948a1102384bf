"""Does a saved update come from the batch that stands beside it, under the training and the defences that are claimed?

An attack that is scored against the wrong batch finds nothing, and the audit would call that safety. So the client is
replayed with the batch. What may be left between its update and the one that was shared is rounding, in the precision
of the numbers that were shared and of the arithmetic behind them, and what the client or a defence drew: the order of
mini-batches, dropout, noise. Anything else is refused, with what would fit. An angle alone is no test: on some networks
every picture of a label gives the same update to a cosine of 0.999.

What fits must also fit better than other batches do: the same labels on other samples, the batch mirrored or under
noise, and the batch with one sample changed. Where those fit as well, nobody can tell, and that is said.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge import catalog
from leakgauge.attacks._parts.shared_precision import shared_precision
from leakgauge.credible import meets
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.fl.fedavg import local_steps
from leakgauge.fl.summed import in_sum
from leakgauge.plan import parse_chain
from leakgauge.replays import Client, Rows, flat, other_batches, redrawn, repeated, shuffled, with_momentum
from leakgauge.stage import Stage
from leakgauge.types import NLL_ON_LOGITS, Batch, Belonging, Finding, LocalTraining, SharedUpdate

_ARITHMETIC = {"float32": 23, "tf32 or float16": 10, "bfloat16": 7}  # bits of mantissa
_ROUNDING = 8.0  # an entry may be off by so many times what rounding does to its tensor on average
_LEAST = 2e-5  # of a tensor's average entry: kernels of other machines add up in another order
_STRAY = 0.02  # share of a tensor's entries that may be further off: a compression's threshold flips some
_FEW = 2  # and so many entries of a small tensor
_APART = 3.0  # another batch must have so many times as many entries that are off
_SURELY = 5  # and so many more
_DRAWS, _FEWEST_DRAWS = 16, 6
_OTHERS_DRAWS, _FEWEST_OTHERS_DRAWS = 4, 2
_SPREAD, _SLACK = 4.0, 0.15  # of a logarithm: standard deviations and a margin, within which a size fits the draws
_NEARER = 0.5  # of what the batch's own replays are nearer to it than to another batch
_PATIENCE = 60.0  # seconds that drawing anew may take, by the time of the first replay
_PLACES = 2**28  # numbers in all replays of one client
_SOLVED = 1e-7  # of where a search began: what is left of the objective then is rounding
_OPPOSITE, _TIMES = "its opposite", "times that"
_UNLIKE, _LONGER = 0.5, 2.0  # a cosine and a ratio of lengths beyond which draws explain nothing


def belonging(stage: Stage) -> Belonging | None:
    """What replaying the clients of a saved update says; None for simulated ones. Refuses what cannot be."""
    if stage.recorded is None:
        return None
    chain = parse_chain(stage.scenario.defenses[0]) if stage.scenario.defenses else ()
    if in_sum(chain) > 1:
        return Belonging(False, "batch-unproven", "the other clients of the sum are not at hand")
    return _Check(stage, stage.recorded, Client(stage.model, stage.scenario.local, chain, _names(stage))).result()


def origin_of(stage: Stage, findings: Sequence[Finding]) -> Belonging:
    """What replays say of the batch, and then what the attacks say of it.

    An attack that explains the update to the last digit with other records speaks against the batch, or says that the
    update leaves its records open.
    """
    if stage.belonging is None:
        return Belonging(True)
    if stage.belonging.sure and any(_explains_with_others(stage, f) for f in findings):
        return Belonging(False, "explained-by-others", "an attack explains it to the last digit with other records")
    return stage.belonging


def _explains_with_others(stage: Stage, finding: Finding) -> bool:
    if finding.attack in catalog.baselines() or finding.control or finding.error or not finding.trace:
        return False
    start, objective = finding.trace[0], finding.objective
    solved = objective is not None and finding.steps > 0 and 0 <= objective <= _SOLVED * start
    claimed = [r for r in finding.records if any(v is not None for v in r.values())]
    return solved and bool(claimed) and not any(meets(stage.data, r) for r in claimed)


def _names(stage: Stage) -> tuple[str, ...]:
    assert stage.recorded is not None
    return tuple(stage.recorded.tensors)


@dataclass(frozen=True)
class _Match:
    """How far a replay is from what was shared, trial by trial."""

    off: Tensor  # (T,) entries that rounding does not explain
    fits: Tensor  # (T,) bool

    @property
    def all_fit(self) -> bool:
        return bool(self.fits.all())


@dataclass
class _Check:
    stage: Stage
    shared: SharedUpdate
    client: Client

    def __post_init__(self) -> None:
        self.seen = flat(self.shared, self.client.names)
        self.seeds = list(self.stage.scenario.seeds)
        self.batch = self.stage.batch
        self.grids = self._grids()
        began = time.perf_counter()
        self.exact = self.client.replay(self.batch, self.seeds)
        self.seconds = (time.perf_counter() - began) / self.batch.trials

    def result(self) -> Belonging:
        """In order: is it rounding; can it be what was drawn; else what would fit."""
        arithmetic = self._explained(self.exact, self.client)
        if arithmetic is not None:
            return self._told_apart(arithmetic)
        drawing = self.client.drawing(self.batch.take([0]), self.seeds[:1])
        self._refuse_defence_that_did_nothing(drawing)
        size = self.batch.labels.shape[1]
        if drawing or self.client.shuffles(size) or self.client.drops():
            return self._drawn(drawing=bool(drawing), order=self.client.shuffles(size), drops=self.client.drops())
        raise self._refusal()

    # --- what can be recomputed ----------------------------------------------------------------------

    def _grids(self) -> Rows:
        """(T, P) how far rounding moved each number that was shared."""
        grids: dict[str, Tensor] = {}
        for t in range(self.shared.trials):
            precision = shared_precision([tensor[t] for tensor in self.shared.tensors.values()])
            for name, rows in self.seen.items():
                own = 0.5 * (precision.relative * rows[t].abs() + precision.spacing)
                grids[name] = own[None] if t == 0 else torch.cat([grids[name], own[None]])
        return grids

    def _explained(self, exact: Rows, client: Client) -> str | None:
        """The coarsest arithmetic that has to be assumed for the rest to be rounding; None if none does."""
        for name in _ARITHMETIC:
            if self._match(exact, self._tolerance(name, exact, client)).all_fit:
                return name
        return None

    def _tolerance(self, arithmetic: str, exact: Rows, client: Client) -> Rows:
        bits = _ARITHMETIC[arithmetic]
        if arithmetic == "float32":
            coarse = client.replay_single(self.batch, self.seeds)
        else:
            coarse = client.replay(self.batch, self.seeds, bits=bits)
        before = dict(client.model.named_parameters()) if self.shared.kind == "weight_delta" else {}
        found = {}
        for name, rows in exact.items():
            average = rows.pow(2).mean(1, keepdim=True).sqrt()
            moved = (coarse[name] - rows).pow(2).mean(1, keepdim=True).sqrt()
            found[name] = 1.01 * self.grids[name] + _ROUNDING * moved + _LEAST * average
            if name in before and before[name].numel() == rows.shape[1]:  # weights are stored before they are compared
                found[name] = found[name] + 2.0**-bits * before[name].detach().double().flatten().abs()
        return found

    def _match(self, made: Rows, tolerance: Rows) -> _Match:
        off, fits = torch.zeros(len(self.seeds)), torch.ones(len(self.seeds), dtype=torch.bool)
        for name, rows in made.items():
            wrong = ((self.seen[name] - rows).abs() > tolerance[name]).sum(1).cpu()
            off += wrong
            fits &= wrong <= _STRAY * rows.shape[1] + _FEW
        return _Match(off, fits)

    def _told_apart(self, arithmetic: str) -> Belonging:
        """The batch gives the update. Do other batches as well?"""
        tolerance = self._tolerance(arithmetic, self.exact, self.client)
        mine = self._match(self.exact, tolerance).off
        for others in self._others_side_by_side():
            theirs = self._match(self.client.replay(others, self.seeds), tolerance).off
            if bool((theirs <= _APART * mine + _SURELY).any()):
                return Belonging(False, "batch-unproven", "other batches give the same update")
        return Belonging(True)

    def _others_side_by_side(self) -> Iterator[Batch]:
        """The same kind of other batch for all trials at once; a trial that has fewer goes on with its last."""
        each = [self._others(t) for t in range(self.batch.trials)]
        for number in range(max(map(len, each))):
            chosen = [o[min(number, len(o) - 1)] if o else self.batch.take([t]) for t, o in enumerate(each)]
            yield Batch(torch.cat([b.inputs for b in chosen]), torch.cat([b.labels for b in chosen]))

    def _others(self, trial: int) -> list[Batch]:
        pools = [pool for pool in (self.stage.public, self.stage.others) if pool is not None]
        image = self.stage.data.kind == "image"
        return other_batches(self.batch.take([trial]), pools, self.seeds[trial], image)

    # --- what was drawn ------------------------------------------------------------------------------

    def _drawn(self, *, drawing: bool, order: bool, drops: bool) -> Belonging:
        kinds = [w for w, there in (("the order of mini-batches", order), ("dropout", drops)) if there]
        for trial in range(self.batch.trials):
            told = _Draws(self, trial, order, drops)
            size = told.size()
            if drawing and size.low:
                raise self._contradiction(trial, "less was added to it or left out of it than that does")
            if size.high:
                if drawing:
                    raise self._contradiction(trial, "it is further from what the batch gives than that explains")
                if self._is_far(trial):
                    raise self._refusal()
                return self._unlike(" and ".join(kinds))
            if (why := told.no_nearer()) is not None:
                if why == _FARTHER and not drawing and self._is_far(trial):
                    raise self._refusal()
                if why == _FARTHER and drawing:
                    raise self._contradiction(trial, "other batches with these labels explain it as well as this one")
                explained = f"{why}" if drawing else f"{why}; {' and '.join(kinds)} cannot be replayed"
                return Belonging(False, "batch-unproven", explained)
        return Belonging(True, "batch-only-alike" if kinds else "")

    def _unlike(self, kinds: str) -> Belonging:
        why = f"it is further from what the batch gives than {kinds} would explain"
        return Belonging(False, "batch-unproven", why)

    def _is_far(self, trial: int) -> bool:
        cosine, factor = _likeness(self.exact, self.seen, trial)
        return abs(cosine) < _UNLIKE or not 1 / _LONGER < factor < _LONGER

    # --- what to say ---------------------------------------------------------------------------------

    def _refuse_defence_that_did_nothing(self, drawing: Sequence[object]) -> None:
        """Is it the update without the defences, or without what they draw?"""
        chain = self.client.defenses
        if not chain:
            return
        declared = self.stage.scenario.defenses[0]
        for kept in dict.fromkeys((tuple(d for d in chain if d not in drawing), ())):
            if kept == chain:
                continue
            plain = self.client.under(kept)
            made = plain.replay(self.batch, self.seeds)
            if made.keys() != self.seen.keys() or any(made[n].shape != self.seen[n].shape for n in made):
                continue
            if self._explained(made, plain) is not None:
                missing = "the defence" if not kept else "what it draws"
                raise BadInput(
                    "update", allowed=f"what the batch gives under --defenses {declared}",
                    got=f"what the batch gives without {missing}",
                    do="the declared defence was not applied: check the client, or leave it out of --defenses",
                )  # fmt: skip

    def _contradiction(self, trial: int, how: str) -> BadInput:
        declared = self.stage.scenario.defenses[0]
        which = f" of client {trial}" if self.batch.trials > 1 else ""
        return BadInput(
            f"update{which}", allowed=f"what the batch gives under --defenses {declared}", got=f"another one: {how}",
            do="check the batch, --weights, --local, and the strength of the defence as the client applied it",
        )  # fmt: skip

    def _refusal(self) -> BadInput:
        """The worst client's likeness, and the first change of the claims that would explain the update."""
        worst = min(range(self.batch.trials), key=lambda t: abs(_likeness(self.exact, self.seen, t)[0]))
        cosine, factor = _likeness(self.exact, self.seen, worst)
        local, allowed = self.stage.scenario.local, "what the batch in --data gives"
        if self.stage.scenario.defenses:
            allowed += f" under --defenses {self.stage.scenario.defenses[0]}"
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
        named = "" if self.stage.scenario.defenses else "; name a defence that changed it with --defenses"
        return BadInput(
            "update", allowed=allowed,
            got=f"one with a cosine of {_near_one(cosine)} to that and {factor:.2g} times as long: more than rounding",
            do=f"check the batch, --weights, --local{claimed}, and batchnorm=train if there is BatchNorm{named}",
        )  # fmt: skip

    def _fits_scaled(self, factor: float) -> bool:
        if factor == 0:
            return False
        made = {name: factor * rows for name, rows in self.exact.items()}
        tolerance = self._tolerance("tf32 or float16", self.exact, self.client)
        return self._match(
            made, {name: abs(factor) * rows + self.grids[name] for name, rows in tolerance.items()}
        ).all_fit

    def _causes(self) -> Iterator[str]:
        """Other claims under which the batch would give the update, each as what to do."""
        local = self.stage.scenario.local
        other = "train" if local.batchnorm == "eval" else "eval"
        tries: list[tuple[LocalTraining, str]] = []
        if any(isinstance(m, _BatchNorm) for m in self.stage.model.modules()):
            tries.append((replace(local, batchnorm=other), f"it fits --local batchnorm={other}: say so"))
        if local.loss != NLL_ON_LOGITS:
            tries.append((replace(local, loss=NLL_ON_LOGITS), f"it fits --local loss={NLL_ON_LOGITS}: say so"))
        for claim, do in tries:
            client = replace(self.client, local=claim)
            try:
                made = client.replay(self.batch, self.seeds)
            except (LeakgaugeError, ValueError, RuntimeError):  # BatchNorm of one value, say
                continue
            if self._explained(made, client) is not None:
                yield do
        if local.kind == "fedavg" and not self.client.defenses and local_steps(self.batch.labels.shape[1], local) > 1:
            for momentum in (0.9, 0.5, 0.99):
                made = with_momentum(self.client, self.batch, momentum)
                if self._match(made, self._tolerance("tf32 or float16", made, self.client)).all_fit:
                    yield f"it fits SGD with momentum {momentum:g}, which cannot be claimed: train without, or --blind"


_HIDDEN = "what is drawn hides which batch it was: other batches fit as well"
_FARTHER = "other batches with these labels fit as well as this one"


@dataclass(frozen=True)
class _Size:
    low: bool
    high: bool


class _Draws:
    """Replays of one client with everything drawn anew, beside the update that was shared."""

    def __init__(self, check: _Check, trial: int, order: bool, drops: bool) -> None:
        self._check, self._order, self._drops = check, order, drops
        self._batch, self._seed = check.batch.take([trial]), check.seeds[trial]
        self._others = check._others(trial)
        numbers = sum(rows.shape[1] for rows in check.seen.values())
        affordable = min(_PATIENCE / max(check.seconds, 1e-6), _PLACES / numbers)
        every = affordable >= _DRAWS + _OTHERS_DRAWS * len(self._others)
        self._count, self._of_others = (_DRAWS, _OTHERS_DRAWS) if every else (_FEWEST_DRAWS, _FEWEST_OTHERS_DRAWS)
        self.made = self._redrawn(self._batch, "replay", self._count)
        self.seen = {name: check.seen[name][trial] for name in self.made}
        middle = {name: rows.mean(0) for name, rows in self.made.items()}
        spread = {name: (rows - middle[name]).pow(2).mean().sqrt() for name, rows in self.made.items()}
        floor = {name: check.grids[name][trial].pow(2).mean().sqrt() + _LEAST * m.pow(2).mean().sqrt()
                 for name, m in middle.items()}  # fmt: skip
        self._unit = {n: (spread[n].pow(2) + floor[n].pow(2)).sqrt().clamp_min(1e-30) for n in self.made}
        self._middle = middle

    def size(self) -> _Size:
        """Is the update as far from the middle of the replays as they are themselves?"""
        k = self._count
        low = high = False
        whole, wholes = torch.zeros(()).double(), torch.zeros(k).double()
        for name, rows in self.made.items():
            unit, middle = self._unit[name], self._middle[name]
            # each replay beside the mean of the others, which is k / (k - 1) times as far as beside the mean of all
            own = ((rows - middle) / unit).pow(2).mean(1).cpu() * (k / (k - 1)) ** 2 + 1e-12
            seen = ((self.seen[name] - middle) / unit).pow(2).mean().cpu() * k / (k - 1) * (k / (k + 1)) + 1e-12
            whole, wholes = whole + seen.log(), wholes + own.log()
            if rows.shape[1] >= 100:
                low |= _beyond(seen, own, below=True)
                high |= _beyond(seen, own, below=False, times=2.0)
        count = len(self.made)
        low |= bool(whole / count < wholes.mean() / count - _SPREAD * wholes.std() / count - _SLACK)
        high |= bool(whole / count > wholes.mean() / count + _SPREAD * wholes.std() / count + _SLACK)
        return _Size(low, high)

    def no_nearer(self) -> str | None:
        """Why the batch is not clearly nearer to the update than other batches are; None if it is.

        For each other batch: how much nearer is the update to the middle of the batch's replays than to the other's,
        and how much is each of the batch's own replays?
        """
        k = self._count
        for number, other in enumerate(self._others):
            theirs = self._redrawn(other, f"other/{number}", self._of_others)
            gain, gains = torch.zeros(()).double(), torch.zeros(k).double()
            for name, rows in self.made.items():
                unit, middle = self._unit[name], self._middle[name]
                away = (theirs[name].mean(0) - middle) / unit
                seen, own = (self.seen[name] - middle) / unit, (rows - middle) / unit * (k / (k - 1))
                gain += ((seen - away).pow(2) - seen.pow(2)).sum().cpu()
                gains += ((own - away).pow(2) - own.pow(2)).sum(1).cpu()
            if float(gains.quantile(0.25)) <= 0:
                return _HIDDEN
            if float(gain) < _NEARER * float(gains.median()):
                return _FARTHER
        return None

    def _redrawn(self, batch: Batch, role: str, count: int) -> Mapping[str, Tensor]:
        seeds = redrawn(self._seed, role, count)
        many = repeated(batch, count)
        many = shuffled(many, seeds) if self._order else many
        return self._check.client.replay(many, seeds, drops=self._drops)


def _beyond(seen: Tensor, own: Tensor, *, below: bool, times: float = 1.0) -> bool:
    logs = own.log()
    reach = times * (_SPREAD * float(logs.std()) + _SLACK)
    distance = float(seen.log() - logs.mean())
    return distance < -reach if below else distance > reach


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

"""The search for transformation policies: random triples, scored for privacy and accuracy, the most private kept.

FOLDER/search.json      what is searched: model, data, sizes, seed; a folder belongs to one search
FOLDER/scores/N.json    the scores of one block of candidates
FOLDER/policies.json    the best, once all blocks are there

A finished block is not scored again: a killed search resumes where it stopped, and several processes can share a
folder, each locking the block that it works on. A candidate follows from its number and the seed.

The list repeats some operations, so several triples can be the same policy: a fifth of 1,500. Each policy is scored
once, and its scores are copied.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import leakgauge
from leakgauge.data import Dataset, load
from leakgauge.defenses.ats.operations import COUNT, LENGTH, NOTHING, OPERATIONS, Triple, applied, draw, effect, written
from leakgauge.defenses.ats.scores import accuracy_scores, privacy_scores
from leakgauge.engine.precision import set_precision
from leakgauge.engine.randomness import generator, uniform
from leakgauge.errors import BadInput, Unreadable
from leakgauge.execution.locks import claimed
from leakgauge.federation.rounds import train
from leakgauge.models import load_model
from leakgauge.reading.files import make_folder, read_json, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.reading.sealed import opened, sealed
from leakgauge.setup.setup import pick_device
from leakgauge.types import Training

BLOCK = 10  # candidates that are scored together
_TRAINED_ON = 0.1  # of the data, as published
_LOSS = 85 / 63  # the published threshold, over the best possible score for the classes of its batches
SINGLES = tuple(n for n in range(COUNT) if OPERATIONS.index(OPERATIONS[n]) == n)  # each different operation once
TRAINING = Training(rounds=300, optimizer="adam", lr=0.001)  # enough to distinguish pictures, too few to memorise them


@dataclass(frozen=True)
class Search:
    """The settings of a search. The defaults are the published sizes."""

    model: str
    data: str
    candidates: int = 1500
    pictures: int = 100  # that privacy is averaged over
    batches: int = 10  # that accuracy is averaged over
    batch_size: int = 100
    least_accuracy: float | None = None  # candidates below are not kept; None: 85/63 of the untransformed pictures'
    training: Training = TRAINING
    as_released: bool = False  # crop and mirror pictures first
    seed: int = 0
    precision: str = "tf32"  # of the products behind privacy: a mean of cosines needs no more
    single: bool = False  # each different operation alone, in place of random triples

    def __post_init__(self) -> None:
        for name in ("candidates", "pictures", "batches"):
            if getattr(self, name) < 1:
                raise BadInput(name, allowed="at least 1", got=getattr(self, name), do="choose a value in that range")
        if self.precision not in ("float32", "tf32"):
            raise BadInput("precision", allowed="float32 or tf32", got=repr(self.precision), do="leave it out")
        if self.batch_size < 2:
            raise BadInput("batch_size", allowed="at least 2", got=self.batch_size, do="pictures are compared pairwise")

    @property
    def count(self) -> int:
        """The number of candidates, without the untransformed pictures."""
        return len(SINGLES) if self.single else self.candidates

    @property
    def blocks(self) -> list[range]:
        """The candidates' numbers; number 0 stands for untransformed pictures."""
        return [range(b, min(b + BLOCK, self.count + 1)) for b in range(0, self.count + 1, BLOCK)]

    def candidate(self, number: int) -> Triple:
        """The triple with this number."""
        if self.single:
            return (SINGLES[number - 1],) if number else ()
        return candidate(number, self.seed)

    def as_dict(self) -> dict[str, Any]:
        """All settings; `single` only if it is set, so that folders written before this option still fit."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "single" or v}


@dataclass(frozen=True)
class Scored:
    """One candidate: a low privacy score is private, a high accuracy score promises accuracy."""

    policy: str
    privacy: float
    accuracy: float


def candidate(number: int, seed: int) -> Triple:
    """Three draws, each from the fifty operations or none, in order; repeats are allowed. Number 0 has no operation."""
    if number == 0:
        return ()
    drawn = torch.randint(COUNT + 1, (LENGTH,), generator=generator(seed, f"candidate/{number}")).tolist()
    return tuple(n - 1 for n in drawn if n - 1 != NOTHING)


def search_policies(
    search: Search,
    folder: Path,
    *,
    device: str = "auto",
    data_root: Path | None = None,
    watch: Callable[[int, int], None] = lambda _, __: None,
    notice: Callable[[str], None] = lambda _: None,
) -> list[Scored]:
    """Score what is not in `folder` yet; returns the scores of untransformed pictures and of all candidates, in order.

    `watch` gets the number of scored candidates and that of all. An interrupt leaves the finished blocks in place.
    """
    where = pick_device(device)
    set_precision("float32")
    samples = _samples_for(search, data_root)  # checked before the folder is made
    untrained = load_model(search.model, samples.spec, search.seed, None).to(where)
    _check_folder(search, folder)
    missing = [block for block in search.blocks if _read(folder, block, notice) is None]
    if missing:
        bench = _Bench.set_up(search, samples, untrained)
        same_as = _first_equals(search)
        for wait in (False, True):  # first the blocks that are free, then those that another process locked
            for block in [b for b in missing if _read(folder, b) is None]:
                with claimed(_path(folder, block), wait=wait, notice=notice) as mine:
                    if mine and _read(folder, block) is None:
                        _write(folder, block, _block_scores(bench, folder, block, same_as))
                watch(sum(len(b) for b in search.blocks if _path(folder, b).exists()), search.count + 1)
    scored = [row for block in search.blocks for row in _finished(folder, block)]
    best = [dataclasses.asdict(row) for row in best_of(search, scored)[1]]
    write_whole(folder / "policies.json", (json.dumps(best, indent=1) + "\n").encode())
    return scored


def _first_equals(search: Search) -> list[int]:
    """For every candidate the number of the first one with the same effect, which may be its own."""
    first: dict[Any, int] = {}
    return [first.setdefault(effect(search.candidate(n)), n) for n in range(search.count + 1)]


def _block_scores(bench: _Bench, folder: Path, block: range, same_as: Sequence[int]) -> list[Scored]:
    """Scores of a block; the scores of a policy that an earlier finished block has are copied."""
    search = bench.search
    known: dict[int, Scored] = {}
    for number in block:
        earlier = search.blocks[same_as[number] // BLOCK]
        if earlier.start < block.start and same_as[number] not in known:
            rows = _read(folder, earlier) or []  # empty while another process works on it: then it is scored here
            known |= dict(zip(earlier, rows, strict=False))
    missing = list(dict.fromkeys(same_as[n] for n in block if same_as[n] not in known))
    known |= dict(zip(missing, bench.score([search.candidate(n) for n in missing]) if missing else (), strict=True))
    return [dataclasses.replace(known[same_as[n]], policy=written([search.candidate(n)])) for n in block]


def best_of(search: Search, scored: Sequence[Scored]) -> tuple[float, list[Scored]]:
    """As `ranked`; single operations are compared by privacy alone, unless a least accuracy is given."""
    lowest = min(row.accuracy for row in scored)
    return ranked(scored, lowest if search.single and search.least_accuracy is None else search.least_accuracy)


def ranked(scored: Sequence[Scored], least_accuracy: float | None) -> tuple[float, list[Scored]]:
    """The least accuracy score, and the candidates that reach it, the most private first; equal policies once."""
    least = _LOSS * scored[0].accuracy if least_accuracy is None else least_accuracy
    kept = {row.policy: row for row in scored if row.accuracy >= least and row.policy}
    return least, sorted(kept.values(), key=lambda row: (row.privacy, row.policy))


@dataclass(frozen=True)
class _Bench:
    """What every candidate is scored on."""

    search: Search
    untrained: nn.Module
    trained: nn.Module
    noise: Tensor  # (P, C, H, W), where the path to each picture begins
    pictures: Tensor
    labels: Tensor
    batches: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def set_up(cls, search: Search, samples: Dataset, untrained: nn.Module) -> _Bench:
        learned, needed = _shares(search, len(samples))
        order = torch.randperm(len(samples), generator=generator(search.seed, "search"))
        where = next(untrained.parameters()).device
        inputs, labels = samples.take(order[:learned])
        trained = train(untrained, Dataset(samples.spec, inputs, labels), search.training, search.seed)
        held, held_labels = (t.to(where) for t in samples.take(order[learned : learned + needed]))
        size = search.batch_size
        batches = [(held[b : b + size], held_labels[b : b + size]) for b in range(0, search.batches * size, size)]
        noise = uniform([search.seed], "noise", (search.pictures, *samples.spec.shape))[0].to(held)
        untrained.eval()
        return cls(
            search, untrained, trained, noise, held[: search.pictures], held_labels[: search.pictures], tuple(batches)
        )

    def score(self, triples: Sequence[Triple]) -> list[Scored]:
        """Score all candidates of a block: one pass for privacy, one for accuracy."""
        seen = [self._transformed(self.pictures, triple) for triple in triples]
        set_precision(self.search.precision)
        private = privacy_scores(self.trained, self.noise, torch.stack(seen), self.labels)
        set_precision("float32")  # the smallest eigenvalues count most
        accurate = accuracy_scores(
            self.untrained, [(self._transformed(x, triple), y) for triple in triples for x, y in self.batches]
        )
        means = zip(private.mean(1), accurate.view(len(triples), -1).mean(1), strict=True)
        return [Scored(written([t]), float(p), float(a)) for t, (p, a) in zip(triples, means, strict=True)]

    def _transformed(self, pictures: Tensor, triple: Triple) -> Tensor:
        """The pictures after the policy, as a training would see them."""
        drawn = draw([triple], [self.search.seed], len(pictures), as_released=self.search.as_released)
        return applied(pictures, drawn.to(pictures.device))


def _samples_for(search: Search, data_root: Path | None) -> Dataset:
    """The public samples, if they are pictures and enough of them."""
    samples = load(search.data, "train", data_root)
    if samples.spec.kind != "image":
        raise BadInput("data", allowed="pictures", got=f"the table {search.data!r}", do="policies transform pictures")
    learned, needed = _shares(search, len(samples))
    if learned + needed > len(samples):
        raise BadInput(
            "pictures and batches",
            allowed=f"at most {len(samples) - learned} samples of {search.data}",
            got=needed,
            do="lower --pictures, --batches or --batch-size",
        )
    return samples


def _shares(search: Search, samples: int) -> tuple[int, int]:
    """How many samples the network is trained on, and how many others candidates are scored on."""
    learned = max(int(_TRAINED_ON * samples), search.training.clients * search.training.batch_size)
    return learned, max(search.pictures, search.batches * search.batch_size)


def _check_folder(search: Search, folder: Path) -> None:
    """Write `search.json`, or check that the folder belongs to this search."""
    make_folder(folder)
    make_folder(folder / "scores")
    wanted = json.loads(json.dumps({"version": leakgauge.__version__, **search.as_dict()}))
    path = folder / "search.json"
    if path.exists():
        try:
            found = read_json(path)
        except Unreadable:
            found = None
        if found != wanted:
            differs = sorted(k for k in wanted if not isinstance(found, dict) or found.get(k) != wanted[k])
            raise BadInput(
                "--out",
                allowed="a new folder, or that of the same search",
                got=f"{folder}, which differs in {', '.join(differs)}",
                do="choose another folder",
            )
        return
    write_whole(path, (json.dumps(wanted, indent=1) + "\n").encode())


def _path(folder: Path, block: range) -> Path:
    return folder / "scores" / f"{block.start:06d}.json"


def _key_of_block(folder: Path, block: range) -> str:
    """The key of a block: this search and this range of candidates."""
    return f"{key_of(search=read_json(folder / 'search.json'))} {block.start} {block.stop}"


def _write(folder: Path, block: range, rows: Sequence[Scored]) -> None:
    write_whole(_path(folder, block), sealed(_key_of_block(folder, block), [dataclasses.asdict(r) for r in rows]))


def _read(folder: Path, block: range, notice: Callable[[str], None] = lambda _: None) -> list[Scored] | None:
    """A finished block; None if there is none, or if its file is damaged: then `notice` is called."""
    if not _path(folder, block).exists():
        return None
    try:
        rows = [Scored(**row) for row in opened(_path(folder, block), _key_of_block(folder, block))]
    except (Unreadable, TypeError) as error:
        notice(f"{_path(folder, block)} is damaged ({error}): its policies are scored again")
        return None
    return rows if len(rows) == len(block) and all(map(_is_valid, rows)) else None


def _finished(folder: Path, block: range) -> list[Scored]:
    """The scores of a block that must be there by now."""
    rows = _read(folder, block)
    if rows is None:
        raise BadInput(
            f"scores {str(_path(folder, block))!r}",
            allowed="readable once they are written",
            got="something else",
            do="check the disk, and give the same command again",
        )
    return rows


def _is_valid(row: Scored) -> bool:
    return isinstance(row.policy, str) and type(row.privacy) is type(row.accuracy) is float

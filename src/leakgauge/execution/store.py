"""What a run leaves on disk, so that finished work is never done twice and an interrupted run can go on.

RUN/truth.safetensors            the private samples, for the pictures; only where they are to be kept
RUN/cells/KEY.*.safetensors      finished trials of one cell: what was recovered, and their findings in the header;
                                 with a film of the search, if one was asked for, as bytes
RUN/index.sqlite                 which trial is in which of them; see `leakgauge.execution.index`
RUN/cells.json                   which cell of the table has which key
RUN/report.{json,html,md,xml}    written by `leakgauge.report`
A key is a hash of everything the cell depends on, so a changed scenario never reuses an old cell. Files are written
beside their place, renamed, and never changed again; each holds a digest of its content, so that a damaged one is
found, named, removed and made anew. They hold private samples, so only their owner may read them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from leakgauge.errors import Unreadable
from leakgauge.execution.index import Held, TrialIndex
from leakgauge.execution.locks import claimed
from leakgauge.reading.files import make_folder, regular, remove, write_whole
from leakgauge.reading.keys import tensors_of
from leakgauge.reading.sealed import opened, sealed
from leakgauge.types import Finding, Pictures
from leakgauge.verdict.film import film_in, packed, records_in, unpacked

_TRUTH, _NAMES = "truth.safetensors", "cells.json"
_KEY = re.compile("[0-9a-z]+")


@dataclass(frozen=True)
class Trial:
    """One finished trial of a cell."""

    finding: Finding
    recovered: Tensor | None  # ((1 + A) N, *shape), matched to the true order; None where no sample is claimed


class Damaged(Exception):
    """A file of ours that cannot be read or does not hold what was written."""


class Store:
    """One run directory; `make` creates it, so that a place that cannot be written is found at once.

    `notice` gets a line on every file that was damaged. Without `make` the directory is only read.
    """

    def __init__(self, folder: Path, *, make: bool = True, notice: Callable[[str], None] = lambda _: None) -> None:
        self.folder = folder
        self._cells = folder / "cells"
        self._notice = notice
        self._index: TrialIndex | None = None
        if make:
            make_folder(folder)
            make_folder(self._cells)
            self._index = TrialIndex(folder / "index.sqlite", self._unknown, notice)

    def save(self, key: str, trials: Sequence[Trial]) -> None:
        """Finished trials of one cell: on disk when this returns, all of them or none."""
        rows = json.dumps([dataclasses.asdict(t.finding) for t in trials], allow_nan=False)
        pictures = [t.recovered for t in trials if t.recovered is not None]
        whole = len(pictures) == len(trials)  # pictures of a convolution lie channels-last, which safetensors refuses
        tensors = _tensors_of(torch.stack(pictures), len(trials[0].finding.film)) if whole else {}
        first = min(t.finding.trial for t in trials)
        name = f"{key}.{first:05d}.{secrets.token_hex(4)}.safetensors"  # never that of another file
        header = {"cell": key, "findings": rows, "digest": _digest(key, rows, tensors)}
        self._write(self._cells / name, tensors, header)
        self._writing.add(key, [t.finding.trial for t in trials], name)

    def load(self, key: str) -> dict[int, Trial]:
        """The finished trials of a cell by number. What cannot be read is not among them, and is done again."""
        held = self._writing.held(key)
        found: dict[int, Trial] = {}
        for name in sorted(set(held.values())):
            try:
                trials = _read(self._cells / name, key)[1]
            except Damaged as error:
                self._writing.drop_file(name)
                self._discard(self._cells / name, error)
                continue
            found |= {number: trial for number, trial in trials.items() if held.get(number) == name}
        return dict(sorted(found.items()))

    def finished(self, key: str) -> set[int]:
        """The trials of a cell that are there now, by the index alone."""
        return set(self._writing.held(key))

    def claim(self, key: str, unit: int) -> AbstractContextManager[bool]:
        """The right to run a unit of a cell; False if another process has it. Freed if that process dies."""
        return claimed(self._cells / f"{key}.unit-{unit}", wait=False)

    def forget(self, key: str) -> None:
        """For a run that begins anew."""
        self._writing.drop_cell(key)
        for path in self._cells.glob(f"{key}.*.safetensors"):
            remove(path)

    def save_truth(self, truth: Tensor | None, of: str) -> None:
        """The private samples of the setup with this key, where they are to be kept; None removes those of before."""
        path = self.folder / _TRUTH
        if truth is None:
            remove(path)
            return
        kept = {"inputs": truth.detach().cpu().contiguous()}
        self._write(path, kept, {"of": of, "digest": _digest(of, "", kept)})

    def save_cells_of_report(self, names: Mapping[str, str], of: str) -> None:
        """Which cell of the table has which key, of the setup with this key: cell name -> key."""
        write_whole(self.folder / _NAMES, sealed(of, dict(names)))

    @property
    def kept_private(self) -> bool:
        """Whether the private samples are there, whole or not."""
        return (self.folder / _TRUTH).exists()

    def pictures(self, setup: str = "") -> Pictures | None:
        """The pictures of a finished run, for `leakgauge report`; None if there are none. Needs no index.

        Only those of the setup with that key, if one is given.
        """
        if not self.kept_private:
            return None
        path = self.folder / _TRUTH
        try:
            truth, of = _read_truth(path)
            if setup and of != setup:
                raise Unreadable("it is of another run than report.json")
            path = self.folder / _NAMES
            names = opened(path, of)
        except (OSError, SafetensorError, RuntimeError, Unreadable, LookupError, TypeError) as error:
            self._notice(f"{path} cannot be used ({error}): the pictures are left out")
            return None
        if not isinstance(names, dict) or not all(_KEY.fullmatch(str(key)) for key in names.values()):
            return None  # a key is part of a file's name: no other text may be
        recovered, film = dict[str, Tensor](), dict[str, Tensor]()
        for name, key in names.items():
            trials = self._trials_of(key)
            if missing := len(truth) - len(trials):
                self._notice(f"{missing} of {len(truth)} trials of {name} are not there: their pictures are left out")
            pictures = in_place(trials, len(truth))
            if pictures is not None:
                frames = max(len(t.finding.film) for t in trials.values())
                recovered[name] = shown(pictures, frames, truth.shape[1])
                if frames:
                    film[name] = film_in(pictures, frames)
        return Pictures(truth, recovered, film)

    def _trials_of(self, key: str) -> dict[int, Trial]:
        """The trials of a cell in all of its files, without the index; of one that is there twice, the first."""
        trials: dict[int, Trial] = {}
        for path in sorted(self._cells.glob(f"{key}.*.safetensors")):
            try:
                trials = _read(path, key)[1] | trials
            except Damaged as error:
                self._notice(f"{path} is damaged ({error}): its pictures are left out")
        return trials

    @property
    def _writing(self) -> TrialIndex:
        assert self._index is not None, "this run directory was opened for reading"
        return self._index

    def _unknown(self, known: set[str]) -> Iterator[Held]:
        """The contents of files that the index does not know."""
        for path in sorted(self._cells.glob("*.safetensors")):
            if path.name not in known:
                try:
                    cell, trials = _read(path)
                except Damaged as error:
                    self._discard(path, error)
                else:
                    yield path.name, cell, list(trials)

    def _discard(self, path: Path, error: Damaged) -> None:
        self._notice(f"{path} is damaged ({error}): its trials are run again")
        remove(path)

    def _write(self, path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
        write_whole(path, save(dict(tensors) or {"empty": torch.zeros(0)}, metadata), private=True)


def shown(kept: Tensor, frames: int, samples: int) -> Tensor:
    """Of what is kept of trials the records alone; without true samples every answer, as nobody knows the closest."""
    return kept[:, :samples] if samples else records_in(kept, frames)


def in_place(trials: Mapping[int, Trial], count: int) -> Tensor | None:
    """What was recovered of a cell, each trial at its place among all: (T, (1 + A) N, *shape), blank if not run."""
    pictures = {number: t.recovered for number, t in trials.items() if t.recovered is not None}
    if not pictures:
        return None
    like = next(iter(pictures.values()))
    placed = torch.zeros(count, *like.shape, dtype=like.dtype)
    for number, picture in pictures.items():
        placed[number] = picture
    return placed


def _read_truth(path: Path) -> tuple[Tensor, str]:
    """The private samples, and the key of the setup that they belong to."""
    with safe_open(regular(path), framework="pt") as file:
        header, truth = file.metadata() or {}, file.get_tensor("inputs")
    if header["digest"] != _digest(header["of"], "", {"inputs": truth}):
        raise Unreadable("the private samples are not what their digest says")
    return truth, header["of"]


def _read(path: Path, key: str | None = None) -> tuple[str, dict[int, Trial]]:
    """The cell of a file, which is `key` if that is given, and its trials by number.

    Raises if it is not exactly what was written, or lies where another one was.
    """
    try:
        with safe_open(regular(path), framework="pt") as file:
            header = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys() if name != "empty"}  # noqa: SIM118
        if header["digest"] != _digest(header["cell"], header["findings"], tensors):
            raise Damaged("its content is not what its digest says")
        if header["cell"] != (path.name.partition(".")[0] if key is None else key):
            raise Damaged("it is the file of another cell")
        findings = [Finding.from_dict(row) for row in json.loads(header["findings"])]
    except (OSError, SafetensorError, RuntimeError) as error:
        raise Damaged(" ".join(str(error).split())) from error
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged("it is not one of ours") from error
    recovered = tensors.get("recovered")
    if recovered is not None and "film" in tensors:
        recovered = torch.cat((recovered, unpacked(tensors["film"])), 1)
    trials = [Trial(f, None if recovered is None else recovered[row]) for row, f in enumerate(findings)]
    return header["cell"], {t.finding.trial: t for t in trials}


def _tensors_of(kept: Tensor, frames: int) -> dict[str, Tensor]:
    """(T, rows, *shape) as it lies in a file: the records exactly, the film as bytes."""
    records = records_in(kept, frames)
    tensors = {"recovered": records.float().cpu().contiguous()}
    if frames:
        tensors["film"] = packed(kept[:, records.shape[1] :]).cpu().contiguous()
    return tensors


def _digest(cell: str, findings: str, tensors: Mapping[str, Tensor]) -> str:
    values = tensors_of(tensors[name] for name in sorted(tensors))  # a file may hold them in another order
    return hashlib.sha256(f"{cell}\n{findings}\n{values}".encode()).hexdigest()

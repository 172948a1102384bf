"""Aggregators on the same two clients: how many words the trained network reads, and what a round takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from leakgauge import catalog
from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput
from leakgauge.federation.aggregators.aggregator import Aggregator
from leakgauge.federation.aggregators.fedavg import FedAvg
from leakgauge.federation.centralised import NAME as CENTRALISED
from leakgauge.federation.encryption.scheme import Encryption
from leakgauge.lab.words.federation import Readers
from leakgauge.lab.words.fonts import fonts_of
from leakgauge.lab.words.network import build
from leakgauge.lab.words.real_sets import read_of, real_sets
from leakgauge.lab.words.rendering import RENDERERS, rendered
from leakgauge.lab.words.training import Reading, Samples, joined, results, samples_of
from leakgauge.metrics.intervals import clopper_pearson
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import Interval

AGGREGATORS = ("fedavg:validation=0.1", "fedboosting", "fedadam:validation=0.1")
Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Run:
    """One federation after its last round."""

    aggregator: str
    encryption: str
    seed: int
    read: Mapping[str, float]  # share of words read without a mistake: by renderer, of all rendered, and iiit5k
    words: Mapping[str, int]  # the number of words behind each share
    weights: tuple[float, ...]  # of each client, mean over rounds
    round_seconds: tuple[float, ...]
    curve: tuple[float, ...]  # share of rendered words read, after each round that was tested
    bytes_up: int  # of one client in a round

    def interval(self, which: str) -> Interval:
        """Of a share, from the words alone: another seed would train another network."""
        value, count = self.read[which], self.words[which]
        return Interval(value, *clopper_pearson(round(value * count), count))


@dataclass(frozen=True)
class Study:
    runs: tuple[Run, ...]
    training: Reading
    fonts: Mapping[str, tuple[str, ...]]
    left_out: str  # why there are no real words; empty if there are
    environment: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def compare(
    aggregators: Sequence[str] = AGGREGATORS,
    encryption: str = "none",
    how: Reading | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    data_root: Path | None = None,
    fonts: Path | None = None,
    folders: Sequence[Path] = (),
    watch: Watch = lambda *_: None,
) -> Study:
    """Every aggregator from the same start on the same words. `watch` gets the rounds done and all rounds.

    `folders` hold further pictures of words to be tested on, see `word_folder`.
    """
    how = how or Reading()
    runs = []
    for spec in aggregators:
        _rule(spec, encryption)  # a mistake is reported before anything is trained
    left_out = real_sets(how, torch.device("cpu"), data_root, folders)[1]
    for number, spec in enumerate(aggregators):
        before, of = number * how.rounds, how.rounds * len(aggregators)
        runs.append(
            trained(
                spec,
                encryption,
                how,
                seed=seed,
                device=device,
                data_root=data_root,
                fonts=fonts,
                folders=folders,
                watch=lambda done, _, before=before, of=of: watch(before + done, of),  # type: ignore[misc]
            )
        )
    used = {name: tuple(path.name for path in fonts_of(name, data_root, fonts)) for name in RENDERERS}
    return Study(tuple(runs), how, used, left_out, environment(pick_device(device)))


def trained(
    aggregator: str,
    encryption: str,
    how: Reading,
    *,
    seed: int = 0,
    device: str = "auto",
    data_root: Path | None = None,
    fonts: Path | None = None,
    folders: Sequence[Path] = (),
    test_every: int = 0,
    watch: Watch = lambda *_: None,
) -> Run:
    """Train one federation; test it after the last round, and with `test_every` after every so many rounds."""
    where = pick_device(device)
    rule = _rule(aggregator, encryption)
    scheme: Encryption | None = None if encryption == "none" else catalog.build("encryptions", encryption)

    def words_of(renderer: str, count: int, *, held_out: bool) -> Samples:
        pictures = rendered(
            renderer, count, how.image_width, how.longest, seed, held_out=held_out, root=data_root, folder=fonts
        )
        return samples_of(pictures, how.longest, where)

    clients = [words_of(name, how.words, held_out=False) for name in RENDERERS]
    if aggregator == CENTRALISED:
        clients = [joined(clients)]
    tests = {name: words_of(name, how.tested, held_out=True) for name in RENDERERS}
    real, _ = real_sets(how, where, data_root, folders)
    readers = Readers(build(how.width, seed).to(where), clients, how, rule, scheme, seed)
    seconds, curve = [], []
    set_precision("tf32")  # precise enough for letters, and faster on a GPU
    try:
        for number in range(1, how.rounds + 1):
            watch(number - 1, how.rounds)
            seconds.append(readers.run_round(number))
            if number == how.rounds or (test_every and number % test_every == 0):
                read = {name: results(readers.model, samples)[1] for name, samples in tests.items()}
                curve.append(sum(read.values()) / len(read))
        words = {name: len(samples) for name, samples in tests.items()} | {"rendered": len(tests) * how.tested}
        read |= {"rendered": curve[-1]}
        for name, groups in real.items():
            words[name], read[name] = sum(map(len, groups)), read_of(readers.model, groups)
    finally:
        set_precision("float32")
    entries = sum(t.numel() for t in readers.model.state_dict().values() if t.is_floating_point())
    return Run(
        aggregator,
        encryption,
        seed,
        read,
        words,
        tuple(torch.stack(readers.weights).mean(0).tolist()),
        tuple(seconds),
        tuple(curve),
        4 * entries if scheme is None else scheme.bytes_up(entries),
    )


def _rule(aggregator: str, encryption: str) -> Aggregator:
    """`centralised` is a single client with all words, which holds back as many as FedBoosting does."""
    if aggregator != CENTRALISED:
        rule: Aggregator = catalog.build("aggregators", aggregator)
        return rule
    if encryption != "none":
        raise BadInput(
            "--encryption", allowed="none with centralised, where nothing is sent", got=encryption, do="leave it out"
        )
    return FedAvg(validation=0.1)

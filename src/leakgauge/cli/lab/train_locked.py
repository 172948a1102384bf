"""`leakgauge lab train-locked`: FedKL's training, in which every client keeps a key and a lock of its own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import leakgauge
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.options import Common, flag, flags_from
from leakgauge.client.chain import prepared
from leakgauge.client.partition import iid
from leakgauge.data import load
from leakgauge.defenses.batchnorm_only import BatchNormOnly
from leakgauge.defenses.key_lock import KeyLock
from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput, Unreadable
from leakgauge.lab.locked_training import LockedAccuracy, LockedTraining, train_locked
from leakgauge.models import load_model
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.reading.sealed import opened, sealed
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import environment, pick_device
from leakgauge.types import UNDEFENDED

_DEFAULTS = LockedTraining()


@dataclass(frozen=True, kw_only=True)
class LockFlags(Common):
    """The options of `leakgauge lab train-locked`."""

    lock: list[str] | None = flag("key-lock[:field=value,...]; repeat to compare.")
    model: options.MODEL = None
    data: options.DATA = None
    clients: int = flag("Clients, with equal shares of the data.", default=3, min=1)
    rounds: int = flag("Rounds of training.", default=_DEFAULTS.rounds, min=1)
    epochs: int = flag("Passes of a client in a round.", default=_DEFAULTS.epochs, min=1)
    batch_size: int = flag("Samples in a step.", default=_DEFAULTS.batch_size, min=2)
    lr: float = flag("The clients' rate.", default=_DEFAULTS.lr)
    lr_drops: str = flag(
        "Rounds after which the rate falls to a fifth; none for never.", default=",".join(map(str, _DEFAULTS.lr_drops))
    )
    weight_decay: float = flag("The clients' weight decay.", default=_DEFAULTS.weight_decay, min=0)
    random_keys: int = flag("Keys that the server tries.", default=_DEFAULTS.random_keys, min=1)
    out: Path | None = flag("Folder that keeps what is finished, and train-locked.json.")

    @property
    def how(self) -> LockedTraining:
        if not self.lr > 0:
            raise BadInput("--lr", allowed="above 0", got=self.lr, do=f"for example --lr {_DEFAULTS.lr:g}")
        names = ("rounds", "epochs", "batch_size", "lr", "weight_decay", "random_keys")
        return LockedTraining(**{n: getattr(self, n) for n in names}, lr_drops=_drops(self.lr_drops))


@flags_from(LockFlags)
def train_with_locks(given: LockFlags) -> int:
    """Train with locks (FedKL), with BatchNorm alone and without either: accuracy with the own key and with others.

    Example: `leakgauge lab train-locked --data digits --lock key-lock:activation=sigmoid --rounds 5 --lr 0.05`
    """
    how, number, out = given.how, given.seed or 0, given.out
    net, samples = given.model or "lenet-dlg:activation=relu,init=default", given.data or "digits"
    asked = {"model": net, "data": samples, "clients": given.clients}
    configurations = [UNDEFENDED, BatchNormOnly.name, *dict.fromkeys(_checked(given.lock or [KeyLock.name]))]
    where = pick_device(given.device)
    set_precision("float32")
    train, test = (load(samples, part, given.data_root) for part in ("train", "test"))
    start = load_model(net, train.spec, number).to(where)
    shares = iid(train.labels, given.clients, number)
    if out is not None:
        make_folder(out)

    def trained(name: str) -> dict[str, Any]:
        locked = prepared(start, *parse_chain(name))
        found = train_locked(locked, train, test, shares, _with_first_values(how, name), number)
        return {"configuration": name, **dataclasses.asdict(found)}

    rows = []
    with watching() as watch:
        for place, name in enumerate(configurations):
            watch(place, len(configurations), name, 0.0)
            key = key_of(asked=asked, how=dataclasses.asdict(how), lock=name, seed=number, v=leakgauge.__version__)
            rows.append(_kept(None if out is None else out / f"{key[:12]}.json", key, partial(trained, name)))
    measured = {"seed": number, "tested": len(test), "configurations": rows, "environment": environment(where)}
    result = {**asked, **dataclasses.asdict(how), **measured}
    if out is not None:
        write_whole(out / "train-locked.json", json.dumps(result, indent=1, allow_nan=False).encode())
    if given.as_json:
        show_json(result)
    else:
        _show(result)
    if out is not None:
        say(f"written: {out / 'train-locked.json'}")
    return 0


def _drops(text: str) -> tuple[int, ...]:
    words = [] if text == "none" else text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise BadInput(
            "--lr-drops",
            allowed="numbers of rounds with commas between them, or none",
            got=repr(text),
            do="for example --lr-drops 60,120,160",
        )
    return tuple(sorted(int(word) for word in words))


def _checked(locks: list[str]) -> list[str]:
    for spec in locks:
        chain = parse_chain(spec)
        if len(chain) != 1 or not isinstance(chain[0], KeyLock):
            raise BadInput(
                "--lock", allowed="key-lock[:field=value,...]", got=repr(spec), do="other defenses: leakgauge train"
            )
        if chain[0].rounds > 1 or chain[0].told != "nothing":  # they describe an attacker, and a training has none
            raise BadInput("--lock", allowed="without rounds and told", got=repr(spec), do="they are for attacks")
    return locks


def _with_first_values(how: LockedTraining, name: str) -> LockedTraining:
    """The training with the first values of this lock."""
    found = [d.init for d in parse_chain(name) if isinstance(d, KeyLock)]
    return dataclasses.replace(how, init=found[0]) if found else how


def _kept(file: Path | None, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The row of an earlier call, or a new one, which is kept in that file."""
    row = _finished(file, key)
    if row is None:
        row = make()
        if file is not None:
            write_whole(file, sealed(key, row))
    return row


def _finished(kept: Path | None, key: str) -> dict[str, Any] | None:
    """The row of an earlier call; None if there is none, or if its file is damaged."""
    if kept is None or not kept.exists():
        return None
    try:
        row: dict[str, Any] = opened(kept, key)
        return row if {field.name for field in dataclasses.fields(LockedAccuracy)} <= row.keys() else None
    except (Unreadable, AttributeError) as error:
        say(f"{kept} is damaged ({error}): its configuration is trained again")
        return None


def _show(result: dict[str, Any]) -> None:
    rows = []
    for row in result["configurations"]:
        locked = row["configuration"] not in (UNDEFENDED, BatchNormOnly.name)
        spread = f" ({min(row['server_each']):.3f} to {max(row['server_each']):.3f})"
        others = [f"{fmean(row['other_key']):.3f}", f"{row['server']:.3f}{spread}"] if locked else ["-", "-"]
        rows.append([row["configuration"], f"{fmean(row['own']):.3f}", *others, f"{row['round_seconds']:.2f} s"])
    show_table(["configuration", "accuracy", "random key, own lock", "random key, first lock", "median round"], rows)
    show(
        f"{result['rounds']} rounds, {result['clients']} clients, {result['tested']:,} test samples; accuracy is the "
        f"mean over clients, each with its own key and lock. The first lock is the server's, tried with "
        f"{result['random_keys']} keys; where each client drew its own, a fresh one stands there."
    )

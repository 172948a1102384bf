"""`leakgauge lab train-locked`: FedKL's training, in which every client keeps a key and a lock of its own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

import leakgauge
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
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


def train_with_locks(
    lock: Annotated[
        list[str] | None, typer.Option("--lock", help="key-lock[:field=value,...]; repeat to compare.")
    ] = None,
    model: options.MODEL = None,
    data: options.DATA = None,
    clients: Annotated[int, typer.Option("--clients", min=1, help="Clients, with equal shares of the data.")] = 3,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of training.")] = _DEFAULTS.rounds,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes of a client in a round.")] = _DEFAULTS.epochs,
    batch_size: Annotated[int, typer.Option("--batch-size", min=2, help="Samples in a step.")] = _DEFAULTS.batch_size,
    lr: Annotated[float, typer.Option("--lr", help="The clients' rate.")] = _DEFAULTS.lr,
    lr_drops: Annotated[
        str, typer.Option("--lr-drops", help="Rounds after which the rate falls to a fifth; none for never.")
    ] = ",".join(map(str, _DEFAULTS.lr_drops)),
    weight_decay: Annotated[
        float, typer.Option("--weight-decay", min=0, help="The clients' weight decay.")
    ] = _DEFAULTS.weight_decay,
    random_keys: Annotated[
        int, typer.Option("--random-keys", min=1, help="Keys that the server tries.")
    ] = _DEFAULTS.random_keys,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder that keeps what is finished, and train-locked.json.")
    ] = None,
    as_json: options.JSON = False,
) -> None:
    """Train with locks (FedKL), with BatchNorm alone and without either: accuracy with the own key and with others.

    Example: `leakgauge lab train-locked --data digits --lock key-lock:activation=sigmoid --rounds 5 --lr 0.05`
    """
    if not lr > 0:
        raise BadInput("--lr", allowed="above 0", got=lr, do=f"for example --lr {_DEFAULTS.lr:g}")
    how = dataclasses.replace(
        _DEFAULTS,
        rounds=rounds,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        lr_drops=_drops(lr_drops),
        weight_decay=weight_decay,
        random_keys=random_keys,
    )
    net, samples = model or "lenet-dlg:activation=relu,init=default", data or "digits"
    asked = {"model": net, "data": samples, "clients": clients}
    configurations = [UNDEFENDED, BatchNormOnly.name, *dict.fromkeys(_checked(lock or [KeyLock.name]))]
    where, number = pick_device(device), seed or 0
    set_precision("float32")
    train, test = load(samples, "train", data_root), load(samples, "test", data_root)
    start = load_model(net, train.spec, number).to(where)
    shares = iid(train.labels, clients, number)
    if out is not None:
        make_folder(out)

    def trained(name: str) -> dict[str, Any]:
        locked = start
        for defense in parse_chain(name):
            locked = defense.prepare(locked)
        found = train_locked(locked, train, test, shares, _with_first_values(how, name), number)
        return {"configuration": name, **dataclasses.asdict(found)}

    rows = []
    with watching() as watch:
        for place, name in enumerate(configurations):
            watch(place, len(configurations), name, 0.0)
            key = key_of(asked=asked, how=dataclasses.asdict(how), lock=name, seed=number, v=leakgauge.__version__)
            rows.append(_kept(None if out is None else out / f"{key[:12]}.json", key, partial(trained, name)))
    result = {
        **asked,
        **dataclasses.asdict(how),
        "seed": number,
        "tested": len(test),
        "configurations": rows,
        "environment": environment(where),
    }
    if out is not None:
        write_whole(out / "train-locked.json", json.dumps(result, indent=1, allow_nan=False).encode())
    if as_json:
        show_json(result)
    else:
        _show(result)
    if out is not None:
        say(f"written: {out / 'train-locked.json'}")


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

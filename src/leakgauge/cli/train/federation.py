"""`leakgauge train`: federated training with and without a defense: accuracy, seconds per round, bytes, guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.audit.federated_training import Trained, TrainingReport, train_federation
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.errors import BadInput
from leakgauge.federation.centralised import NAME as CENTRALISED
from leakgauge.reading.files import write_whole
from leakgauge.types import Federation, LocalTraining, Partition, Scenario

_LOCAL = LocalTraining(kind="fedavg", epochs=2, lr=0.01)
_PARTITION = Partition(kind="iid", clients=100)


def train(
    defense: Annotated[
        list[str] | None, typer.Option("--defense", help="NAME[:field=value,...], a+b chains; repeat to compare.")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Rounds of training. Default 100.")] = None,
    federation: Annotated[
        str | None,
        typer.Option("--federation", help="per_round=10,most=10,server_lr=1,weighting=samples,evaluate=5 ..."),
    ] = None,
    aggregator: Annotated[
        list[str] | None,
        typer.Option("--aggregator", help="fedavg, fedboosting, fedadam, learned-proportions; with :field=value,..."),
    ] = None,
    encryption: Annotated[
        list[str] | None,
        typer.Option("--encryption", help="Add updates encrypted: none, paillier or ckks, with :field=value,..."),
    ] = None,
    poison: Annotated[
        list[str] | None, typer.Option("--poison", help="Clients that harm: kind=flip or noise,clients=1,lies=true ...")
    ] = None,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Train without defense too (plain FedAvg), in lock step.")
    ] = True,
    centralised: Annotated[
        bool, typer.Option("--centralised", help="Train one model on each round's samples in one place too.")
    ] = False,
    model: options.MODEL = None,
    data: options.DATA = None,
    partition: options.PARTITION = None,
    local: options.LOCAL = None,
    weights: options.WEIGHTS = None,
    precision: options.PRECISION = None,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder that keeps what is finished, and train.json. Default: none.")
    ] = None,
    fresh: options.FRESH = False,
    as_json: options.JSON = False,
) -> None:
    """Train a federation with defenses and without, side by side: what a defense costs in accuracy, time and bytes.

    Example: `leakgauge train federation --data digits --model mlp --defense gaussian:std=0.01 --rounds 20`
    """
    scenario = options.changed(
        Scenario(data="digits", partition=_PARTITION, local=_LOCAL),
        model=model,
        data=data,
        partition=partition,
        local=local,
        weights=weights,
        precision=precision,
        seed=seed,
        defenses=tuple(defense or ()),
    )
    settings = Federation.from_text(federation or "")
    given = {
        "rounds": rounds,
        "aggregator": _once("--aggregator", aggregator),
        "encryption": _once("--encryption", encryption),
        "poison": _once("--poison", poison),
    }
    settings = Federation.from_mapping(settings.as_dict() | {n: v for n, v in given.items() if v is not None})
    with watching() as told:
        report = train_federation(
            scenario,
            settings,
            baseline=baseline,
            centralised=centralised,
            out=out,
            fresh=fresh,
            device=device,
            data_root=data_root,
            watch=lambda done, of, said: told(done - 1, of, said or "training", 1.0),
            notice=lambda text: say(f"leakgauge: {text}"),
        )
    if out is not None:
        write_whole(out / "train.json", json.dumps(report.as_dict(), indent=2, allow_nan=False).encode())
    if as_json:
        show_json(report.as_dict())
    else:
        _show(report)
    if out is not None:
        say(f"written: {out / 'train.json'}")


def _once(flag: str, given: list[str] | None) -> str | None:
    """Elsewhere such a flag may be repeated; here the last one would win in silence."""
    if given and len(given) > 1:
        raise BadInput(
            flag,
            allowed="given once: all configurations share it",
            got=" and ".join(given),
            do="train once for each, or compare aggregators: 'leakgauge lab two-gaussians', 'leakgauge lab read-words'",
        )
    return given[0] if given else None


def _show(report: TrainingReport) -> None:
    first = next((t for t in report.trained if t.name != CENTRALISED), report.trained[0])
    rows = []
    for trained in report.trained:
        time, usual = trained.round_seconds, first.round_seconds.value or 1.0
        slower = (
            ""
            if trained is first or trained.name == CENTRALISED
            else f"{100 * ((time.value or 0.0) / usual - 1):+.0f} %"
        )
        rows.append(
            [
                trained.name,
                f"{trained.accuracy:.3f}",
                f"{1000 * (time.value or 0):.0f} ms [{1000 * (time.low or 0):.0f}, {1000 * (time.high or 0):.0f}]",
                slower,
                f"{trained.bytes_up:,}",
                f"{trained.bytes_down:,}",
                _promise(trained),
            ]
        )
    columns = ["configuration", "accuracy", "median round [quartiles]", "slower", "bytes up", "bytes down", "guarantee"]
    show_table(columns, rows)
    f = report.federation
    show(f"{f.rounds} rounds, {f.per_round} of {report.clients} clients in each; bytes are per client and round")
    for trained in report.trained:
        if trained.poisoned_weight is not None:
            bad, good = trained.poisoned_weight
            ratio = f"(ratio {bad / good:.2f})"
            show(f"{trained.name}: a poisoned client's weight is {bad:.4f}, an honest one's {good:.4f} {ratio}")
    for sentence in report.trained[-1].trust:
        show(f"- {sentence}")


def _promise(trained: Trained) -> str:
    g = trained.guarantee
    return "none" if g is None else f"epsilon {g.epsilon:.3g}, delta {g.delta:g} per {g.unit}"

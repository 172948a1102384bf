"""`leakgauge train`: federated training with and without a defense: accuracy, seconds per round, bytes, guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakgauge.audit.federated_training import Trained, TrainingReport, train_federation
from leakgauge.cli.console import deliver, say, show, show_table, watching
from leakgauge.cli.options import Victim, flag, flags_from
from leakgauge.errors import BadInput
from leakgauge.federation.centralised import NAME as CENTRALISED
from leakgauge.report.numbers import milliseconds
from leakgauge.types import Client, Federation, Partition, Scenario

_LOCAL = Client(kind="fedavg", epochs=2, lr=0.01)
_PARTITION = Partition(kind="iid", clients=100)


@dataclass(frozen=True, kw_only=True)
class FederationFlags(Victim):
    """The options of `leakgauge train federation`."""

    defense: list[str] | None = flag("NAME[:field=value,...], a+b chains; repeat to compare.")
    rounds: int | None = flag("Rounds of training. Default 100.")
    federation: str | None = flag("per_round=10,most=10,server_lr=1,weighting=samples,evaluate=5 ...")
    aggregator: list[str] | None = flag("fedavg, fedboosting, fedadam, learned-proportions; with :field=value,...")
    encryption: list[str] | None = flag("Add updates encrypted: none, paillier or ckks, with :field=value,...")
    poison: list[str] | None = flag("Clients that harm: kind=flip or noise,clients=1,lies=true ...")
    baseline: bool = flag(
        "Train without defense too (plain FedAvg), in lock step.", "--baseline/--no-baseline", default=True
    )
    centralised: bool = flag("Train one model on each round's samples in one place too.", default=False)
    partition: str | None = flag("Spread of the data: kind=dirichlet,alpha=0.1,clients=20 ...")
    out: Path | None = flag("Folder that keeps what is finished, and train.json. Default: none.")
    fresh: bool = flag("Run everything anew, also what is finished in --out.", default=False)


@flags_from(FederationFlags)
def train(given: FederationFlags) -> int:
    """Train a federation with defenses and without, side by side: what a defense costs in accuracy, time and bytes.

    Example: `leakgauge train federation --data digits --model mlp --defense gaussian:std=0.01 --rounds 20`
    """
    base = Scenario(data="digits", partition=_PARTITION, local=_LOCAL)
    own: dict[str, Any] = {name: _once(name, getattr(given, name)) for name in ("aggregator", "encryption", "poison")}
    own = {name: value for name, value in {"rounds": given.rounds, **own}.items() if value is not None}
    settings = Federation.from_mapping(Federation.from_text(given.federation or "").as_dict() | own)
    with watching() as watch:
        report = train_federation(
            given.over(base, defenses=tuple(given.defense or ())),
            settings,
            baseline=given.baseline,
            centralised=given.centralised,
            out=given.out,
            fresh=given.fresh,
            device=given.device,
            data_root=given.data_root,
            watch=lambda done, of, said: watch(done - 1, of, said or "training", 1.0),
            notice=lambda text: say(f"leakgauge: {text}"),
        )
    deliver(report.as_dict(), given.as_json, lambda: _show(report), given.out and given.out / "train.json")
    return 0


def _once(name: str, given: list[str] | None) -> str | None:
    """Elsewhere such a flag may be repeated; here the last one would win in silence."""
    if given and len(given) > 1:
        raise BadInput(
            f"--{name}",
            allowed="given once: all configurations share it",
            got=" and ".join(given),
            do="train once for each, or compare aggregators: 'leakgauge lab two-gaussians', 'leakgauge lab read-words'",
        )
    return given[0] if given else None


def _show(report: TrainingReport) -> None:
    first = next((t for t in report.trained if t.name != CENTRALISED), report.trained[0])
    usual = first.round_seconds.value or 1.0
    rows = []
    for trained in report.trained:
        time, alone = trained.round_seconds, trained is first or trained.name == CENTRALISED
        slower = "" if alone else f"{100 * ((time.value or 0.0) / usual - 1):+.0f} %"
        seconds, traffic = milliseconds(time), (f"{trained.bytes_up:,}", f"{trained.bytes_down:,}")
        rows.append([trained.name, f"{trained.accuracy:.3f}", seconds, slower, *traffic, _promise(trained)])
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

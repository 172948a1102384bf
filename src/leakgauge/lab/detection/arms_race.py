"""Noise hides the parameters of MKOR and damages its pictures: which happens first?

The server adds noise to its convolutions and weakens the links of its dense layers; the client looks at the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from leakgauge.audit.run import run_audit
from leakgauge.checks.inspection import checks, measure
from leakgauge.checks.suspicion import HIGH
from leakgauge.checks.thresholds import Thresholds
from leakgauge.data import load
from leakgauge.errors import LeakgaugeError
from leakgauge.models import load_model
from leakgauge.servers.mkor import MKOR
from leakgauge.types import NLL_ON_LOGITS, Client, Scenario

NOISES = (0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2)
LINKS = (300.0, 30.0, 0.0)
PAIR_NOISE = 0.5  # on the mirrored rows: they are then no multiples of one another, at little cost to the pictures
_DATA, _RECORDS = "photos64:size=224", 9  # one picture of each class
_MODEL = "vgg16-mkor:hidden=256"


@dataclass(frozen=True)
class Point:
    """One strength of the server: how clearly it is detected, and what it still recovers."""

    noise: float
    link: float
    seed: int
    margin: float  # the clearest check's score over its threshold: from 1 on it is found
    check: str  # which check that is
    psnr: float
    ssim: float


def race(
    seeds: Sequence[int],
    data_root: Path | None = None,
    device: str = "auto",
    noises: Sequence[float] = NOISES,
    links: Sequence[float] = LINKS,
    watch: Callable[[int, int], None] = lambda *_: None,
) -> list[Point]:
    """Every noise with every link, under the loss that favours the server (NLL on logits)."""
    wanted = [(noise, link, seed) for link in links for noise in noises for seed in seeds]
    points = []
    for number, (noise, link, seed) in enumerate(wanted):
        server = MKOR(parameters="inconspicuous", noise=noise, link=link, pair_noise=PAIR_NOISE, secret=seed)
        points.append(_point(server, data_root, device))
        watch(number + 1, len(wanted))
    return points


def margin_of(server: MKOR, data_root: Path | None) -> tuple[float, str]:
    """How far the clearest severe check lies beyond its threshold, and its name; from the weights alone."""
    data = load(_DATA, "train", data_root).spec
    sent = server.prepare(load_model(_MODEL, data, server.secret), data)
    usual, best = Thresholds(), (0.0, "none")
    for name, layers in measure(sent, data).items():
        check = checks()[name]
        scores = [m.score for m in layers.values()]
        if check.severity != HIGH or not scores:
            continue
        score = min(scores) if check.everywhere else max(scores)
        best = max(best, (min(score, 1e6) / getattr(usual, check.field), name))
    return best


def _point(server: MKOR, data_root: Path | None, device: str) -> Point:
    scenario = Scenario(
        model=_MODEL,
        data=_DATA,
        batch_size=_RECORDS,
        batch_labels="distinct",
        trials=1,
        seed=server.secret,
        attacks=(server.spec,),
        local=Client(loss=NLL_ON_LOGITS),
        threat_model="malicious-parameters",
    )
    report, _ = run_audit(scenario, undefended=True, device=device, data_root=data_root)
    (found,) = (f for f in report.findings if f.attack == server.name)
    psnr, ssim = (found.scores.get(name) for name in ("psnr", "ssim"))
    if psnr is None or ssim is None:
        raise LeakgaugeError(found.error or f"{server.spec} gave no picture")
    return Point(server.noise, server.link, server.secret, *margin_of(server, data_root), psnr, ssim)

"""Is a guess ever called a leak, and does a true recovery stay one? Run it by hand: it takes minutes.

    python benchmarks/false_alarms.py [--trials 500] [--data-root DIR] [--out benchmarks/false_alarms.md]

Guessers that never see an update (noise, mid-grey, the mean of public samples, the mean of their class, another sample
of the class) stand in the place of an attack, as do the victims themselves under noise. Scores, controls and verdict
are those of an audit. A kind of picture whose data set is not there is left out and named.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from leakgauge.data import Dataset, load
from leakgauge.errors import BadInput
from leakgauge.metrics.scoring import score
from leakgauge.types import Batch, DataSpec, Finding, Reconstruction, cell_name
from leakgauge.verdict.closeness import closeness, draw_candidates, judge, ranks_of
from leakgauge.verdict.credible import is_recovered, judged
from leakgauge.verdict.summary import conclude, summarise

SIZES = (1, 6, 500)  # trials of one audit
OTHERS = 2000
FEW = 1000  # others that there should be besides the victims


def radiographs(side: int, count: int, seed: int) -> Dataset:
    """Smooth grey pictures with a common build: a trunk, two lungs, ribs; people differ, by their label most."""
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
    labels = torch.randint(4, (count,), generator=g)

    def each(low: float, high: float) -> Tensor:
        return (low + (high - low) * torch.rand(count, generator=g))[:, None, None]

    def ellipse(cx: Tensor | float, cy: Tensor | float, a: Tensor | float, b: Tensor | float) -> Tensor:
        return torch.sigmoid(8 * (1 - ((x - cx) / a) ** 2 - ((y - cy) / b) ** 2))

    shift = 0.1 * (labels[:, None, None] - 1.5)
    trunk = ellipse(0, 0.1, each(0.8, 1.0), each(1.0, 1.3))
    lungs = ellipse(-0.4 + each(-0.05, 0.05), shift, each(0.22, 0.32), each(0.5, 0.7)) + ellipse(
        0.4 + each(-0.05, 0.05), shift, each(0.22, 0.32), each(0.5, 0.7)
    )
    ribs = 0.06 * torch.sin(each(14, 20) * (y + 0.3 * x**2) + each(0, 6.3)) * trunk
    heart = 0.25 * ellipse(0.12 + each(-0.05, 0.05), 0.35, each(0.2, 0.3), each(0.2, 0.3))
    pictures = each(0.5, 0.7) * trunk - each(0.25, 0.4) * lungs + ribs + heart + each(0.0, 0.1)
    pictures += 0.01 * torch.randn(pictures.shape, generator=g)
    return Dataset(DataSpec(f"radiographs {side}", (1, side, side), 4, "image"), pictures[:, None].clamp(0, 1), labels)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One kind of picture: who is attacked, who is public, and who else there is to compare with."""

    spec: DataSpec
    victims: Batch  # (T, 1, *shape)
    public: Batch  # (1, P, *shape)
    others: Batch  # (1, K, *shape)


def setting(name: str, trials: int, root: Path | None) -> Setting:
    if name.startswith("radiographs"):
        side = int(name.split()[1])
        many = OTHERS if side < 224 else max(400, trials)
        private, public = radiographs(side, trials + many, 0), radiographs(side, 512, 1)
    else:
        private, public = load(name, "test", root), load(name, "train", root)
        if len(private) < trials + FEW:  # nothing is trained here, so the halves may change places
            private, public = sorted((private, public), key=len, reverse=True)
    g = torch.Generator().manual_seed(0)
    order, lent = torch.randperm(len(private), generator=g), torch.randperm(len(public), generator=g)[:512]
    trials = min(trials, 2 * len(private) // 3)
    inputs, labels = private.take(order[: trials + OTHERS])
    known, theirs = public.take(lent)
    return Setting(
        private.spec,
        Batch(inputs[:trials, None], labels[:trials, None]),
        Batch(known[None], theirs[None]),
        Batch(inputs[None, trials:], labels[None, trials:]),
    )


def guessers(at: Setting) -> Iterator[tuple[str, Tensor]]:
    """What each claims of every victim."""
    true, labels = at.victims.inputs, at.victims.labels[:, 0]
    known, theirs = at.public.inputs[0], at.public.labels[0]
    g = torch.Generator().manual_seed(7)
    mean = known.mean(0)
    of_class = {c: (theirs == c).nonzero()[:, 0] for c in set(labels.tolist())}
    yield "noise", torch.rand(true.shape, generator=g)
    yield "mid-grey", torch.full_like(true, 0.5)
    yield "mean of all", mean.expand_as(true)
    yield (
        "mean of the class",
        torch.stack([known[i].mean(0) if len(i := of_class[c]) else mean for c in labels.tolist()])[:, None],
    )
    picks = [i[torch.randint(len(i), (1,), generator=g)] if len(i := of_class[c]) else [0] for c in labels.tolist()]
    yield "another of the class", torch.cat([known[i] for i in picks])[:, None]


def recoveries(at: Setting) -> Iterator[tuple[str, Tensor]]:
    g = torch.Generator().manual_seed(8)
    for level in (20, 25, 35):
        noise = torch.randn(at.victims.inputs.shape, generator=g) * 10 ** (-level / 20)
        yield f"truth at {level} dB", (at.victims.inputs + noise).clamp(0, 1)
    yield "truth", at.victims.inputs


def audited(at: Setting, claims: Tensor, size: int) -> tuple[int, int, int]:
    """How many audits of this many trials are called a leak, out of how many; records called recovered in them."""
    leaks = recovered = audits = 0
    floor = at.public.inputs[0].mean(0).expand_as(claims)
    for begin in range(0, len(claims), size):
        rows = list(range(begin, min(begin + size, len(claims))))
        true = at.victims.take(rows)
        candidates = draw_candidates(true, at.others, rows)
        close = None if candidates is None else closeness(claims[rows], true.inputs, candidates)
        ranks = [()] * len(rows) if close is None else [tuple(r) for r in ranks_of(close.matched).tolist()]
        findings = [
            *_findings("mean-image", true, floor[rows], at.spec, [()] * len(rows)),
            *_findings("guess", true, claims[rows], at.spec, ranks),
        ]
        controls = {}
        if close is not None and candidates is not None:
            controls = {cell_name("guess", "none", False): judge(close, candidates.same_label)}
        told = judged(findings, at.spec, controls)
        verdict = conclude(summarise(told, at.spec, controls), told, ("none",), {}, None, at.spec)
        audits, leaks = audits + 1, leaks + verdict.leaks
        recovered += sum(is_recovered(at.spec, f, 0) for f in told if f.attack == "guess")
    return leaks, audits, recovered


def _findings(
    attack: str, true: Batch, claims: Tensor, spec: DataSpec, ranks: list[tuple[float, ...]]
) -> list[Finding]:
    zero = torch.zeros(len(claims))
    scores = score(true, Reconstruction(claims, None, zero, zero, zero), spec)
    return [
        Finding(attack, "none", False, t, t, scores.means(t), (scores.record(t, 0),), ranks=ranks[t])
        for t in range(len(claims))
    ]


def page(rows: list[str]) -> str:
    return "\n".join(
        [
            "<!-- Written by benchmarks/false_alarms.py; edit that. -->",
            "",
            "# Guesses called leaks, and recoveries that stay recovered",
            "",
            "What is claimed stands in the place of an attack on every victim; scores, controls and verdict",
            "are those of audits of one, six or all victims. Guesses never saw an update: none of them may leak.",
            "A record under noise counts where it is nearer to its own than floors and others allow, which is",
            "hard for smooth pictures, whose mean alone is at 20 to 30 dB. The script draws the radiographs.",
            "Seed 0, CPU.",
            "",
            *rows,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--kinds", nargs="*", default=None)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    kinds = ["radiographs 32", "radiographs 64", "radiographs 224", "photos32", "cifar10", "lfw", "mnist", "digits"]
    rows: list[str] = []

    def say(line: str) -> None:
        rows.append(line)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    say("| pictures | claim | " + " | ".join(f"audits of {size}" for size in SIZES) + " |")
    say("|---|---|" + "---|" * len(SIZES))
    for kind in asked.kinds or kinds:
        try:
            at = setting(kind, asked.trials, asked.data_root)
        except BadInput as error:
            say(f"{kind}: left out: {error}")
            continue
        for make in (guessers, recoveries):
            for name, claims in make(at):
                cells = [audited(at, claims, size) for size in SIZES]
                said = [f"{leaks} of {audits} leak; {found} of {len(claims)} records" for leaks, audits, found in cells]
                say(f"| {kind} | {name} | " + " | ".join(said) + " |")
    if asked.out:
        asked.out.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

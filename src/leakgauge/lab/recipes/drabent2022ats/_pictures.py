"""Section 7: some pictures stay vulnerable under a policy, and it is not known which. By edges, contrast and class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.audit.run import Watch
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import load
from leakgauge.defenses.ats import ATS
from leakgauge.engine.precision import set_precision
from leakgauge.engine.randomness import generator
from leakgauge.execution.batching import reconstruct
from leakgauge.lab.recipes.drabent2022ats._set_up import AFTERWARDS, HYBRID, LENET, PLAIN, WAYS
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Study, Table
from leakgauge.metrics.psnr import PSNR
from leakgauge.models import load_model
from leakgauge.setup.setup import pick_device
from leakgauge.types import Batch, Client, Known, threat_model

_SHUFFLES = 999  # random assignments of the classes to compare with
_THREAT = threat_model("honest-but-curious+labels")


@dataclass(frozen=True, kw_only=True)
class ExposedPictures(Measurement):
    """PSNR against the client's own pictures, beside properties of those pictures.

    A grey guess is scored as well: what it explains comes from the score and not from the leak.
    """

    unit: ClassVar[str] = "pictures"

    model: str
    attack: str
    policy: str = ""
    attacker: str = PLAIN
    data: str = "cifar10"
    pictures: int = 50

    @property
    def title(self) -> str:
        against = f" against {self.policy}, {self.attacker}" if self.policy else ""
        return f"{self.attack}{against} on {self.model}, {self.data}: {self.pictures} pictures, seed {self.seed}"

    @property
    def setting(self) -> str:
        return "untrained"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        set_precision("float32")
        where = pick_device(device)
        samples = load(self.data, "test", data_root)
        model = load_model(self.model, samples.spec, self.seed, None).to(where).eval()
        order = torch.randperm(len(samples), generator=generator(self.seed, "exposed"))[: self.pictures]
        own, labels = (t.to(where) for t in samples.take(order))
        batch, seeds = Batch(own[:, None], labels[:, None]), [self.seed + trial for trial in range(len(own))]
        step = ATS(policy=self.policy).wrap(fedsgd()) if self.policy else fedsgd()
        facts = facts_about(model, batch, samples.spec, Client(), None, _THREAT.facts)
        known = (Known(ATS(policy=self.policy), WAYS[self.attacker]),) if self.attacker in WAYS else ()
        attack = catalog.build("attacks", self.attack)
        seen = observe(model, step(model, batch, seeds), _THREAT, facts)
        claimed = reconstruct(attack, seen, seeds, lambda share: watch(0, 1, "", share), known).inputs
        assert claimed is not None
        recovered = PSNR(own, claimed[:, 0].nan_to_num().clamp(0, 1), samples.spec)
        grey = PSNR(own, torch.full_like(own, 0.5), samples.spec)
        random = generator(self.seed, "dealt")
        shuffled = [labels[torch.randperm(len(labels), generator=random).to(where)] for _ in range(_SHUFFLES)]
        return {
            "psnr_of_pictures": tuple(recovered.tolist()),
            "by_edges": _pairs(edges(own), recovered),
            "by_edges_blind": _pairs(edges(own), grey),
            "by_contrast": _pairs(contrast(own), recovered),
            "by_contrast_blind": _pairs(contrast(own), grey),
            "between_classes": (between_classes(recovered, labels),),
            "between_classes_by_chance": tuple(between_classes(recovered, each) for each in shuffled),
        }


def edges(pictures: Tensor) -> Tensor:
    """(M, C, H, W) -> (M,): mean difference between neighbouring pixels of the grey picture."""
    grey = pictures.mean(1)
    return (grey.diff(dim=1).abs().mean((1, 2)) + grey.diff(dim=2).abs().mean((1, 2))) / 2


def contrast(pictures: Tensor) -> Tensor:
    """(M, C, H, W) -> (M,): standard deviation of the grey picture's pixels."""
    return pictures.mean(1).flatten(1).std(1)


def between_classes(values: Tensor, labels: Tensor) -> float:
    """The share of the variance of `values` (M,) that the means of the classes explain, 0 to 1."""
    away = values - values.mean()
    count = torch.bincount(labels).to(away)
    means = torch.zeros_like(count).index_add_(0, labels, away) / count.clamp_min(1)
    total = float(away.square().sum())
    return float((count * means.square()).sum()) / total if total else 0.0


def _pairs(first: Tensor, second: Tensor) -> tuple[float, ...]:
    """x, y, x, y, ..., as correlations expect it."""
    return tuple(torch.stack((first.to(second), second), 1).flatten().tolist())


_ATTACK = "cpl:steps=25"
_COLUMNS = {
    "no policy": ExposedPictures(model=LENET, attack=_ATTACK),
    f"hybrid, {PLAIN}": ExposedPictures(model=LENET, attack=_ATTACK, policy=HYBRID),
    f"hybrid, {AFTERWARDS}": ExposedPictures(model=LENET, attack=_ATTACK, policy=HYBRID, attacker=AFTERWARDS),
}
_STATISTICS = (
    "psnr_of_pictures",
    "by_edges",
    "by_edges_blind",
    "by_contrast",
    "by_contrast_blind",
    "between_classes",
    "between_classes_by_chance",
)

TABLE_PICTURES = Table(
    "pictures",
    f"which pictures are vulnerable with and without the hybrid {HYBRID}, LeNet, CIFAR-10",
    "Spearman's correlation over pictures of the PSNR against the client's own picture with what can be seen on that: "
    "edges (mean difference of neighbouring pixels) and contrast (standard deviation), with Bonett and Wright's "
    "interval; and the share of the PSNR's variance that lies between the ten classes, beside that of classes dealt "
    "out at random 999 times: the median and what 95 % of them lie between. The same with a guess that is grey all "
    "over in place of what was recovered.",
    "Section 7: some images are vulnerable under the policy and it is unclear which. Untrained LeNet, L-BFGS with 25 "
    "steps, labels given. What a grey guess shows as well comes from the score and is no vulnerability. Cannot tell "
    "by edges and contrast, whose correlations after undoing the policy are compatible with none. The share between "
    "classes is measured; that of classes dealt out at random waits for its run.",
    tuple(
        Cell("PSNR", column, Study(measurement), dict.fromkeys(_STATISTICS), quick=4)
        for column, measurement in _COLUMNS.items()
    ),
)

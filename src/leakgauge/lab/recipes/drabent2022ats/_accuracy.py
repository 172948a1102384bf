"""What policies cost: a short training with each, tested on untransformed pictures."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from leakgauge.audit.run import Watch
from leakgauge.data import Dataset, load
from leakgauge.engine.precision import set_precision
from leakgauge.engine.randomness import generator
from leakgauge.federation.rounds import accuracy, train
from leakgauge.lab.recipes.drabent2022ats._set_up import (
    CONVNET,
    EIGHT,
    HYBRID,
    OF_CONVNET,
    OF_RESNET,
    OWN,
    RANDOM,
    RESNET,
    ROUNDS,
    TRAINED,
    training,
)
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Study, Table
from leakgauge.models import load_model
from leakgauge.setup.setup import pick_device

MARKS = (10, 25, 50, 75, 100)  # percent of the rounds
_TESTED = 2000  # test pictures behind a point of a curve
_LENET = (
    "lenet-dlg:activation=relu,init=default"  # the attacked network, with sigmoids, does not learn in so few rounds
)


@dataclass(frozen=True, kw_only=True)
class PolicyTraining(Measurement):
    """Accuracy on the test split, which no policy touches, after a training whose pictures are all transformed."""

    unit: ClassVar[str] = "rounds"

    model: str
    data: str = "cifar100"
    policy: str = ""
    lr: float = 0.1
    rounds: int = ROUNDS
    curve: bool = False  # also the loss and the accuracy during the training

    @property
    def title(self) -> str:
        with_it = f" with {self.policy}" if self.policy else ""
        return f"training{with_it} of {self.model}, {self.data}: {self.rounds} rounds, seed {self.seed}"

    @property
    def setting(self) -> str:
        return "128 pictures in each"

    def as_dict(self) -> dict[str, Any]:
        """Without a curve the field is left out, so that keys of earlier versions still fit."""
        return {k: v for k, v in super().as_dict().items() if k != "curve" or v}

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        set_precision("float32")
        public, test = load(self.data, "train", data_root), load(self.data, "test", data_root)
        model = load_model(self.model, public.spec, self.seed, None).to(pick_device(device))
        plan = dataclasses.replace(training(self.policy, self.rounds), lr=self.lr)
        losses: list[Tensor] = []
        found: dict[str, tuple[float, ...]] = {}
        marks = {max(1, round(mark * self.rounds / 100)): mark for mark in MARKS} if self.curve else {}
        some = torch.randperm(len(test), generator=generator(self.seed, "curve"))[:_TESTED]

        def follow(done: int, worker: nn.Module, loss: Tensor) -> None:
            losses.append(loss)
            if done in marks:
                since = max(1, self.rounds // 20)  # a twentieth of the training: a single round's loss is noise
                found[f"loss_{marks[done]}"] = (float(torch.stack(losses[-since:]).mean()),)
                found[f"test_{marks[done]}"] = (_tested(worker, test, some),)

        trained = train(
            model, public, plan, self.seed, watch=lambda done: watch(0, 1, "", done / self.rounds), follow=follow
        )
        return found | {"accuracy": (accuracy(trained, test),)}


def _tested(worker: nn.Module, test: Dataset, some: Tensor) -> float:
    """Test in eval mode, then restore the mode of every module: BatchNorm keeps learning."""
    modes = {module: module.training for module in worker.modules()}
    right = accuracy(worker.eval(), test, some)
    for module, mode in modes.items():
        module.training = mode
    return right


def _longer(policy: str) -> PolicyTraining:
    """LeNet is small enough for more rounds. Its rate was lowered before anything was measured."""
    return PolicyTraining(model=_LENET, policy=policy, lr=0.05, rounds=2000)


_LENET_NAME = "LeNet, ReLU"
_PRINTED: dict[tuple[str, str, str], dict[str, float | None]] = {  # column, network, data -> policy -> accuracy
    (_LENET_NAME, _LENET, "cifar100"): dict.fromkeys(("", RANDOM, *OF_RESNET, *OF_CONVNET)),
    ("ConvNet of eight convolutions", EIGHT, "cifar100"): dict.fromkeys(("", *OF_CONVNET)),
    ("1 (a) and 2: ResNet20-4", RESNET, "cifar100"): {
        "": 0.7811,
        RANDOM: 0.7502,
        "3-1-7": 0.7159,
        "43-18-18": 0.7716,
        HYBRID: 0.7747,
    },
    ("1 (b): ConvNet", CONVNET, "cifar100"): {
        "": 0.7297,
        RANDOM: 0.7193,
        "21-13-3": 0.6326,
        "7-4-15": 0.7077,
        OF_CONVNET[-1]: 0.6891,
    },
    ("1 (c) and 5 (a): ResNet20-4, Fashion-MNIST", RESNET, "fashion-mnist"): {
        "": 0.9519,
        RANDOM: 0.9519,
        "19-15-45": 0.9244,
        **dict.fromkeys(OWN[RESNET][1:]),
        "3-1-7": 0.9320,
        "43-18-18": 0.9488,
        HYBRID: 0.9449,
    },
    ("1 (d) and 5 (b): ConvNet, Fashion-MNIST", CONVNET, "fashion-mnist"): {
        "": 0.9461,
        RANDOM: 0.9447,
        "42-28-42": 0.9462,
        **dict.fromkeys(OWN[CONVNET][1:]),
        "21-13-3": 0.9238,
        "7-4-15": 0.9435,
        OF_CONVNET[-1]: 0.9377,
    },
    ("6: ResNet20-4, Tiny-ImageNet", RESNET, "tiny-imagenet"): {"": 0.6144, HYBRID: 0.5738},
}


def _of(column: str, model: str, data: str, policy: str) -> PolicyTraining:
    return _longer(policy) if column == _LENET_NAME else PolicyTraining(model=model, data=data, policy=policy)


TABLE_ACCURACY = Table(
    "accuracy",
    "what policies cost in accuracy: that column of tables 1, 5 and 6",
    "share of the test pictures, as they are, that the trained network gets right.",
    "The published training has 60 epochs in the replication (40 on Tiny-ImageNet by its scripts) and 200 in the first "
    "study: SGD at 0.1 with Nesterov's momentum 0.9, weight decay 5e-4, tenfold lower rates at 3/8, 5/8 and 7/8. Ours "
    "has the same rule and 1,173 rounds of 128 pictures, 3 epochs of CIFAR-100, for the larger networks and 2,000 "
    "rounds at a rate of 0.05 for LeNet: read ours among themselves. ConvNet of eight convolutions has hardly begun to "
    "learn by then, so its rows say little. Pictures of a training are cropped and mirrored before the policy, also "
    "where there is none, as in the released code. Its loss has a factor of 0.5, ours does not. The document says that "
    "the loss of accuracy is negligible; after 3 epochs it is not, on LeNet and ResNet20-4 alike, but these are single "
    "seeds far from the end of a training: we cannot tell.",
    tuple(
        Cell(
            policy or "no policy",
            column,
            Study(_of(column, model, data, policy)),
            {"accuracy": right},
            quick=15 if column == _LENET_NAME and policy in ("", HYBRID) else 0,
        )
        for (column, model, data), by_policy in _PRINTED.items()
        for policy, right in by_policy.items()
    ),
    heavy="trainings; those of the larger networks take a GPU.",
)

_CURVES = {
    _LENET_NAME: {p: dataclasses.replace(_longer(p), curve=True, rounds=600) for p in ("", RANDOM, *OF_RESNET)},
    "ResNet20-4": {
        p: PolicyTraining(model=RESNET, policy=p, curve=True, rounds=TRAINED) for p in ("", RANDOM, *OF_RESNET)
    },
}

FIGURE_4 = Table(
    "figure-4",
    "experiment 7: how fast a training converges with policies and without, CIFAR-100",
    "mean training loss over the last twentieth of the rounds before each mark, on the pictures as they are trained "
    "on; accuracy on 2,000 test pictures as they are. The figure is printed without numbers.",
    "Claim 4: a policy has negligible impact on the efficiency of a training. The document trains ResNet20-4 for 60 "
    "epochs; ours has 10, and LeNet 600 rounds of 128 pictures at a rate of 0.05. What is measured so far on LeNet had "
    "200 rounds and has hardly begun to learn: cannot tell, on LeNet as on ResNet20-4.",
    tuple(
        Cell(
            f"after {mark} % of the rounds",
            f"{network}, {policy or 'no policy'}",
            Study(measurement),
            {f"loss_{mark}": None, f"test_{mark}": None},
            quick=40 if (network, policy) == (_LENET_NAME, "") else 0,
        )
        for mark in MARKS
        for network, by_policy in _CURVES.items()
        for policy, measurement in by_policy.items()
    ),
    heavy="trainings; those of ResNet20-4 take a GPU.",
)

"""Figures 1 and 5: how alike the attacker's gradient and the client's become while an attack runs, by depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.attacks.inverting_gradients import InvertingGradients, sign_for
from leakgauge.audit.run import Watch
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import load
from leakgauge.defenses.ats.operations import applied, draw, parse
from leakgauge.engine.descent import Descent
from leakgauge.engine.gradients import trial_gradients
from leakgauge.engine.precision import set_precision
from leakgauge.engine.randomness import generator, normal
from leakgauge.errors import BadInput
from leakgauge.lab.recipes.drabent2022ats._set_up import (
    HYBRID,
    LENET,
    NAMES,
    NARROW,
    RANDOM,
    RESNET,
    SEMI_TRAINED,
    semi_trained,
)
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Study, Table
from leakgauge.matching.problem import Matching
from leakgauge.setup.setup import pick_device
from leakgauge.types import Batch, Client, Observation, threat_model

MARKS = (0, 10, 25, 50, 100)  # percent of the steps
DEPTHS = ("shallow", "middle", "deep")  # thirds of the layers with weights
_THREAT = threat_model("honest-but-curious+labels")


@dataclass(frozen=True, kw_only=True)
class DuringAttack(Measurement):
    """Cosines between the gradient of the attacker's picture and the observed one, at some of the steps of an attack.

    The attack is `inverting-gradients` with one attempt. The picture at each mark is the current one, not the best.
    """

    unit: ClassVar[str] = "pictures"

    model: str
    attack: str
    policy: str = ""
    data: str = "cifar100"
    pictures: int = 20
    rounds: int = 0  # of training with the policy, on a tenth of the data

    def __post_init__(self) -> None:
        attack = catalog.build("attacks", self.attack)
        if not isinstance(attack, InvertingGradients) or attack.restarts != 1 or attack.layers != "all":
            raise BadInput(
                "attack",
                allowed="inverting-gradients with one attempt on all layers",
                got=self.attack,
                do="leave restarts and layers out",
            )

    @property
    def title(self) -> str:
        with_it = f" with {self.policy}" if self.policy else ""
        return (
            f"gradients during {self.attack} on {self.model}{with_it} after {self.rounds} rounds, {self.data}: "
            f"{self.pictures} pictures, seed {self.seed}"
        )

    @property
    def setting(self) -> str:
        return f"after {self.rounds:,} rounds" if self.rounds else "untrained"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        set_precision("float32")
        where = pick_device(device)
        samples = load(self.data, "test", data_root)
        model = semi_trained(
            self.model,
            self.data,
            samples.spec,
            self.rounds,
            rule="published",
            policy=self.policy,
            seed=self.seed,
            device=where,
            data_root=data_root,
        )
        order = torch.randperm(len(samples), generator=generator(self.seed, "during"))[: self.pictures]
        inputs, labels = (t.to(where) for t in samples.take(order))
        if self.policy:
            inputs = applied(inputs, draw(parse(self.policy), [self.seed], len(inputs)).to(where))
        batch = Batch(inputs[:, None], labels[:, None])
        seeds = [self.seed + trial for trial in range(len(inputs))]
        update = fedsgd()(model, batch, seeds)
        facts = facts_about(model, batch, samples.spec, Client(), None, _THREAT.facts)
        iterates = at_marks(self._attack(), observe(model, update, _THREAT, facts), seeds, watch)
        found: dict[str, tuple[float, ...]] = {}
        for mark, pictures in iterates.items():
            gradients = trial_gradients(model, pictures, labels[:, None], differentiable=False)
            for depth, cosines in by_depth(gradients, update.tensors).items():
                found[f"similar_{depth}_{mark}"] = tuple(cosines.tolist())
            found[f"similar_spread_{mark}"] = found[f"similar_whole_{mark}"]
        return found

    def _attack(self) -> InvertingGradients:
        attack = catalog.build("attacks", self.attack)
        assert isinstance(attack, InvertingGradients)
        return attack


def at_marks(
    attack: InvertingGradients, observation: Observation, seeds: list[int], watch: Watch = lambda *_: None
) -> dict[int, Tensor]:
    """Percent of the steps -> the attacker's pictures there, (T, N, C, H, W)."""
    problem: Matching = attack.problem(observation, tuple(seeds))
    sign = sign_for(observation) if attack.sign == "auto" else attack.sign
    method = Descent(
        attack.steps,
        attack.lr,
        attack.optimizer,
        sign,
        attack.decay,
        problem.boxed if attack.boxed else lambda z: z,
        None,
    )
    state = method.begin(normal(seeds, "start/0", (problem.width,)).to(problem.like))
    evaluate = problem.evaluator(torch.arange(len(seeds), device=state.x.device))
    found: dict[int, Tensor] = {}
    for step in range(attack.steps + 1):
        for mark in (m for m in MARKS if round(m * attack.steps / 100) == step):
            found[mark] = problem.split(state.x)[0].detach().clone()
            watch(0, 1, "", step / attack.steps)
        if step < attack.steps:
            method.iterate(state, evaluate)
    return found


def by_depth(mine: Mapping[str, Tensor], observed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """(T,) cosines: of all entries together, and the mean over the weights of each third of the layers."""
    names = [name for name, tensor in observed.items() if tensor.dim() > 2]  # trials first: weights, no biases
    found = {"whole": _cosine([mine[n] for n in observed], list(observed.values()))}
    for place, depth in enumerate(DEPTHS):
        part = names[place * len(names) // len(DEPTHS) : (place + 1) * len(names) // len(DEPTHS)] or names[-1:]
        found[depth] = torch.stack([_cosine([mine[n]], [observed[n]]) for n in part]).mean(0)
    return found


def _cosine(mine: list[Tensor], observed: list[Tensor]) -> Tensor:
    a, b = (torch.cat([tensor.flatten(1) for tensor in tensors], 1) for tensors in (mine, observed))
    return torch.nn.functional.cosine_similarity(a, b, 1)


_ADAM = "inverting-gradients:sign=hard,decay=steps,steps={}"
_POLICIES = {"no policy": "", f"random {RANDOM}": RANDOM, "searched 3-1-7": "3-1-7", f"hybrid {HYBRID}": HYBRID}


def _studies(model: str, steps: int, rounds: int, pictures: int) -> dict[str, DuringAttack]:
    return {
        f"{NAMES[model]}, {name}": DuringAttack(
            model=model, attack=_ADAM.format(steps), policy=policy, rounds=rounds, pictures=pictures
        )
        for name, policy in _POLICIES.items()
    }


_COLUMNS = _studies(LENET, 300, 0, 30) | _studies(NARROW, 100, 400, 10) | _studies(RESNET, 1200, SEMI_TRAINED, 100)


def _table(id: str, title: str, note: str, figures: tuple[str, ...]) -> Table:
    return Table(
        id,
        title,
        "cosine between the gradient of the attacker's picture at that step and the observed one; mean over pictures "
        "with Student's interval. The figure is printed without numbers. Layers are those with weights, a third each.",
        f"Signed Adam on the cosine, total variation 1e-4. {note}",
        tuple(
            Cell(
                f"after {mark} % of the steps",
                column,
                Study(measurement),
                dict.fromkeys(f"similar_{figure}_{mark}" for figure in figures),
                quick=2 if column == _QUICK else 0,
            )
            for mark in MARKS
            for column, measurement in _COLUMNS.items()
        ),
        heavy="the trained networks take a GPU.",
    )


_QUICK = f"{NAMES[LENET]}, no policy"
FIGURE_1 = _table(
    "figure-1",
    "experiment 1: the similarity of gradients during an attack, with and without a policy",
    "Claim 1: with the searched policy the search converges less. 100 pictures and ResNet20-4 after 50 epochs on a "
    "tenth of the data, as in the document; LeNet is untrained, with 300 steps. Supports on LeNet, by little: at the "
    "end the cosine of the searched policy lies below that without a policy and that of the random one; on ResNet20-4 "
    "we cannot tell before it is measured.",
    ("whole", "spread"),
)
FIGURE_5 = _table(
    "figure-5",
    "experiment 8: the same by depth",
    "Claim 5: a good policy leaves deep layers alike and shallow ones apart, since it distorts details and keeps "
    "meaning. Supports on LeNet: the searched policy lowers the cosine of shallow layers and hardly that of deep ones, "
    "the random one neither; shallow layers are the less alike ones without a policy too. On ResNet20-4 we cannot tell "
    "before it is measured.",
    DEPTHS,
)

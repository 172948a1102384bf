"""Which defense holds, and at what price? Every defense at two strengths, on one fixed scenario per data set.

A row is a defense with its settings, a column is one attacker or the training. Each cell runs by itself and is kept by
itself, so a row can be measured alone, and another attack is another column. `_board` ranks the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from leakgauge import catalog
from leakgauge.audit.run import Watch, run_audit
from leakgauge.lab.recipes.leaderboard import _board
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Recipe, Run, Study, Table
from leakgauge.lab.reproduce.statistics import recognised
from leakgauge.lab.reproduce.training import FederatedTraining
from leakgauge.setup.plan import informed_by, parse_chain
from leakgauge.types import UNDEFENDED, Client, Federation, Partition, Scenario


@dataclass(frozen=True, kw_only=True)
class Floor(Measurement):
    """One floor on the victims of a scenario: the same records that the attacks are scored on."""

    unit: ClassVar[str] = "victims"
    counted: ClassVar[str] = "trials"

    floor: str  # mean-image or random-guess
    model: str
    data: str
    trials: int
    batch_size: int = 1
    local: Client = field(default_factory=Client)

    @property
    def title(self) -> str:
        return f"{self.floor} on {self.data}: {self.trials} victims, seed {self.seed}"

    @property
    def setting(self) -> str:
        return "the update is not looked at"

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        scenario = Scenario(
            model=self.model,
            data=self.data,
            batch_size=self.batch_size,
            trials=self.trials,
            local=self.local,
            attacks=(self.floor,),
            seed=self.seed,
        )
        report, _ = run_audit(scenario, device=device, data_root=data_root, watch=watch)
        records = [dict(r) for f in report.findings if f.attack == self.floor for r in f.records]
        found = {"recognised_blind": tuple(float(recognised(r)) for r in records)}
        for metric, name in (("ssim", "ssim_blind"), ("psnr", "psnr_blind"), ("mse", "mse_blind")):
            values = tuple(v for r in records if (v := r.get(metric)) is not None)
            if values:
                found[name] = values
        return found


FLOORS = ("mean-image", "random-guess")
DELTA = 1e-5  # of every promise here
_PROMISES = (8, 1)  # epsilon over the whole training: weak and strong


@dataclass(frozen=True)
class Fixed:
    """A data set's scenario: what is attacked, by whom, and the federation that shows what a defense costs."""

    data: str
    title: str
    model: str
    attackers: tuple[str, ...]
    victims: int
    clients: int
    rounds: int
    server_lr: float
    sigmas: tuple[float, float]  # the least noise, to three digits, that promises _PROMISES; a test holds them to it
    most: int = 0  # at most so many samples of each label per client; 0 for its whole share
    per_round: int = 10
    pictures: bool = True
    left_out: tuple[str, ...] = ()  # defenses that do not fit this data
    remark: str = ""  # added to the note of the table

    @property
    def q(self) -> float:
        """The chance that a client, and with it all of its samples, is drawn for a round."""
        return self.per_round / self.clients


# The network is one that both leaks and learns: with the sigmoids and U(-0.5, 0.5) of the papers it does not learn in
# so many rounds, and with ReLU the searches within this budget fail on colour pictures without any defense.
_NETWORK = "lenet-dlg:activation=tanh,init=default"
_SEARCHES = ("cpl:steps=60", "inverting-gradients:steps=600")
FIXED = (
    Fixed("mnist", "MNIST", _NETWORK, _SEARCHES, 10, 100, 100, 0.3, (1.07, 5.155), most=5),
    Fixed("cifar10", "CIFAR-10", _NETWORK, _SEARCHES, 10, 100, 200, 0.1, (1.275, 7.111), most=5),
    Fixed("lfw", "LFW", _NETWORK, _SEARCHES, 10, 50, 200, 0.2, (2.155, 14.009)),
    Fixed(
        "adult",
        "Adult",
        "mlp:activation=relu",
        ("linear", "peeling", *_SEARCHES),
        50,
        1000,
        200,
        0.3,
        (0.558, 1.295),
        pictures=False,
        left_out=("ats", "key-lock"),
        remark=" Whoever always answers 'below 50K' is right for 76.4 %: a row at that accuracy has learnt nothing.",
    ),
)
_LOCAL = Client(batchnorm="train")  # only key-lock has a BatchNorm, and its paper uses train mode


@dataclass(frozen=True)
class Strengths:
    """The settings of one defense, and where they come from."""

    weak: str
    strong: str
    why: str


_ACCOUNTED = "norm=1,sigma={sigma},q={q:g},rounds={rounds}"
STRENGTHS = {
    "gaussian": Strengths("std=0.01", "std=0.1", "CPL's notebook; variance 0.01 as in Wang et al. 2022"),
    "laplace": Strengths("scale=0.01", "scale=0.1", "CPL's notebook; Soteria's comparison"),
    "prune": Strengths("share=0.9", "share=0.99", "Wang et al. 2022 (GIA); the most that ATS compares with"),
    "dgc": Strengths("share=0.9", "share=0.99", "as prune"),
    "random-mask": Strengths("share=0.9", "share=0.99", "as prune"),
    "sketch": Strengths("size=0.1", "size=0.01", "as many numbers as random-mask sends"),
    "low-rank": Strengths("rank=4", "rank=1", "the ranks of PowerSGD"),
    "quantize": Strengths("bits=8", "bits=2", "a byte, and four levels"),
    "sign": Strengths("scale=mean", "scale=none", "with each tensor's size sent along, and without (signSGD)"),
    "clip": Strengths("norm=1", "norm=0.1", "the bound of dp-sgd without its noise; the defense's default"),
    "dp-sgd": Strengths(_ACCOUNTED, _ACCOUNTED, "epsilon 8 and 1 by the plain conversion"),
    "fed-cdp": Strengths(_ACCOUNTED, _ACCOUNTED, "epsilon 8 and 1 by the plain conversion, noise for all tensors"),
    "fed-sdp": Strengths(_ACCOUNTED, _ACCOUNTED, "epsilon 8 and 1 by the plain conversion, promised to a client"),
    "soteria": Strengths("share=0.6", "share=0.8", "Wang et al. 2022 (DGA and GIA)"),
    "sensitivity": Strengths(
        "gamma=0.2,compensate=false",
        "gamma=0.5,compensate=false",
        "the paper's share (DGA) and the released code's, both with the paper's noise; the server takes no noise out, "
        "since that cost most of the accuracy in our recipe wang2022protect; round times here are from when slices "
        "were cut anew in each round",
    ),
    "precode": Strengths("width=256", "width=64", "as published, and a code of a quarter the width"),
    "key-lock": Strengths(
        "activation=identity",
        "activation=sigmoid",
        "the thesis' text, and its released code; each client draws its first lock (`first_lock=client`)",
    ),
    "ats": Strengths("policy=43-18-18", "policy=3-1-7", "the published policies for CIFAR-100, milder one first"),
    "dropout": Strengths("p=0.5", "p=0.9", "the usual share, and one that few features survive"),
    "local-steps": Strengths("steps=5", "steps=10", "the middle and the end of CPL's table 9"),
    "secure-aggregation": Strengths("clients=4", "clients=10", "the default, and all clients of a round"),
}
LEFT_OUT = {
    "mixing": "hides a client from the other clients of its round, and from no server",
    "batchnorm-only": "an ablation of key-lock, no defense",
    "mixup": "needs a batch: a client with one sample has nobody to mix it with",
}


def defenses(fixed: Fixed) -> tuple[str, ...]:
    """All rows but the floors: no defense, each fitting defense at two strengths, new ones with their defaults."""
    rows = [UNDEFENDED]
    for name, strengths in STRENGTHS.items():
        if name in fixed.left_out:
            continue
        for settings, sigma in zip((strengths.weak, strengths.strong), fixed.sigmas, strict=True):
            rows.append(f"{name}:{settings.format(sigma=sigma, q=fixed.q, rounds=fixed.rounds)}")
    return (*rows, *(name for name in catalog.find("defenses") if name not in {*STRENGTHS, *LEFT_OUT}))


def _as_measured(defense: str) -> str:
    """The boards were measured with a lock that each client draws itself."""
    return f"{defense},first_lock=client" if defense.startswith("key-lock:") else defense


def _attacked(fixed: Fixed, defense: str) -> list[Cell]:
    """Each attacker, and with the knowledge of the defense if that changes anything."""
    chain = () if defense == UNDEFENDED else (_as_measured(defense),)
    scores = ("ssim", "ssim_largest", "psnr") if fixed.pictures else ("mse", "mse_smallest")
    figures = dict.fromkeys(("recognised", *scores, "label_accuracy"))
    cells = []
    for attacker in fixed.attackers:
        run = Run(
            Scenario(
                model=fixed.model,
                data=fixed.data,
                attacks=(attacker,),
                defenses=chain,
                trials=fixed.victims,
                local=_LOCAL,
            )
        )
        name, quick = attacker.partition(":")[0], 2 if defense == UNDEFENDED else 0
        cells.append(Cell(defense, name, run, figures, quick=quick))
        if informed_by(catalog.build("attacks", attacker), parse_chain(defense)):
            cells.append(Cell(defense, f"{name}{_board.INFORMED}", run, figures, "adaptive"))
    return cells


def _trained(fixed: Fixed, defense: str) -> list[Cell]:
    """What it costs; key-lock leaves a lock with each client and trains in another way (recipe ren2022fedkl)."""
    if defense.startswith("key-lock"):
        return []
    training = FederatedTraining(
        model=fixed.model,
        data=fixed.data,
        defense=defense,
        partition=Partition(kind="iid", clients=fixed.clients),
        federation=Federation(
            rounds=fixed.rounds, per_round=fixed.per_round, most=fixed.most, server_lr=fixed.server_lr
        ),
    )
    figures: dict[str, float | None] = {"accuracy": None, "bytes_up": None}
    if defense != UNDEFENDED:
        figures |= {"accuracy_lost": None, "slower": None, "epsilon": None}
    return [Cell(defense, _board.TRAINING, Study(training), figures)]


def _floors(fixed: Fixed) -> list[Cell]:
    scores = ("ssim_blind", "psnr_blind") if fixed.pictures else ("mse_blind",)
    return [
        Cell(
            floor,
            _board.BLIND,
            Study(Floor(floor=floor, model=fixed.model, data=fixed.data, trials=fixed.victims, local=_LOCAL)),
            dict.fromkeys(("recognised_blind", *scores)),
            quick=2,
        )
        for floor in FLOORS
    ]


def _table(fixed: Fixed) -> Table:
    rows = (c for defense in defenses(fixed) for c in (*_attacked(fixed, defense), *_trained(fixed, defense)))
    kind = "pictures" if fixed.pictures else "records"
    return Table(
        fixed.data,
        fixed.title,
        f"Scenario: `{fixed.model}`, untrained; one gradient of one of {fixed.title}'s {kind}; honest-but-curious "
        f"server, which reads the label itself; {fixed.victims} victims, seed 0. Budget: "
        f"{', '.join(f'`{a}`' for a in fixed.attackers)}, each plain and knowing the defense. Training: "
        f"{fixed.rounds} rounds of FedSGD from the same start, {fixed.per_round} of {fixed.clients} clients in each, "
        f"rate {fixed.server_lr:g}, seed 0, beside the same federation without a defense.",
        f"Left out: {'; '.join(f'`{n}`, {w}' for n, w in {**LEFT_OUT, **_unfit(fixed)}.items())}.{fixed.remark}",
        (*_floors(fixed), *rows),
        heavy="" if fixed.victims >= 50 else "ten victims, so that all rows fit into an evening of one core",
    )


def _unfit(fixed: Fixed) -> dict[str, str]:
    reasons = {
        "ats": "transforms pictures",
        "key-lock": "normalises each unit over a batch, and a batch of one has nothing to normalise",
    }
    return {name: reasons[name] for name in fixed.left_out}


def _strengths() -> str:
    """The settings of every defense as a table of the page."""
    lines = ["| defense | weak | strong | why |", "|---|---|---|---|"]
    for name, each in STRENGTHS.items():
        settings = ("norm=1", "norm=1") if each.weak == _ACCOUNTED else (each.weak, each.strong)
        lines.append(f"| `{name}` | {' | '.join(f'`{s}`' for s in settings)} | {each.why} |")
    return "\n".join(lines)


RECIPE = Recipe(
    name="leaderboard",
    summary="Every defense at two strengths, one fixed scenario per data set, ranked by its strongest attacker",
    paper="no paper: our own comparison, in the manner of RobustBench",
    note="Network, rates and budgets were chosen before any row was measured, after trying sigmoid, tanh and ReLU and "
    "a few rates without a defense, so that the bare update leaks and the bare federation learns. No strength was "
    "changed after its row was measured. The rules, and what the columns mean, are in `docs/results/leaderboard.md`. "
    "Weak and strong:\n\n" + _strengths(),
    tables=tuple(_table(fixed) for fixed in FIXED),
    board=_board.render,
)

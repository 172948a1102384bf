"""A recipe: the tables of a paper, each cell with the reported figure and the way we measure it."""

from __future__ import annotations

import dataclasses
import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Self

from leakgauge import catalog
from leakgauge.audit.run import Watch
from leakgauge.engine.lbfgs import INNER
from leakgauge.errors import BadInput
from leakgauge.matching.gradient_matching import GradientMatching
from leakgauge.settings import unknown_name
from leakgauge.setup.plan import parse_assumed
from leakgauge.types import Scenario

SEED_STRIDE = 1000  # between base seeds: more than the trials of any run, so no trial's seed is used twice
Figures = Mapping[str, tuple[float, ...]]  # the name of a figure (see `figures`) -> its sample


@dataclass(frozen=True, kw_only=True)
class Measurement(ABC):
    """What fills a cell without an attack: a federated training, an error, the figure of an accountant.

    It depends on its fields alone. It runs once for each seed, and its result is kept under a key of the fields.
    """

    unit: ClassVar[str]  # what its size counts: "rounds"
    counted: ClassVar[str] = ""  # the field that holds the size, if it is not named as the unit

    seed: int = 0

    @property
    def size(self) -> int:
        """How much stands behind its figures. A smaller measurement never replaces a larger one."""
        return int(getattr(self, self.counted or self.unit))

    def resized(self, size: int) -> Self:
        """The same measurement with another size, for `--quick` and `--size`."""
        return dataclasses.replace(self, **{self.counted or self.unit: size})

    @property
    @abstractmethod
    def title(self) -> str:
        """One line for `--list` and the progress bar."""

    @property
    def setting(self) -> str:
        """What a reader has to know besides the size. It stands behind the size in a table."""
        return ""

    @abstractmethod
    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        """Run it; raises a `LeakgaugeError` if that is not possible here."""

    def as_dict(self) -> dict[str, Any]:
        return {"measurement": type(self).__name__, **dataclasses.asdict(self)}


Piece = Scenario | Measurement  # the unit of work; its result is one file


@dataclass(frozen=True)
class Run:
    """One scenario at `seeds` base seeds in a row, pooled: each base seed is another model and other victims."""

    scenario: Scenario
    seeds: int = 1

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        first = self.scenario.seed
        return tuple(dataclasses.replace(self.scenario, seed=first + SEED_STRIDE * k) for k in range(self.seeds))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self.scenarios

    @property
    def victims(self) -> int:
        return self.scenario.trials * self.seeds

    @property
    def sample(self) -> str:
        return ""  # victims, as the page's legend says

    def resized(self, trials: int | None, seeds: int | None, size: int | None = None) -> Run:  # noqa: ARG002
        """`size` is for measurements without victims."""
        scenario = self.scenario if trials is None else dataclasses.replace(self.scenario, trials=trials)
        return Run(scenario, self.seeds if seeds is None else seeds)


@dataclass(frozen=True)
class Study:
    """The other kind of run, without victims: one measurement at `seeds` base seeds in a row, pooled."""

    measurement: Measurement
    seeds: int = 1

    @property
    def pieces(self) -> tuple[Piece, ...]:
        first = self.measurement.seed
        return tuple(dataclasses.replace(self.measurement, seed=first + SEED_STRIDE * k) for k in range(self.seeds))

    @property
    def size(self) -> int:
        return self.measurement.size * self.seeds

    @property
    def sample(self) -> str:
        return f" {self.measurement.unit}"

    def resized(self, trials: int | None, seeds: int | None, size: int | None = None) -> Study:  # noqa: ARG002
        """`trials` counts victims, and there are none."""
        measurement = self.measurement if size is None else self.measurement.resized(size)
        return Study(measurement, self.seeds if seeds is None else seeds)


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the run that it reads, and the paper's figures."""

    row: str
    column: str
    run: Run | Study
    reported: Mapping[str, float | None]  # statistic -> the paper's figure; None: measured, but not in the paper
    variant: str = "plain"  # or "adaptive": the attacker who knows the defense
    quick: int = 0  # victims under --quick, or the size of a measurement; 0: not part of it
    quick_attack: str | None = None  # the attack under --quick, where the full one takes minutes for a single victim


@dataclass(frozen=True)
class Table:
    """One table of the paper. `note` explains it, and why our figures differ."""

    id: str
    title: str
    convention: str
    note: str
    cells: tuple[Cell, ...]
    heavy: str = ""  # why some of its cells have fewer than 50 records, or none of them is quick
    drawn: bool = False  # its quantiles are drawn as a picture, see `distribution`

    @property
    def heading(self) -> str:
        """On the page; a figure of the paper is a `Table` here too."""
        return self.id if self.id.startswith("Figure") else f"Table {self.id}"

    def name_of(self, cell: Cell) -> str:
        """What `--cell` patterns are matched with."""
        return f"{self.id} | {cell.row} | {cell.column}"


@dataclass(frozen=True)
class Recipe:
    """A paper's tables."""

    name: str
    summary: str
    paper: str
    note: str  # what holds for all tables
    tables: tuple[Table, ...]
    board: Callable[[Recipe, Any], str] | None = None  # (recipe, entries) -> text of the page, instead of its tables

    def table(self, id: str) -> Table:
        known = {table.id: table for table in self.tables}
        if id not in known:
            raise unknown_name(f"table of {self.name}", id, known)
        return known[id]


def chosen(
    recipe: Recipe,
    table: str | None = None,
    pattern: str | None = None,
    quick: bool = False,
    trials: int | None = None,
    seeds: int | None = None,
    size: int | None = None,
) -> tuple[Table, ...]:
    """The tables with the chosen cells, at the chosen size."""
    tables = (recipe.table(table),) if table is not None else recipe.tables
    if pattern is not None:
        names = [t.name_of(c) for t in tables for c in t.cells]
        if not any(fnmatchcase(name, pattern) for name in names):
            raise _no_such_cell(pattern, names)
    found = []
    for each in tables:
        cells = [c for c in each.cells if pattern is None or fnmatchcase(each.name_of(c), pattern)]
        if quick:
            cells = [dataclasses.replace(c, run=_quick_run(c)) for c in cells if c.quick]
        cells = [dataclasses.replace(c, run=c.run.resized(trials, seeds, size)) for c in cells]
        if cells:
            found.append(dataclasses.replace(each, cells=tuple(cells)))
    if not found:
        raise BadInput("--quick", allowed="used with cells marked quick", got="none of these", do="leave --quick out")
    return tuple(found)


def _quick_run(cell: Cell) -> Run | Study:
    if isinstance(cell.run, Study):
        return Study(cell.run.measurement.resized(cell.quick))
    run = cell.run.resized(cell.quick, 1)
    if cell.quick_attack is None:
        return run
    return dataclasses.replace(run, scenario=dataclasses.replace(run.scenario, attacks=(cell.quick_attack,)))


def _no_such_cell(pattern: str, names: Iterable[str]) -> BadInput:
    near = difflib.get_close_matches(pattern, list(names), n=1, cutoff=0.0)
    return BadInput(
        "cell",
        allowed="a pattern on 'table | row | column' that fits some cell",
        got=repr(pattern),
        do=f"did you mean {near[0]!r}? --list shows all" if near else "--list shows all",
    )


def pieces_of(tables: Iterable[Table]) -> tuple[Piece, ...]:
    """All pieces behind these cells, each once, in the order of the tables."""
    return tuple(dict.fromkeys(p for table in tables for cell in table.cells for p in cell.run.pieces))


def scenarios_of(tables: Iterable[Table]) -> tuple[Scenario, ...]:
    """The scenarios among them: pieces with an attack."""
    return tuple(p for p in pieces_of(tables) if isinstance(p, Scenario))


def most_evaluations(scenario: Scenario) -> int:
    """Gradient evaluations if no victim is solved early: what a scenario can cost at most."""
    attack = catalog.build("attacks", scenario.attacks[0])
    assumed = parse_assumed(scenario.assume)[0] if scenario.assume else ()
    each = getattr(attack, "steps", 1) * max([getattr(attack, "restarts", 1), *(d.guesses for d in assumed)])
    if isinstance(attack, GradientMatching) and attack.optimizer == "lbfgs":
        each *= INNER
    elif scenario.local.kind == "fedavg":  # the client's steps are unrolled
        each *= scenario.local.epochs
    variants = 2 if scenario.defenses and scenario.variants == "both" else 1
    return int(each * scenario.trials * variants)

"""From measured cells to standings: the strongest attacker of each row, its price, and rows that are better.

A row counts only when every attacker of its scenario was measured, including those who know the defense. It is ranked
by the share of records that its strongest attacker recovers, then by accuracy. What it costs may be measured later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakgauge.lab.reproduce.measured import Entry
from leakgauge.lab.reproduce.recipe import Recipe, Table
from leakgauge.types import UNDEFENDED

INFORMED = ", knowing the defense"  # how the column of an adaptive attacker ends
TRAINING, BLIND = "training", "without the update"  # the other columns
BEATEN = 0.5  # a defense is beaten from this share of recovered records
_GUESS = "mean-image"


@dataclass(frozen=True)
class Attacker:
    """One attacker's figures on one row; closeness grows with what is recovered."""

    name: str
    recovered: float
    low: float
    high: float
    records: int
    picture: bool
    closeness: float  # mean SSIM of pictures, or minus the mean MSE of a table's records
    surely: float  # the lower end of its 95 % interval
    worst: float | None  # of the most exposed record, in the same units
    labels: float | None = None

    def written(self, closeness: float | None) -> str:
        return "" if closeness is None else f"{closeness:.2f}" if self.picture else f"{-closeness:.2g}"


@dataclass(frozen=True)
class Row:
    """A defense as it is set, or a floor; what it costs where that was measured."""

    defense: str
    attackers: tuple[Attacker, ...]
    accuracy: float | None = None
    lost: float | None = None
    slower: float | None = None
    bytes_up: float | None = None
    epsilon: float | None = None
    price_missing: bool = False  # its training is in the recipe and was not measured yet

    @property
    def strongest(self) -> Attacker:
        return max(self.attackers, key=lambda a: (a.recovered, a.closeness))

    @property
    def unaware(self) -> Attacker | None:
        """The strongest of those who do not know the defense."""
        plain = [a for a in self.attackers if not a.name.endswith(INFORMED)]
        return max(plain, key=lambda a: (a.recovered, a.closeness), default=None)

    @property
    def is_floor(self) -> bool:
        return [a.name for a in self.attackers] == [BLIND]


def rows_of(table: Table, entries: Sequence[Entry]) -> tuple[list[Row], list[str]]:
    """The ranked rows whose every attacker was measured, and the names of rows that still lack something."""
    columns: dict[str, set[str]] = {}
    for cell in table.cells:
        columns.setdefault(cell.row, set()).add(cell.column)
    measured: dict[str, dict[str, dict[str, Entry]]] = {}
    for entry in entries:
        if entry.table == table.id:
            measured.setdefault(entry.row, {}).setdefault(entry.column, {})[entry.statistic] = entry
    lacking = {name: columns[name] - set(measured.get(name, ())) for name in columns}
    rows = [
        _row(name, measured[name], TRAINING in missing) for name, missing in lacking.items() if missing <= {TRAINING}
    ]
    rows.sort(key=lambda r: (r.strongest.recovered, -(r.accuracy or 0.0), r.defense))
    return rows, [name for name, missing in lacking.items() if missing]


def _row(name: str, cells: dict[str, dict[str, Entry]], price_missing: bool = False) -> Row:
    price = {statistic: entry.value for statistic, entry in cells.get(TRAINING, {}).items()}
    return Row(
        name,
        tuple(_attacker(column, found) for column, found in cells.items() if column != TRAINING),
        accuracy=price.get("accuracy"),
        lost=price.get("accuracy_lost"),
        slower=price.get("slower"),
        bytes_up=price.get("bytes_up"),
        epsilon=price.get("epsilon"),
        price_missing=price_missing,
    )


def _attacker(column: str, found: dict[str, Entry]) -> Attacker:
    """The figures of a floor have the names of an attacker's, with `_blind` appended."""
    value = {statistic.removesuffix("_blind"): entry.value for statistic, entry in found.items()}
    share = found.get("recognised") or found["recognised_blind"]
    picture = "ssim" in value
    score, sign = ("ssim", 1.0) if picture else ("mse", -1.0)
    mean = found.get(score) or found[f"{score}_blind"]
    worst, end = value.get("ssim_largest" if picture else "mse_smallest"), mean.low if picture else mean.high
    closeness = sign * (mean.value or 0.0)
    return Attacker(
        column,
        share.value or 0.0,
        share.low or 0.0,
        1.0 if share.high is None else share.high,
        share.trials,
        picture,
        closeness=closeness,
        surely=closeness if end is None else sign * end,
        worst=None if worst is None else sign * worst,
        labels=value.get("label_accuracy"),
    )


def standing(row: Row, guess: Attacker) -> str:
    """`beaten`, `leaks`, `near` or `holds`; what a guess recovers as well is not counted against a defense."""
    found = row.strongest
    if found.recovered > guess.recovered:
        return "beaten" if found.recovered >= BEATEN else "leaks"
    return "near" if max(a.surely for a in row.attackers) > guess.closeness else "holds"


def dominated_by(row: Row, rows: Sequence[Row], guess: Attacker) -> Row | None:
    """The first other row that is no worse in leak, accuracy and promise and better in one, to the digits shown.

    Results that are no closer than a guess count as equal to the guess.
    """
    if row.accuracy is None:
        return None
    mine = _merits(row, guess.closeness)
    for other in rows:
        if other is not row and other.accuracy is not None:
            theirs = _merits(other, guess.closeness)
            if theirs != mine and all(a >= b for a, b in zip(theirs, mine, strict=True)):
                return other
    return None


def _merits(row: Row, guess: float) -> tuple[float, ...]:
    """Higher is better in each."""
    found = row.strongest
    digits = 2 if found.picture else 4
    promise = float("-inf") if row.epsilon is None else -row.epsilon
    return -found.recovered, -round(max(found.closeness, guess), digits), round(row.accuracy or 0.0, 3), promise


def render(recipe: Recipe, entries: Sequence[Entry]) -> str:
    """One section for each scenario."""
    return "\n\n".join(_section(recipe, table, entries) for table in recipe.tables)


def _section(recipe: Recipe, table: Table, entries: Sequence[Entry]) -> str:
    rows, missing = rows_of(table, entries)
    parts = [f"## {table.title}", table.convention, _grid(rows) if rows else "No row is measured yet.", table.note]
    if missing:
        again = "\n".join(f'leakgauge lab reproduce {recipe.name} --cell "{table.id} | {name} | *"' for name in missing)
        of = len({cell.row for cell in table.cells})
        parts.append(f"Not measured, or not in full: {len(missing)} of {of} rows.\n\n```sh\n{again}\n```")
    return "\n\n".join(parts)


def _grid(rows: Sequence[Row]) -> str:
    guess = next((r.strongest for r in rows if r.defense == _GUESS), None)
    score = "SSIM" if rows[0].strongest.picture else "MSE"
    heads = [
        "",
        "defense",
        "recovered [95 %]",
        "by",
        "by who does not know",
        f"mean {score}",
        f"worst {score}",
        "labels",
        "accuracy (change)",
        "round time",
        "bytes up",
        "promise",
        "standing",
    ]
    lines = [heads, ["---"] * len(heads)]
    place = 0
    for row in rows:
        place += not row.is_floor
        found, unaware = row.strongest, row.unaware
        lines.append(
            [
                "" if row.is_floor else str(place),
                _name(row),
                f"{_count(found)} [{found.low:.0%}, {found.high:.0%}]",
                found.name,
                "" if row.is_floor or row.defense == UNDEFENDED or unaware is None else _count(unaware),
                found.written(found.closeness),
                found.written(found.worst),
                _percent(_labels(row)),
                _accuracy(row),
                "" if row.slower is None else f"{row.slower:.2f}",
                "" if row.bytes_up is None else f"{row.bytes_up:,.0f}",
                _promise(row),
                "floor" if row.is_floor else "" if guess is None else _standing(row, rows, guess),
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _standing(row: Row, rows: Sequence[Row], guess: Attacker) -> str:
    better = dominated_by(row, rows, guess)
    return standing(row, guess) + ("" if better is None else f"; dominated by `{better.defense}`")


def _name(row: Row) -> str:
    return f"**{'no defense' if row.defense == UNDEFENDED else row.defense}**" if _bold(row) else f"`{row.defense}`"


def _bold(row: Row) -> bool:
    return row.is_floor or row.defense == UNDEFENDED


def _count(attacker: Attacker) -> str:
    return f"{round(attacker.recovered * attacker.records)} of {attacker.records}"


def _labels(row: Row) -> float | None:
    return max((a.labels for a in row.attackers if a.labels is not None), default=None)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _accuracy(row: Row) -> str:
    if row.accuracy is None:
        return "" if row.is_floor else "not measured yet" if row.price_missing else "not measured here"
    change = "" if row.lost is None else f" ({round(-100 * row.lost, 1) + 0.0:+.1f})"  # no minus before a zero
    return f"{100 * row.accuracy:.1f} %{change}"


def _promise(row: Row) -> str:
    if row.is_floor or row.price_missing:  # epsilon is computed over the training
        return ""
    return "none" if row.epsilon is None else f"epsilon {row.epsilon:.3g}"

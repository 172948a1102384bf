"""Compares what a golden file says with what came out now: numbers to rounding, words exactly, names as translated."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from _surface import ADDED, CHANGED, DROPPED, NEW_CLUES, NEW_FACTS, RENAMED, in_schema_2

# Attacks run in float64 for a few steps: another order of the same sums moves the last digits and no others.
FLOAT64 = 1e-6
# Reports of audits in float32, whose rounding (6e-8) a few steps of a search enlarge a thousandfold.
FLOAT32 = 1e-4
# Rows in which rounding (3e-15 of the update) decides between equals: only their effort and their shapes are compared.
UNSTABLE = {
    "gradinversion | sketch:size=0.25,method=count | adaptive": "the soft sign of entries that are next to zero",
    "linear | sign | adaptive": "all entries of the update have one size: any of the rows may be the largest",
    "peeling | prune:share=0.5 | plain": "which samples pass as certified lies at the threshold",
    "class-fishing | clip:norm=0.1 | plain": "the entries of the last layer by which labels are counted vanish",
}
_SMALLEST = 1e-9  # below this a number counts as zero
_NOTHING = 1e-6  # in a text: what is left over by rounding
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_NOT_COMPARED = ("number", "spec_then", "scenario_then", "line_then")  # for the reader
_LONGEST = 300  # characters of a value in a message


def renamed(value: Any) -> Any:
    """A golden value with the first building's words translated into those of the second."""
    if isinstance(value, str):
        return _WORDS.sub(lambda found: RENAMED[found[0]], value) if RENAMED else value
    if isinstance(value, Mapping):
        return {renamed(key): renamed(inner) for key, inner in in_schema_2(value).items()}
    return [renamed(inner) for inner in value] if isinstance(value, list | tuple) else value


_WORDS = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, sorted(RENAMED, key=len, reverse=True))) + r")(?![\w-])")


def unstable() -> set[str]:
    """Names of the rows that hang on rounding, as they are called now."""
    return {renamed(name) for name in UNSTABLE}


def differences(then: Any, now: Any, where: str, tolerance: float) -> Iterator[str]:
    """One line per value that is not what it was: which key, the old value, the new one."""
    if _listed(where, CHANGED):
        return
    if where.endswith("/ triage") and isinstance(now, list):
        now = [clue for clue in now if clue["id"] not in NEW_CLUES]
    if where.endswith("/ ledger") and isinstance(now, list):
        now = [row for row in now if row["fact"] not in NEW_FACTS]
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        yield from _of_tables(then, now, where, tolerance)
    elif _is_text(then) and _is_text(now):
        yield from _of_lines(then, now, where)
    elif (old := _by_name(then)) and (new := _by_name(now)):
        yield from _of_tables(old, new, where, tolerance)
    elif isinstance(then, (list, tuple)) and isinstance(now, (list, tuple)):
        if len(then) != len(now):
            yield f"{where}: {len(then)} entries became {len(now)}: {_short(then)} -> {_short(now)}"
        for index, (old, new) in enumerate(zip(then, now, strict=False)):
            yield from differences(old, new, f"{where}[{index}]", tolerance)
    elif _is_number(then) and _is_number(now):
        if not _close(float(then), float(now), tolerance):
            yield f"{where}: {then} -> {now}"
    elif isinstance(then, str) and isinstance(now, str):
        if not same_text(then, now):
            yield f"{where}: {_short(then)} -> {_short(now)}"
    elif then != now:
        yield f"{where}: {_short(then)} -> {_short(now)}"


def _by_name(value: Any) -> dict[str, Any]:
    """A list of things that are told apart by their names, such as a catalogue; empty for any other value."""
    if not isinstance(value, list) or not all(isinstance(one, Mapping) and "name" in one for one in value):
        return {}
    named = {str(one["name"]): one for one in value}
    return named if len(named) == len(value) else {}


def _is_text(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(line, str) for line in value)


def _of_lines(then: list[str], now: list[str], where: str) -> Iterator[str]:
    """The lines of a page that changed, went or came."""
    then = [line for line in then if not _listed(f"{where} / {line}", DROPPED)]
    now = [line for line in now if not _listed(f"{where} / {line}", ADDED)]
    for number, old, new in _paired(then, now):
        if not _same_lines(old, new) and not _listed(place := f"{where}, line {number}", CHANGED):
            yield f"{place}: {_short(old)} -> {_short(new)}"


def _paired(then: list[str], now: list[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Number of the old line, old lines and new lines: one and one, or blocks that have no counterpart."""
    blank = [[_NUMBER.sub("#", line) for line in lines] for lines in (then, now)]
    as_long = [("equal", 0, len(then), 0, len(now))]
    blocks = as_long if len(then) == len(now) else SequenceMatcher(None, *blank, autojunk=False).get_opcodes()
    for kind, a, b, c, d in blocks:
        if kind != "equal":
            yield a + 1, then[a:b], now[c:d]
            continue
        for number, (old, new) in enumerate(zip(then[a:b], now[c:d], strict=True), start=a + 1):
            yield number, [old], [new]


def _same_lines(then: list[str], now: list[str]) -> bool:
    return len(then) == len(now) and all(same_text(old, new) for old, new in zip(then, now, strict=True))


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """The same with nothing but the effort in rows that hang on rounding, and what is not informed by name."""
    rows = dict(document["rows"])
    for name in rows.keys() & unstable():
        kept = ("trial", "steps", "evaluations", "error")
        rows[name] = rows[name] | {"trials": [{k: t[k] for k in kept if k in t} for t in rows[name]["trials"]]}
    return document | {"rows": rows, "not_informed": dict.fromkeys(document["not_informed"], "not informed")}


def _of_tables(then: Mapping[str, Any], now: Mapping[str, Any], where: str, tolerance: float) -> Iterator[str]:
    for key, old in then.items():
        if key in _NOT_COMPARED:
            continue
        path = f"{where} / {key}"
        if key in now:
            yield from differences(old, now[key], path, tolerance)
        elif not _listed(path, DROPPED):
            yield f"{path}: {_short(old)} is gone (if on purpose: _surface.DROPPED or RENAMED)"
    for key in now.keys() - then.keys():
        path = f"{where} / {key}"
        if key not in _NOT_COMPARED and not _listed(path, ADDED):
            yield f"{path}: {_short(now[key])} is new (if on purpose: _surface.ADDED or RENAMED)"


def array_differences(
    then: np.ndarray, now: np.ndarray | None, name: str, field: str, tolerance: float
) -> Iterator[str]:
    """At most one line: the shape of a row's field, or the first of its numbers that are not what they were."""
    where = f"{name} / {field}"
    if now is None or then.shape != now.shape:
        yield f"{where}: shape {then.shape} -> {None if now is None else now.shape}"
        return
    if name in unstable():
        return
    old, new = then.astype(float), now.astype(float)
    finite = np.isfinite(old)
    scale = float(np.sqrt(np.mean(old[finite] ** 2))) if finite.any() else 0.0
    bad = ~np.isclose(new, old, rtol=tolerance, atol=tolerance * scale + _SMALLEST, equal_nan=True)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        yield f"{where}: {int(bad.sum())} of {bad.size} numbers differ, first at {place}: {old[place]} -> {new[place]}"


def same_text(then: str, now: str) -> bool:
    """The same words, and numbers that agree to four digits or to one unit of their last decimal."""
    if then == now:
        return True
    then, now = (text.replace("−", "-") for text in (then, now))  # a page's minus
    if _NUMBER.sub("#", then) != _NUMBER.sub("#", now):
        return False
    return all(_same_written(a, b) for a, b in zip(_NUMBER.findall(then), _NUMBER.findall(now), strict=True))


def _same_written(then: str, now: str) -> bool:
    if then == now:
        return True
    if not re.search(r"[.e]", then + now, re.IGNORECASE):
        return False  # a count
    if max(abs(float(then)), abs(float(now))) < _NOTHING:
        return True
    mantissa, _, exponent = then.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - decimals) if decimals else 0.0
    return abs(float(then) - float(now)) <= max(1.01 * unit, 1e-4 * abs(float(then)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _close(then: float, now: float, tolerance: float) -> bool:
    if math.isnan(then) or math.isnan(now):
        return math.isnan(then) and math.isnan(now)
    return then == now or abs(then - now) <= max(1e-2 * tolerance, tolerance * abs(then))


def _listed(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

"""Runs one case of attack against defences and puts down what came out, as plain values and arrays."""

from __future__ import annotations

from typing import Any

import _surface
import numpy as np
from _attack_cases import AttackCase
from torch import Tensor

Document = dict[str, Any]
Arrays = dict[str, np.ndarray]

DIGITS = 10  # significant ones that are kept of a number
WHOLE = 600  # numbers of an array that is kept whole; of a larger one as many, evenly spread, beside its norm
_FLOORS = ("mean-image", "random-guess")
_LEFT_OUT = ("seconds", "attack", "defense", "adaptive", "control", "is_decoy", "seed", "spec", "trace", "film")


def run_attack_case(case: AttackCase) -> tuple[Document, Arrays]:
    """The rows of the case by name, what was refused with the reason, and arrays by `row number/field`."""
    rows, refused = _rows_of(case)
    arrays: Arrays = {}
    told: Document = {}
    if case.variants == "adaptive":
        rows = [row for row in rows if row.name.partition(" | ")[0] not in _FLOORS]  # they stand in the plain cases
    for number, row in enumerate(rows):
        told[row.name] = {"number": number, "trials": [_plain(trial) for trial in row.trials]}
        # What an informed attack is given is nobody's business but its defence's: kept for the reader, not compared.
        told[row.name]["spec_then" if row.adaptive else "spec"] = row.trials[0]["spec"]
        for field, tensor in row.returned.items():
            arrays |= {f"{number}/{field}{part}": array for part, array in _kept(tensor).items()}
    informed = {row.trials[0]["defense"] for row in rows if row.adaptive}
    missing = [d for d in case.defenses if d not in informed and d not in refused]
    document = {"scenario": case.scenario(case.defenses), "not_informed": missing, "refused": refused, "rows": told}
    return document, arrays


def _rows_of(case: AttackCase) -> tuple[list[_surface.Row], dict[str, str]]:
    """All defences in one audit; where one of them is refused outright, an audit for each."""
    try:
        return _surface.audit(case.scenario(case.defenses), case.undefended or not case.defenses), {}
    except _surface.LeakgaugeError as error:
        if len(case.defenses) <= 1:
            return [], {"".join(case.defenses) or "none": str(error)}
    rows: list[_surface.Row] = []
    refused: dict[str, str] = {}
    for index, defense in enumerate(case.defenses):
        found, reasons = _rows_of(case.alone(defense, index == 0))
        known = {row.name for row in rows}
        rows += [row for row in found if row.name not in known]
        refused |= reasons
    return rows, refused


def _plain(trial: dict[str, Any]) -> dict[str, Any]:
    """What a report says of one trial, without times and without what the row's name says; the ends of the trace."""
    kept = {key: rounded(value) for key, value in trial.items() if key not in _LEFT_OUT and value not in (None, [], ())}
    if trial["trace"]:
        kept["trace_ends"] = rounded([trial["trace"][0], trial["trace"][-1]])
    return kept


def rounded(value: Any) -> Any:
    """The same with numbers of ten significant digits."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(inner) for inner in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _kept(tensor: Tensor) -> dict[str, np.ndarray]:
    """The whole array, or of a large one evenly spread numbers and the norm of each trial."""
    if not tensor.dtype.is_floating_point:
        return {"": tensor.numpy()}
    array = tensor.double().numpy()
    if array.size <= WHOLE:
        return {"": _few_digits(array)}
    flat = array.reshape(len(array), -1)
    some = flat[:, np.linspace(0, flat.shape[1] - 1, WHOLE // len(array)).round().astype(int)]
    return {".some": _few_digits(some), ".norm": _few_digits(np.linalg.norm(flat, axis=1))}


def _few_digits(array: np.ndarray) -> np.ndarray:
    return np.array([float(f"{value:.{DIGITS}g}") for value in array.ravel().tolist()]).reshape(array.shape)

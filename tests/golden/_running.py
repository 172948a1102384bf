"""Runs one case and puts down what came out, as plain values and arrays."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import _normal
import _surface
import numpy as np
from _attack_cases import AttackCase
from _command_cases import CommandCase
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
        # What an informed attack is given is nobody's business but its defense's: kept for the reader, not compared.
        told[row.name]["spec_then" if row.adaptive else "spec"] = row.trials[0]["spec"]
        for field, tensor in row.returned.items():
            arrays |= {f"{number}/{field}{part}": array for part, array in _kept(tensor).items()}
    informed = {row.trials[0]["defense"] for row in rows if row.adaptive}
    missing = [d for d in case.defenses if d not in informed and d not in refused]
    document = {
        "scenario_then": case.scenario(case.defenses),
        "not_informed": missing,
        "refused": refused,
        "rows": told,
    }
    return document, arrays


def run_as_known_then(case: AttackCase) -> tuple[Document, Arrays]:
    """The same, but of the chains in KNOWN_THEN an informed attack is told what the first building told it."""
    document, arrays = run_attack_case(case)
    for index, (chain, known) in enumerate(_surface.KNOWN_THEN.get(case.name, {}).items()):
        setting = {**case.setting, "assume": known}
        told, its_arrays = run_attack_case(dataclasses.replace(case, defenses=(chain,), setting=setting))
        rows = {name: {**row, "number": f"{row['number']} of {index}"} for name, row in told["rows"].items()}
        document["rows"] |= rows
        for key, array in its_arrays.items():
            number, _, field = key.partition("/")
            arrays[f"{number} of {index}/{field}"] = array
    return document, arrays


def _rows_of(case: AttackCase) -> tuple[list[_surface.Row], dict[str, str]]:
    """All defenses in one audit; where one of them is refused outright, an audit for each."""
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


def run_command_case(case: CommandCase, folder: Path) -> Document:
    """Exit code, words and files of each command line of the case, by the name under which they are stored."""
    case.prepare(folder)
    told: Document = {}
    for number, line in enumerate(case.commands, start=1):
        before = _stamps(folder)
        outcome = _surface.command(folder, shlex.split(line))
        written = {
            name: path for name, (path, stamp) in _stamps(folder).items() if before.get(name, (0, 0))[1] != stamp
        }
        told[f"command {number}"] = {
            "line_then": line,
            "code": outcome.code,
            "out": _output(outcome.out, folder),
            "err": _normal.text(outcome.err, folder),
            "files": {name: _normal.of_file(path, folder) for name, path in written.items() if _is_told(name)},
            "others": sorted({_pattern(name) for name in written if not _is_told(name)}),
        }
    return told


def _output(out: str, folder: Path) -> Any:
    """Stdout as a document where it is one."""
    if out.lstrip().startswith(("{", "[")):
        try:
            return _normal.document(json.loads(out), folder)
        except ValueError:
            pass
    return _normal.text(out, folder)


def _stamps(folder: Path) -> dict[str, tuple[Path, int]]:
    """Every file by name, with the time of its last change."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): (path, path.stat().st_mtime_ns) for path in files}


def _is_told(name: str) -> bool:
    """Is it something that a person opens? What an audit keeps to go on from is named only."""
    return "/cells" not in name and not name.endswith(".sqlite") and "/runs/" not in name


def _pattern(name: str) -> str:
    return re.sub(r"[0-9a-f]{8,}", "<key>", name)

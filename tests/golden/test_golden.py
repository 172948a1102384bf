"""What every attack and every report said before the restructuring, it still says: equal to rounding.

`make.py` wrote the files; `_surface.py` is the one place to edit where a name moves.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from _attack_cases import AttackCase, attack_cases
from _command_cases import CommandCase, command_cases
from _comparing import FLOAT32, FLOAT64, array_differences, comparable, differences, renamed, unstable
from _files import ATTACKS, COMMANDS, read_arrays, read_document
from _running import run_as_known_then, run_command_case
from _surface import as_numbered, names_of

_SHOWN = 20  # differences in one message
CASES, COMMAND_LINES = attack_cases(), command_cases()


def check(found: list[str], file: Path) -> None:
    """Fail with the first differences, each with its key and both values."""
    more = f"\n  ... and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    assert not found, f"{file.name} (old -> new):\n  " + "\n  ".join(found[:_SHOWN]) + more


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_attack_gives_what_it_gave(case: AttackCase) -> None:
    file = ATTACKS / f"{case.name}.json"
    then, (now, arrays) = renamed(read_document(file)), run_as_known_then(case)
    found = list(differences(comparable(then), comparable(now), case.name, FLOAT64))
    stored = read_arrays(file.with_suffix(".npz"))
    for name, row in then["rows"].items():
        if name in now["rows"]:
            old, new = f"{row['number']}/", f"{now['rows'][name]['number']}/"
            for key in (k for k in stored if k.startswith(old)):
                field = key.removeprefix(old)
                found += array_differences(stored[key], arrays.get(new + field), name, field, FLOAT64)
    check(found, file)


@pytest.mark.parametrize("case", COMMAND_LINES, ids=lambda case: case.name)
def test_command_line_says_and_writes_what_it_did(case: CommandCase, tmp_path: Path) -> None:
    file = COMMANDS / f"{case.name}.json.gz"
    then, now = renamed(read_document(file)), as_numbered(run_command_case(case, tmp_path))
    check(list(differences(then, now, case.name, FLOAT32)), file)


def test_rows_that_hang_on_rounding_are_there() -> None:
    rows = {name for file in ATTACKS.glob("*.json") for name in renamed(read_document(file))["rows"]}
    assert rows >= unstable()


def test_every_case_has_its_file_and_no_file_is_without_its_case() -> None:
    assert {path.name for path in ATTACKS.glob("*.json")} == {f"{case.name}.json" for case in CASES}
    assert {path.name for path in COMMANDS.iterdir()} == {f"{case.name}.json.gz" for case in COMMAND_LINES}


@pytest.mark.parametrize("kind", ["attacks", "defenses"])
def test_no_name_of_the_catalogue_was_lost(kind: str) -> None:
    played = {case.attack.partition(":")[0] for case in CASES}
    if kind == "defenses":
        played = {part.partition(":")[0] for case in CASES for chain in case.defenses for part in chain.split("+")}
    assert played <= set(names_of(kind)), "a name is gone: mend _attack_cases.py, and RENAMED in _surface.py"

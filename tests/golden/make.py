"""Writes the golden files anew: `python tests/golden/make.py [--only PATTERN]`.

They say what the code does at the commit at which they are made. Make them again only where a result is meant to
change, one pattern at a time, and say in the commit why.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]  # this checkout, whatever is installed

import torch  # noqa: E402
from _attack_cases import attack_cases  # noqa: E402
from _command_cases import command_cases  # noqa: E402
from _files import ATTACKS, COMMANDS, write_arrays, write_document  # noqa: E402
from _running import run_attack_case, run_command_case  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="names of cases, as a shell pattern such as 'dlg-*'")
    pattern = parser.parse_args().only
    torch.set_num_threads(1)
    for case in attack_cases():
        if fnmatchcase(case.name, pattern):
            start = time.process_time()
            document, arrays = run_attack_case(case)
            write_document(ATTACKS / f"{case.name}.json", document)
            write_arrays(ATTACKS / f"{case.name}.npz", arrays)
            _say(f"{case.name}: {len(document['rows'])} rows, {time.process_time() - start:.1f} s")
    for command in command_cases():
        if fnmatchcase(command.name, pattern):
            start = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                write_document(COMMANDS / f"{command.name}.json.gz", run_command_case(command, Path(folder)))
            _say(f"{command.name}: {len(command.commands)} command lines, {time.process_time() - start:.1f} s")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

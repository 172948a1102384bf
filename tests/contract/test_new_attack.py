"""A new attack is one new file: a copy of the package gets one, and everything that lists attacks knows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import leakgauge

CONTRACT = Path(__file__).parent

EXAMPLE = '''\
"""Mid-grey pictures: the smallest attack there is."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from leakgauge.settings import setting
from leakgauge.types import Attack, Fact, Observation, Progress, Reconstruction


@dataclass(frozen=True)
class Example(Attack):
    """Example: `leakgauge attack example --brightness 0.25`"""

    name: ClassVar[str] = "example"
    summary: ClassVar[str] = "claim that every picture is grey"
    paper: ClassVar[str] = "nobody 2024"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES})
    brightness: float = setting(0.5, "how bright the grey is", low=0, high=1)

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        shape = (len(seeds), problem.fact(Fact.NUM_SAMPLES), *problem.fact(Fact.INPUT_SPEC).shape)
        none = torch.zeros(len(seeds), dtype=torch.long)
        return Reconstruction(torch.full(shape, self.brightness), None, torch.ones(len(seeds)), none, none)
'''

# One process for all the questions, since starting one costs seconds.
ASK = """\
import contextlib, io, json, sys
import leakgauge, pytest
from leakgauge.cli import main

def answer(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(list(arguments))
    return int(code), out.getvalue()

contract, out, cache = sys.argv[1:]
answers = {
    "home": leakgauge.__file__,
    "list": answer("list", "attacks", "--json"),
    "help": answer("attack", "example", "--help"),
    "run": answer("attack", "example", "--brightness", "0.25", "--model", "mlp", "--data", "digits", "--trials", "1",
                  "--json", "--out", out),
    "mistake": answer("attack", "example", "--brightness", "2"),
}
report = io.StringIO()
with contextlib.redirect_stdout(report):
    passed = pytest.main([contract, "-k", "example", "-p", "no:cacheprovider", "-vv"])
answers["contract"] = [int(passed), report.getvalue()]
print(json.dumps(answers))
"""


def test_a_new_file_appears_in_the_list_the_help_and_the_contract_tests(tmp_path: Path) -> None:
    house = tmp_path / "house"
    shutil.copytree(Path(leakgauge.__file__).parent, house / "leakgauge", ignore=shutil.ignore_patterns("__pycache__"))
    (house / "leakgauge" / "attacks" / "example.py").write_text(EXAMPLE, encoding="utf-8")
    asked = subprocess.run(
        [sys.executable, "-P", "-c", ASK, str(CONTRACT / "test_attacks.py"), str(tmp_path / "run"), "-"],
        env=os.environ | {"PYTHONPATH": str(house), "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    answers = json.loads(asked.stdout.splitlines()[-1])
    assert Path(answers["home"]).is_relative_to(house), "the test must look at the copy"

    code, listed = answers["list"]
    (row,) = [row for row in json.loads(listed) if row["name"] == "example"]
    assert code == 0
    assert row["summary"] == "claim that every picture is grey"
    assert row["needs"] == ["input-spec", "num-samples"]

    code, text = answers["help"]
    assert code == 0
    assert "--brightness" in text
    assert "how bright the grey is" in text

    code, ran = answers["run"]
    assert code == 0
    assert json.loads(ran)["findings"][0]["spec"] == "example:brightness=0.25"
    assert answers["mistake"][0] == 2

    code, told = answers["contract"]
    assert code == 0, told
    assert "test_trials_together_equal_trials_alone[example]" in told
    assert told.count("PASSED") >= 8

"""What is known of a defense stands in its own file or folder: its name is said nowhere else in the source.

Papers are reproduced in `lab`, which names what the papers name. Tests, docs and results may name any defense.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import leakgauge
from leakgauge import catalog

SOURCE = Path(leakgauge.__file__).parent
DEFENSES = catalog.find("defenses")
TEXT = (".py", ".j2", ".toml", ".css", ".js", ".json", ".md", ".txt")
LAB = ("lab/", "cli/lab/")

# Names that are words of English or of mathematics: looked for only where they are written as a name.
WORDS = {
    "clip": "to clip a gradient, and torch's clip",
    "dropout": "a layer of torch, which models of any client may have",
    "gaussian": "the distribution",
    "laplace": "the distribution",
    "local-steps": "FedAvg's steps, which every attack on a weight difference counts",
    "low-rank": "of any matrix",
    "mixing": "of anything",
    "prune": "to cut back",
    "quantize": "to round to levels",
    "sensitivity": "how far one sample moves a result",
    "sign": "of a number",
    "sketch": "a short linear image of a long vector",
}
ELSEWHERE = {  # (defense, file): why the file says it
    ("ats", "federation/rounds.py"): "trains models on the pictures of a policy",
    ("batchnorm-only", "defenses/key_lock.py"): "its ablation, whose hidden scale it shares",
    ("clip", "attacks/_latent_search.py"): "an operation of GGL's published code, under its name there",
    ("clip", "cli/scenario.toml"): "an example in the scenario file that a command writes",
    ("clip", "defenses/_clipping.py"): "asks GGL for its operation of that name",
    ("clip", "defenses/dp_sgd.py"): "refers the reader to it",
    ("clip", "defenses/sensitivity/__init__.py"): "its own field, a bound on each sample's gradient, has that name",
    ("clip", "defenses/local_steps.py"): "the client's own bound of that name",
    ("clip", "recording/other_claims.py"): "the client's own bound of that name",
    ("clip", "report/report.schema.json"): "the client's own bound on the gradient of a step has that name",
    ("clip", "integrations/flower.py"): "an example of use",
    ("dp-sgd", "integrations/opacus.py"): "recognises this defense in an optimizer of Opacus",
    ("dropout", "recording/belonging.py"): "what the model's own layers draw, in a message",
    ("gaussian", "cli/audit.py"): "an example in a flag's help, and what a bare audit compares",
    ("gaussian", "cli/commands.py"): "an example in a command's help",
    ("gaussian", "cli/property.py"): "an example in a flag's help",
    ("gaussian", "cli/scenario.toml"): "an example in the scenario file that a command writes",
    ("gaussian", "cli/train/federation.py"): "an example in a command's help",
    ("gaussian", "report/officer.py"): "an example in a docstring",
    ("gaussian", "integrations/flower.py"): "an example of use",
    ("gaussian", "report/report.schema.json"): "an example in the description of a field",
    ("gaussian", "types/scenario.py"): "the same example, from which the description is made",
    ("key-lock", "defenses/batchnorm_only.py"): "it is the ablation of this defense",
    ("key-lock", "models/locked_norm.py"): "the name of a stream of random numbers: with another name others are drawn",
    ("mixing", "federation/aggregators/fedboosting.py"): "the same mixtures, in a training",
    ("mixing", "federation/exchange.py"): "the same mixtures, in a training",
    ("precode", "models/mlp.py"): "the model that the paper proposes has its name",
    ("prune", "cli/audit.py"): "an example in a flag's help, and what a bare audit compares",
    ("prune", "cli/property.py"): "an example in a flag's help",
    ("prune", "cli/scenario.toml"): "an example in the scenario file that a command writes",
    ("prune", "defenses/dgc.py"): "drops entries by the same rule, and its attacker fills the same holes",
    ("prune", "defenses/random_mask.py"): "counts entries by the same rule",
    ("prune", "testing/attack_checks.py"): "the defense that every attack is tried against",
    ("random-mask", "integrations/flower.py"): "an example of use",
    ("sign", "engine/descent.py"): "a field of the search that takes the gradient's sign",
    ("sign", "matching/label_counts.py"): "a rule that reads labels off signs has the same name",
}


def written(name: str) -> str:
    """A pattern of the ways to write a name: any, or of an ordinary word those that can only be the name."""
    spelled, module = re.escape(name).replace(r"\-", "[-_ ]?"), name.replace("-", "_")
    if name not in WORDS:
        return rf"\b{spelled}\b"
    cls = DEFENSES[name].__name__
    return rf"(?i:[\"'`]{name}[\"'`]|\b{name}:\w+=|defenses[./]{module}\b)|['\"]\S+=\S+ {name}['\"]|(?<![.\w]){cls}\("


@cache
def sources() -> dict[str, str]:
    found = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*")) if path.suffix in TEXT}
    return {where: path.read_text(encoding="utf-8") for where, path in found.items() if not where.startswith(LAB)}


def homes(name: str) -> tuple[str, ...]:
    """The file or folder of a defense, and what lies in it."""
    module = DEFENSES[name].__module__.removeprefix("leakgauge.").replace(".", "/")
    return f"{module}.py", f"{module}/"


@pytest.mark.parametrize("name", DEFENSES)
def test_its_name_stands_in_its_own_file_and_nowhere_else(name: str) -> None:
    pattern = re.compile(written(name), 0 if name in WORDS else re.IGNORECASE)
    said = {where for where, text in sources().items() if not where.startswith(homes(name)) and pattern.search(text)}
    allowed = {where for defense, where in ELSEWHERE if defense == name}
    assert said - allowed == set(), "what is known of a defense belongs into its own file"
    assert allowed - said == set(), "no longer said there: take it off the list"


def test_every_exception_is_a_defense_and_has_a_reason() -> None:
    assert WORDS.keys() | {name for name, _ in ELSEWHERE} <= DEFENSES.keys()
    assert all(WORDS.values())
    assert all(ELSEWHERE.values())


def test_a_name_is_found_however_it_is_written() -> None:
    for text in ("defenses.key_lock", "KeyLock", "key-lock:rounds=2", "a key lock"):
        assert re.search(written("key-lock"), text, re.IGNORECASE)
    for text in ('"clip"', "clip:norm=1", "from leakgauge.defenses.clip import Clip", "Clip(norm=1.0)"):
        assert re.search(written("clip"), text)
    assert not re.search(written("clip"), "clip the update: np.clip(x)")

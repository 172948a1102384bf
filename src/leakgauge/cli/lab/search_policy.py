"""`leakgauge lab search-policy`: search transformation policies for the defense `ats`, by privacy and accuracy."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.options import Common, flag, flags_from, required
from leakgauge.cli.running import RUNS
from leakgauge.defenses.ats.operations import OPERATIONS, parse
from leakgauge.errors import BadInput
from leakgauge.lab.policy_search import TRAINING, Scored, Search, best_of, search_policies
from leakgauge.reading.keys import key_of
from leakgauge.types import Training


@dataclass(frozen=True, kw_only=True)
class SearchFlags(Common):
    """The options of `leakgauge lab search-policy`."""

    model: str = required("NAME[:field=value,...], FILE.py:FACTORY ...")
    data: str = required("NAME, FOLDER, FILE.npz or FILE.py:FACTORY; pictures.")
    candidates: int = flag("Random policies to score.", default=Search.candidates)
    pictures: int = flag("Pictures behind a privacy score.", default=Search.pictures)
    batches: int = flag("Batches behind an accuracy score.", default=Search.batches)
    batch_size: int = flag("Pictures in such a batch.", default=Search.batch_size)
    least_accuracy: float | None = flag("Accuracy score to reach. Default: 85/63 that of untransformed pictures.")
    training: options.TRAINING = None
    top: int = flag("Policies to show.", default=10, min=1)
    as_released: bool = flag("Crop and mirror pictures first, as the released code does.", default=False)
    precision: str = flag("Products behind privacy scores on a GPU: tf32 or float32.", default="tf32")
    single: bool = flag("Score each of the different operations alone, by privacy.", default=False)
    out: Path | None = flag("Folder for scores. Default leakgauge-runs/policies-KEY.")

    @property
    def search(self) -> Search:
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(Search)}
        training = Training.from_text(self.training) if self.training else TRAINING
        return Search(**own | {"training": training, "seed": self.seed or 0})


@flags_from(SearchFlags)
def search_policy(given: SearchFlags) -> int:
    """Search for transformation policies: random triples, scored on a model; the most private that promise accuracy.

    Example: `leakgauge lab search-policy --model lenet-dlg --data digits --candidates 20 --pictures 10 --batches 2`
    """
    if given.single and given.candidates != Search.candidates:
        do = "there are as many as different operations"
        raise BadInput("--candidates", allowed="left out with --single", got=given.candidates, do=do)
    search, began = given.search, time.perf_counter()
    folder = given.out or RUNS / f"policies-{key_of(search=search.as_dict())[:10]}"
    try:
        with watching() as watch:
            scored = search_policies(
                search,
                folder,
                device=given.device,
                data_root=given.data_root,
                watch=lambda done, of: watch(done - 1, of, "candidates scored", 1.0),
            )
    except KeyboardInterrupt:
        say(f"leakgauge: interrupted; finished scores are kept in {folder}, the same command goes on from there")
        return 130
    least, best = best_of(search, scored)
    shown = best[: given.top]
    result = {
        "search": search.as_dict(),
        "untransformed": dataclasses.asdict(scored[0]),
        "least_accuracy": least,
        "kept": len(best),
        "best": [dataclasses.asdict(row) for row in shown],
        "folder": str(folder),
    }
    if given.as_json:
        show_json(result)
    else:
        _show_table(scored[0], shown)
        spent = time.perf_counter() - began
        show(f"{len(best)} of {search.count} reach an accuracy score of {least:.1f}; {spent:.0f} s")
        show(f"Scores: {folder}")
        show(_advice(search, scored, best))
    return 0


def _show_table(untransformed: Scored, best: Sequence[Scored]) -> None:
    rows = [["untransformed", "", f"{untransformed.privacy:.3f}", f"{untransformed.accuracy:.1f}"]]
    rows += [[row.policy, _named(row.policy), f"{row.privacy:.3f}", f"{row.accuracy:.1f}"] for row in best]
    show_table(["policy", "operations", "similarity (low is private)", "accuracy score (high is good)"], rows)


def _advice(search: Search, scored: Sequence[Scored], best: Sequence[Scored]) -> str:
    """What to do next."""
    if not best:
        highest = max(row.accuracy for row in scored[1:])
        return f"None was kept: the highest accuracy score is {highest:.1f}; lower --least-accuracy or score more."
    if best[0].privacy >= scored[0].privacy:
        return "None of them is more private by this score than pictures as they are: score more candidates."
    where = f"--model {search.model} --data {search.data}"
    return f"Use it: leakgauge attack inverting-gradients {where} --defense ats:policy={best[0].policy}"


def _named(policy: str) -> str:
    return ", ".join(str(OPERATIONS[n]) for n in parse(policy)[0])

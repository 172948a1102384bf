"""`leakgauge lab search-policy`: search transformation policies for the defense `ats`, by privacy and accuracy."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.running import RUNS
from leakgauge.defenses.ats.operations import OPERATIONS, parse
from leakgauge.errors import BadInput
from leakgauge.lab.policy_search import TRAINING, Scored, Search, best_of, search_policies
from leakgauge.reading.keys import key_of
from leakgauge.types import Training


def search_policy(
    model: Annotated[str, typer.Option("--model", help="NAME[:field=value,...], FILE.py:FACTORY ...")],
    data: Annotated[str, typer.Option("--data", help="NAME, FOLDER, FILE.npz or FILE.py:FACTORY; pictures.")],
    candidates: Annotated[int, typer.Option("--candidates", help="Random policies to score.")] = Search.candidates,
    pictures: Annotated[int, typer.Option("--pictures", help="Pictures behind a privacy score.")] = Search.pictures,
    batches: Annotated[int, typer.Option("--batches", help="Batches behind an accuracy score.")] = Search.batches,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Pictures in such a batch.")] = Search.batch_size,
    least_accuracy: Annotated[
        float | None,
        typer.Option(
            "--least-accuracy", help="Accuracy score to reach. Default: 85/63 that of untransformed pictures."
        ),
    ] = None,
    training: options.TRAINING = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Policies to show.")] = 10,
    as_released: Annotated[
        bool, typer.Option("--as-released", help="Crop and mirror pictures first, as the released code does.")
    ] = False,
    precision: Annotated[
        str, typer.Option("--precision", help="Products behind privacy scores on a GPU: tf32 or float32.")
    ] = "tf32",
    single: Annotated[
        bool, typer.Option("--single", help="Score each of the different operations alone, by privacy.")
    ] = False,
    seed: options.SEED = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for scores. Default leakgauge-runs/policies-KEY.")
    ] = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    as_json: options.JSON = False,
) -> int:
    """Search for transformation policies: random triples, scored on a model; the most private that promise accuracy.

    Example: `leakgauge lab search-policy --model lenet-dlg --data digits --candidates 20 --pictures 10 --batches 2`
    """
    if single and candidates != Search.candidates:
        raise BadInput(
            "--candidates",
            allowed="left out with --single",
            got=candidates,
            do="there are as many as different operations",
        )
    search = Search(
        model,
        data,
        candidates,
        pictures,
        batches,
        batch_size,
        least_accuracy,
        Training.from_text(training) if training else TRAINING,
        as_released,
        seed or 0,
        precision,
        single,
    )
    folder = out or RUNS / f"policies-{key_of(search=search.as_dict())[:10]}"
    began = time.perf_counter()
    try:
        with watching() as watch:
            scored = search_policies(
                search,
                folder,
                device=device,
                data_root=data_root,
                watch=lambda done, of: watch(done - 1, of, "candidates scored", 1.0),
            )
    except KeyboardInterrupt:
        say(f"leakgauge: interrupted; finished scores are kept in {folder}, the same command goes on from there")
        return 130
    least, best = best_of(search, scored)
    result = {
        "search": search.as_dict(),
        "untransformed": dataclasses.asdict(scored[0]),
        "least_accuracy": least,
        "kept": len(best),
        "best": [dataclasses.asdict(row) for row in best[:top]],
        "folder": str(folder),
    }
    if as_json:
        show_json(result)
    else:
        _show_table(scored[0], best[:top])
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

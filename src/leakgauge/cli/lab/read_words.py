"""`leakgauge lab read-words`: aggregators on a federation that learns to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.lab.words.comparing import AGGREGATORS, Run, Study, compare
from leakgauge.lab.words.rendering import RENDERERS
from leakgauge.lab.words.training import Reading
from leakgauge.reading.files import make_folder, write_whole


def read_words(
    aggregator: Annotated[
        list[str] | None,
        typer.Option("--aggregator", help="NAME[:field=value,...], centralised; repeat. Default: three."),
    ] = None,
    encryption: Annotated[
        str, typer.Option("--encryption", help="Add updates encrypted: none, paillier or ckks, with :field=value,...")
    ] = "none",
    training: Annotated[
        str, typer.Option("--training", help="field=value,...: rounds, words, batch_size, width and so on.")
    ] = "",
    fonts: Annotated[
        Path | None, typer.Option("--fonts", help="Folder of fonts to draw with. Default: those of matplotlib.")
    ] = None,
    words: Annotated[
        list[Path] | None,
        typer.Option("--words", help="Folder of word pictures with a list of what they say, to test on too; repeat."),
    ] = None,
    data_root: options.DATA_ROOT = None,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the numbers.")] = None,
    as_json: options.JSON = False,
) -> None:
    """Two clients draw words each in its own way and train one recogniser (CRNN); compare aggregators on it.

    Example: `leakgauge lab read-words --aggregator fedavg --aggregator fedboosting --training rounds=10`
    """
    how = Reading.from_text(training)
    if out is not None:
        make_folder(out)
    with watching() as watch:
        study = compare(
            aggregator or AGGREGATORS,
            encryption,
            how,
            seed=0 if seed is None else seed,
            device=device,
            data_root=data_root,
            fonts=fonts,
            folders=words or (),
            watch=lambda n, of: watch(n, of, "rounds of training", 0.0),
        )
    if out is not None:
        write_whole(out / "read-words.json", (json.dumps(study.as_dict(), indent=1) + "\n").encode())
    if as_json:
        show_json(study.as_dict())
    else:
        _show(study)
    if out is not None:
        say(f"written: {out / 'read-words.json'}")


def _show(study: Study) -> None:
    columns = [*RENDERERS, *(name for name in study.runs[0].words if name not in RENDERERS)]
    rows = [
        [r.aggregator, *(_share(r, name) for name in columns), " / ".join(f"{w:.2f}" for w in r.weights), _seconds(r)]
        for r in study.runs
    ]
    show_table(["aggregator", *(f"{name}, %" for name in columns), "weights", "seconds a round"], rows)
    how = study.training
    show(f"Words read without a mistake, 95 % intervals over words; {how.rounds} rounds, {how.words} words a client.")
    for name, files in study.fonts.items():
        show(f"Fonts of {name}: {', '.join(files)}.")
    if study.left_out:
        show(f"No real words: {study.left_out}")


def _share(run: Run, name: str) -> str:
    found = run.interval(name)
    return f"{100 * (found.value or 0):.1f} [{100 * (found.low or 0):.1f}, {100 * (found.high or 0):.1f}]"


def _seconds(run: Run) -> str:
    return f"{sorted(run.round_seconds)[len(run.round_seconds) // 2]:.1f}"

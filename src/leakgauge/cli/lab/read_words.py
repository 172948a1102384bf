"""`leakgauge lab read-words`: aggregators on a federation that learns to read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from leakgauge.cli.console import say, show, show_json, show_table, watching
from leakgauge.cli.options import Common, flag, flags_from
from leakgauge.lab.words.comparing import AGGREGATORS, Run, Study, compare
from leakgauge.lab.words.rendering import RENDERERS
from leakgauge.lab.words.training import Reading
from leakgauge.reading.files import make_folder, write_whole


@dataclass(frozen=True, kw_only=True)
class WordsFlags(Common):
    """The options of `leakgauge lab read-words`."""

    aggregator: list[str] | None = flag("NAME[:field=value,...], centralised; repeat. Default: three.")
    encryption: str = flag("Add updates encrypted: none, paillier or ckks, with :field=value,...", default="none")
    training: str = flag("field=value,...: rounds, words, batch_size, width and so on.", default="")
    fonts: Path | None = flag("Folder of fonts to draw with. Default: those of matplotlib.")
    words: list[Path] | None = flag("Folder of word pictures with a list of their words, to test on too; repeat.")
    out: Path | None = flag("Folder for the numbers.")


@flags_from(WordsFlags)
def read_words(given: WordsFlags) -> int:
    """Two clients draw words each in its own way and train one recogniser (CRNN); compare aggregators on it.

    Example: `leakgauge lab read-words --aggregator fedavg --aggregator fedboosting --training rounds=10`
    """
    how, out = Reading.from_text(given.training), given.out
    if out is not None:
        make_folder(out)
    with watching() as watch:
        study = compare(
            given.aggregator or AGGREGATORS,
            given.encryption,
            how,
            seed=given.seed or 0,
            device=given.device,
            data_root=given.data_root,
            fonts=given.fonts,
            folders=given.words or (),
            watch=lambda n, of: watch(n, of, "rounds of training", 0.0),
        )
    if out is not None:
        write_whole(out / "read-words.json", (json.dumps(study.as_dict(), indent=1) + "\n").encode())
    if given.as_json:
        show_json(study.as_dict())
    else:
        _show(study)
    if out is not None:
        say(f"written: {out / 'read-words.json'}")
    return 0


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

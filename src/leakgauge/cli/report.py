"""`leakgauge report DIR`: write a finished run's report in another format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli import options
from leakgauge.cli.console import deliver, say, show
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.store import Store
from leakgauge.reading.files import regular
from leakgauge.report import from_json, write, write_comparison
from leakgauge.types import AuditReport

TO = Annotated[str, typer.Option("--to", help="html, json, markdown, junit, summary or officer.")]
OUT = Annotated[Path | None, typer.Option("--out", help="Where to write it. Default: into the run's folder.")]
_COMPARE = "Folder of another run: both on one page, comparison.html."


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, as printed by audit or attack.", show_default=False)],
    to: TO = "html",
    out: OUT = None,
    compare: Annotated[Path | None, typer.Option("--compare", help=_COMPARE)] = None,
    as_json: options.JSON = False,
) -> None:
    """Write the report of a finished run as HTML, JSON, Markdown, JUnit, a short summary or a page in plain words.

    Example: `leakgauge report run --to markdown` after `leakgauge audit --out run`
    """
    run = _read(folder)
    if compare is not None:
        if to != "html":
            raise BadInput("--to with --compare", allowed="html", got=to, do="leave --to out")
        other = _read(compare)
        with _as_written(folder, compare):
            files = {"comparison": write_comparison(run, other, (str(folder), str(compare)), out or folder)}
    else:
        store = Store(folder, make=False, notice=lambda text: say(f"leakgauge: {text}"))
        pictures = store.pictures(run.setup)
        if pictures is None and to == "html":
            _spare_pictures(out or folder)
        if not store.kept_private and to == "html":
            say("leakgauge: the run kept no private samples, so this page has no pictures; see --keep-private of audit")
        with _as_written(folder):
            files = write(run, pictures, out or folder, (to,))
    paths = {form: str(path) for form, path in files.items()}

    def shown() -> None:
        for path in paths.values():
            show(path)

    deliver(paths, as_json, shown)


def _spare_pictures(folder: Path) -> None:
    """A page that has pictures is not replaced by one without: only another run would bring them back."""
    try:
        there = regular(folder / "report.html").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    if "data:image/" in there:
        allowed = "another folder: the run kept no private samples, and the page that is there has pictures"
        do = "name one with --out, or run the audit with --keep-private"
        raise BadInput("--out", allowed=allowed, got=repr(str(folder)), do=do)


@contextmanager
def _as_written(*folders: Path) -> Iterator[None]:
    """A report.json that was changed by hand can lack anything that a page needs."""
    try:
        yield
    except LeakgaugeError:
        raise
    except Exception as error:
        what = f"report.json in {' or '.join(repr(str(folder)) for folder in folders)}"
        got, do = (
            f"{type(error).__name__} while a page was made of it",
            "run the audit again with the same --out, or see --debug",
        )
        raise BadInput(what, allowed="as Leakgauge writes it", got=got, do=do) from error


def _read(folder: Path) -> AuditReport:
    try:
        text = regular(folder / "report.json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got, do = getattr(error, "strerror", None) or str(error), "give the folder that audit printed"
        raise BadInput(f"run {str(folder)!r}", allowed="a folder with report.json", got=got, do=do) from error
    return from_json(text)

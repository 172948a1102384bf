"""AuditReport -> html | json | markdown | junit | summary | officer; on disk each file appears whole or not at all."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from leakgauge.reading.files import make_folder, write_whole
from leakgauge.report.blind_page import to_blind_page
from leakgauge.report.comparison import to_comparison
from leakgauge.report.html import to_html
from leakgauge.report.json import from_json, scenario_toml, to_json
from leakgauge.report.junit import to_junit
from leakgauge.report.markdown import to_markdown, to_summary
from leakgauge.report.officer import to_officer
from leakgauge.settings import unknown_name
from leakgauge.types import AuditReport, Pictures

__all__ = [
    "FORMATS",
    "from_json",
    "render",
    "scenario_toml",
    "to_comparison",
    "to_html",
    "to_json",
    "to_junit",
    "to_markdown",
    "to_officer",
    "to_summary",
    "write",
    "write_comparison",
]

_TEXTS = {"json": to_json, "markdown": to_markdown, "junit": to_junit, "summary": to_summary, "officer": to_officer}
FORMATS: Mapping[str, str] = {  # format -> file name
    "html": "report.html",
    "json": "report.json",
    "markdown": "report.md",
    "junit": "report.xml",
    "summary": "summary.md",
    "officer": "officer.html",
}


def render(report: AuditReport, pictures: Pictures | None, form: str) -> str:
    """The report in one format, as text."""
    if form == "html":
        return to_html(report, pictures) if report.scored else to_blind_page(report, pictures)
    if form not in FORMATS:
        raise unknown_name("report format", form, FORMATS)
    return _TEXTS[form](report)


def write(
    report: AuditReport, pictures: Pictures | None, out_dir: str | Path, formats: Sequence[str] = tuple(FORMATS)
) -> dict[str, Path]:
    """Write the report into `out_dir`, which is made if need be; gives back format -> file."""
    texts = {form: render(report, pictures, form) for form in formats}  # nothing is written if one fails
    folder = Path(out_dir)
    make_folder(folder)
    paths = {form: folder / FORMATS[form] for form in formats}
    for form, text in texts.items():
        # A path given on the command line may hold bytes that are no text; they become "?".
        # The page shows private samples: only its owner may read it until they decide otherwise. Where nothing is
        # scored, tables and JSON hold the labels that were read.
        private = form == "html" or (form in ("json", "markdown") and not report.scored)
        write_whole(paths[form], text.encode("utf-8", errors="replace"), private=private)
    return paths


def write_comparison(first: AuditReport, second: AuditReport, names: tuple[str, str], out_dir: str | Path) -> Path:
    """Write both audits on one page into `out_dir`; it shows no private sample."""
    text, path = to_comparison(first, second, names), Path(out_dir) / "comparison.html"
    make_folder(path.parent)
    write_whole(path, text.encode("utf-8", errors="replace"))
    return path

"""The report as one HTML file: opens from disk, asks nothing of any network, and is whole without its one script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from leakgauge.reading.visible import visible_lines
from leakgauge.report import subject
from leakgauge.report.cells import CONTROL_NOTE, CREDIBLE_NOTE, by_defense, cells, flags, skipped_lines
from leakgauge.report.curves import plot, success_curves
from leakgauge.report.gallery import exhibits, guesses, room_for
from leakgauge.report.json import scenario_toml
from leakgauge.report.objectives import objectives
from leakgauge.report.rows import EXPOSED_NOTE, columns, exposed, guarantee_text, most_exposed, table_rows
from leakgauge.report.scatter import painted, quality, scatter
from leakgauge.report.tradeoff import tradeoff
from leakgauge.types import AuditReport, ConfigurationVerdict, Pictures, threat_model
from leakgauge.verdict.summary import headline, state_of

_FOLDER = Path(__file__).parent / "templates"
_TEMPLATES = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,  # names, paths and errors come from users
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
# The browser runs this script and no other: the page names its hash, so nothing that slipped through could run.
_SCRIPT = "\n" + (_FOLDER / "report.js").read_text(encoding="utf-8")
SCRIPT: Mapping[str, Any] = {
    "text": Markup(_SCRIPT),
    "hash": "sha256-" + base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode(),
}
_TONES = {"leaks": "bad", "protected": "good"}  # of a configuration; amber for all others


def rendered(template: str, page: Mapping[str, Any]) -> str:
    """A page, in which nothing that came from outside is read as HTML or stays unseen."""
    return visible_lines(_TEMPLATES.get_template(template).render(page))


def to_html(report: AuditReport, pictures: Pictures | None = None) -> str:
    """The same report and pictures give the same bytes."""
    curves = success_curves(report)
    lead, _, rest = report.verdict.sentence.partition(". ")  # the gravest configuration's first sentence
    lead += "." if rest else ""
    page = {
        "report": report,
        "script": SCRIPT,
        "title": subject.title_of(report),
        "heading": "Attacks and defenses",
        "banner": _banner(report),
        "lead": lead,
        "rest": rest,
        "most_exposed": most_exposed(report),
        "attacked": subject.attacked(report),
        "threat": threat_model(report.scenario.threat_model),
        "told": subject.told(report),
        "not_told": subject.not_told(report),
        "labels_sentence": subject.labels_sentence(report),
        "flags": [(flag, _raised(report, flag.id)) for flag in flags(report)],
        "configurations": {c.defense: _configuration(c) for c in report.verdict.configurations},
        "exhibits": exhibits(report, pictures),
        "guesses": guesses(report, pictures),
        "reduced": report.data.kind == "image" and max(report.data.shape[1:]) > room_for(report).side,
        "columns": columns(report),
        "credible_note": CREDIBLE_NOTE,
        "triage_note": subject.triage_note(report.scenario),
        "control_note": CONTROL_NOTE if any(cell.control for cell in cells(report)) else "",
        "rows": table_rows(report),
        "plot": plot(curves),
        "objectives": objectives(report, curves.attacks),
        "scatter": scatter(quality(report), curves.attacks),
        "painted": painted,
        "tradeoff": tradeoff(report),
        "exposed": exposed(report),
        "exposed_note": EXPOSED_NOTE,
        "not_run": skipped_lines(report),
        "in_python": subject.in_python(report.scenario),
        "toml": scenario_toml(report.scenario),
    }
    return rendered("report.html.j2", page)


def _banner(report: AuditReport) -> dict[str, str]:
    """Colour and words; the words alone say it, for those who print in grey."""
    verdict, gate, word = report.verdict, report.verdict.gate, headline(report.verdict)
    failed = gate is not None and not gate.passed
    # Green is for what is guaranteed, or within what its user accepts: that no attack got anywhere is no reason for it.
    tone = "bad" if verdict.leaks or failed else "good" if word.startswith("Protected") else "warn"
    if gate is None:
        return {"tone": tone, "word": word, "gate": "", "gate_sentence": ""}
    if gate.passed:
        tone = "warn" if verdict.leaks else "good"
    return {
        "tone": tone,
        "word": word,
        "gate": f"Gate {'failed' if failed else 'passed'}",
        "gate_sentence": gate.sentence,
    }


def _raised(report: AuditReport, flag: str) -> list[str]:
    """The cells that raised a flag, so that its reach is seen at once."""
    places = []
    for defense, group in by_defense(report).items():
        hits = [f"{cell.row.attack}, {cell.style}" for cell in group if flag in cell.row.flags]
        if len(hits) > 1 and len(hits) == len(group):
            places.append(f"all {len(hits)} attacks on {defense}")
        else:
            places += [f"{hit} on {defense}" for hit in hits]
    return places


def _configuration(verdict: ConfigurationVerdict) -> dict[str, str]:
    style = "adaptive" if verdict.adaptive else "plain"
    return {
        "state": state_of(verdict),
        "tone": _TONES.get(state_of(verdict), "warn"),
        "sentence": verdict.sentence,
        "sides": verdict.sides,
        "worst": f"{verdict.attack}, {style}" if verdict.attack else "",
        "guarantee": guarantee_text(verdict.guarantee),
    }

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
TEMPLATES = Environment(
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
    return visible_lines(TEMPLATES.get_template(template).render(page))


def to_html(report: AuditReport, pictures: Pictures | None = None) -> str:
    """The same report and pictures give the same bytes."""
    curves = success_curves(report)
    lead, _, rest = report.verdict.sentence.partition(". ")  # the gravest configuration's first sentence
    drawn = {
        "script": SCRIPT,
        "banner": _banner(report),
        "lead": lead + ("." if rest else ""),
        "rest": rest,
        "exhibits": exhibits(report, pictures),
        "guesses": guesses(report, pictures),
        "reduced": report.data.kind == "image" and max(report.data.shape[1:]) > room_for(report).side,
        "plot": plot(curves),
        "objectives": objectives(report, curves.attacks),
        "scatter": scatter(quality(report), curves.attacks),
        "painted": painted,
    }
    return rendered("report.html.j2", words(report) | drawn)


def words(report: AuditReport) -> dict[str, Any]:
    """What the page and its Markdown have in common."""
    return {
        "report": report,
        "verdict": report.verdict,
        "word": headline(report.verdict),
        "title": subject.title_of(report),
        "heading": "Attacks and defenses",
        "most_exposed": most_exposed(report),
        "attacked": subject.attacked(report),
        "threat": threat_model(report.scenario.threat_model),
        "facts_given": subject.facts_given(report),
        "facts_not_given": subject.facts_not_given(report),
        "labels_sentence": subject.labels_sentence(report),
        "flags": [(flag, _raised(report, flag.id)) for flag in flags(report)],
        "configurations": {c.defense: _configuration(c) for c in report.verdict.configurations},
        "columns": columns(report) if report.scored else [],
        "rows": table_rows(report) if report.scored else [],
        "credible_note": CREDIBLE_NOTE,
        "triage_note": subject.triage_note(report.scenario),
        "control_note": CONTROL_NOTE if any(cell.control for cell in cells(report)) else "",
        "tradeoff": tradeoff(report),
        "exposed": exposed(report),
        "exposed_note": EXPOSED_NOTE,
        "not_run": skipped_lines(report),
        "in_python": subject.in_python(report.scenario),
        "toml": scenario_toml(report.scenario),
    }


def _banner(report: AuditReport) -> dict[str, str]:
    """Its colour, and the gate; the words alone say it, for those who print in grey."""
    verdict, gate = report.verdict, report.verdict.gate
    # Green is for what is guaranteed, or within what its user accepts: that no attack got anywhere is no reason for it.
    if gate is None:
        tone = "bad" if verdict.leaks else "good" if headline(verdict).startswith("Protected") else "warn"
        return {"tone": tone, "gate": "", "gate_sentence": ""}
    tone = "bad" if not gate.passed else "warn" if verdict.leaks else "good"
    return {"tone": tone, "gate": f"Gate {'passed' if gate.passed else 'failed'}", "gate_sentence": gate.sentence}


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

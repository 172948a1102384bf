"""The report of an audit without the private samples: what was proven, what was read, what was drawn.

There is nothing to hold a picture against, so none is called right here unless the attack itself proved it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from leakgauge.report.cells import skipped_lines
from leakgauge.report.html import rendered
from leakgauge.report.json import scenario_toml
from leakgauge.report.numbers import NOTHING, counted
from leakgauge.report.pictures import claimed, data_uri
from leakgauge.report.samples import panels
from leakgauge.report.subject import client_name, title_of, was
from leakgauge.types import AuditReport, Finding, Pictures
from leakgauge.verdict.summary import headline

HEADS = ("attack", "attacker", "client", "proven right", "labels", "labels proven", "own objective")
_SHOWN = 64  # pictures of one attack
_RECORDS = 8  # or records that are none
_LABELS = 16  # of one client, in the table


def to_blind_page(report: AuditReport, pictures: Pictures | None = None) -> str:
    """The same report and pictures give the same bytes."""
    proven = report.verdict.proven
    assert proven is not None
    most = _SHOWN if report.data.kind == "image" else _RECORDS
    figures = {} if pictures is None else _figures(report, pictures)
    image = report.data.kind == "image"
    page = {
        "title": title_of(report),
        "verdict": report.verdict,
        "proven": proven,
        "word": headline(report.verdict),
        "one": report.scenario.trials == 1,
        "counted": counted,
        "was": was,
        "interrupted": report.interrupted,
        "clues": report.triage,
        "heads": HEADS,
        "rows": client_rows(report),
        "image": image,
        "drawn": [
            (name, [(place, data_uri(p) if image else panels(None, p, report.data)) for place, p in shown[:most]])
            for name, shown in figures.items()
        ],
        "left": {name: max(0, len(shown) - most) for name, shown in figures.items()},
        "not_run": [*skipped_lines(report), *errors(report)],
        "flags": report.flags,
        "toml": scenario_toml(report.scenario),
        "environment": report.environment,
    }
    return rendered("blind.html.j2", page)


def client_rows(report: AuditReport) -> list[list[str]]:
    """One row for each attack and client, under `HEADS`."""
    return [_row(report, finding) for finding in report.findings if finding.error is None]


def errors(report: AuditReport) -> list[str]:
    """Attacks that broke off, each with its reason, once."""
    return list(dict.fromkeys(f"{f.attack}: {f.error}" for f in report.findings if f.error is not None))


def _row(report: AuditReport, finding: Finding) -> list[str]:
    proven, labels = finding.certified, finding.labels_proven
    return [
        finding.attack,
        "adaptive" if finding.adaptive else "plain",
        client_name(report, finding.trial),
        NOTHING if proven is None else f"{proven} of {report.scenario.batch_size}",
        label_words(finding.labels),
        NOTHING if labels is None else str(labels),
        NOTHING if finding.objective is None else f"{finding.objective:.3g}",
    ]


def label_words(labels: Sequence[int | None] | None) -> str:
    """The first labels of one client; a dash where none is named."""
    if labels is None:
        return NOTHING
    return " ".join(NOTHING if label is None else str(label) for label in labels[:_LABELS]) + " …" * (
        len(labels) > _LABELS
    )


def _figures(report: AuditReport, pictures: Pictures) -> dict[str, list[tuple[str, Tensor]]]:
    """Every record that an attack claims, and whose it is."""
    found = {}
    for name, recovered in pictures.recovered.items():
        first = recovered[:, : report.scenario.batch_size]
        places = claimed(first).nonzero().tolist()
        found[name] = [(f"client {client_name(report, t)}, record {n + 1}", first[t, n]) for t, n in places]
    return found

"""An audit without the private samples, as one HTML file: what was proven, what was read, what was drawn.

There is nothing to hold a picture against, so none is called right here unless the attack itself proved it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from leakgauge.metrics.scoring import claims_of
from leakgauge.report.html import rendered
from leakgauge.report.pictures import data_uri
from leakgauge.report.subject import counted
from leakgauge.report.toml import scenario_toml
from leakgauge.types import Reconstruction, Scenario
from leakgauge.verdict.flags import FLAGS

_SHOWN = 64  # pictures of one attack
_LABELS = 16  # of one client, in the table


def to_blind_page(
    document: Mapping[str, Any], scenario: Scenario, clients: Sequence[str], drawn: Mapping[str, Reconstruction]
) -> str:
    """`document` is what is written as JSON, `drawn` is what each attack claims."""
    samples = scenario.batch_size
    figures = {name: _figures(result, clients) for name, result in drawn.items()}
    page = {
        "title": f"{scenario.model} on {scenario.data}",
        "banner": _banner(document, samples, len(clients)),
        "clues": document["triage"],
        "rows": [_row(finding, clients, samples) for finding in document["findings"]],
        "drawn": [(name, [(place, data_uri(p)) for place, p in shown[:_SHOWN]]) for name, shown in figures.items()],
        "left": {name: max(0, len(shown) - _SHOWN) for name, shown in figures.items()},
        "skipped": document["skipped"],
        "flags": [FLAGS[flag] for flag in document["flags"]],
        "toml": scenario_toml(scenario),
        "environment": document["environment"],
    }
    return rendered("blind.html.j2", page)


def _banner(document: Mapping[str, Any], samples: int, clients: int) -> dict[str, str]:
    """What is certain: records that carry a proof, and labels that the updates prove."""
    every = samples * clients
    records, labels = (_proven(document["findings"], kind, clients) for kind in ("certified", "labels_proven"))
    of_updates = "the update" if clients == 1 else "the updates"
    read = f"{labels} of {counted('label', every)}" if labels else ""
    if records:
        said = (
            f"{records} of {counted('private record', every)} {'was' if records == 1 else 'were'} recovered from "
            f"{of_updates} alone, {'with a proof' if records == 1 else 'each with a proof'}."
        )
        said += f" {of_updates.capitalize()} also prove{'s' * (clients == 1)} {read}." if read else ""
        return {"tone": "bad", "word": "Leaks", "sentence": said}
    rest = (
        "without the private samples nothing else can be scored: look at the pictures, and take a resemblance seriously"
    )
    if read:
        said = f"{of_updates.capitalize()} prove{'s' * (clients == 1)} {read}. "
        said += f"No attack proved a recovered record right, and {rest}."
        return {"tone": "warn", "word": "Labels are proven, no record is", "sentence": said}
    said = f"No attack proved a recovery right, and {rest}."
    return {"tone": "warn", "word": "Nothing is proven", "sentence": said}


def _proven(findings: Sequence[Mapping[str, Any]], kind: str, clients: int) -> int:
    """How many of all clients together, each by the attack that proved most of it."""
    most = [0] * clients
    for finding in findings:
        most[finding["trial"]] = max(most[finding["trial"]], finding.get(kind) or 0)
    return sum(most)


def _row(finding: Mapping[str, Any], clients: Sequence[str], samples: int) -> list[str]:
    labels, proven, objective = finding["labels"], finding["certified"], finding["objective"]
    return [
        finding["attack"],
        "adaptive" if finding["adaptive"] else "plain",
        clients[finding["trial"]],
        "–" if proven is None else f"{proven} of {samples}",
        label_words(labels),
        "–" if finding.get("labels_proven") is None else str(finding["labels_proven"]),
        "–" if objective is None else f"{objective:.3g}",
    ]


def label_words(labels: Sequence[int | None] | None) -> str:
    """The first labels of one client; a dash where none is named."""
    if labels is None:
        return "–"
    return " ".join("–" if label is None else str(label) for label in labels[:_LABELS]) + " …" * (len(labels) > _LABELS)


def _figures(result: Reconstruction, clients: Sequence[str]) -> list[tuple[str, Tensor]]:
    """Every picture that is claimed, and whose it is."""
    assert result.inputs is not None
    pictures, claims, _ = claims_of(result, result.inputs)
    return [(f"client {clients[t]}, record {n + 1}", pictures[t, n].cpu()) for t, n in claims.nonzero().tolist()]

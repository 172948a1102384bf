"""What was read from recorded updates, as a Markdown page with the pictures beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from leakgauge.report.markdown import one_line, table_line
from leakgauge.verdict.flags import FLAGS

HEADS = ("attack", "client", "labels", "own objective", "scores")


def finding_row(finding: Mapping[str, Any]) -> list[str]:
    """One line of the table: what was claimed of one client, and how near it is where that is known."""
    scores = " ".join(f"{name} {value:.3g}" for name, value in finding["scores"].items())
    return [
        finding["attack"] + (" (knows the defence)" if finding["adaptive"] else ""),
        finding["client"] or finding["update"],
        "" if finding["labels"] is None else " ".join(map(str, finding["labels"])),
        "" if finding["objective"] is None else f"{finding['objective']:.3g}",
        finding["error"] or scores,
    ]


def recorded_page(result: Mapping[str, Any], pictures: Sequence[Sequence[str]]) -> str:
    """The page; `pictures` are the files of each group. Names of clients and files come from others: no markup."""
    read = f"Read from {one_line(result['recorded'])}; the clients' defence: {one_line(result['defense'])}."
    lines = ["# Recorded updates", "", read]
    if result["left_out"]:
        lines.append(f"The recorder left out {result['left_out']:,} later updates: its limits were reached.")
    for number, (group, files) in enumerate(zip(result["groups"], pictures, strict=True), 1):
        rounds = ", ".join(str(r) for r in sorted({update["round"] for update in group["updates"]}))
        lines += ["", f"## Group {number}: {len(group['updates'])} updates of round {rounds or '?'}", ""]
        lines += [f"- Not read: {one_line(bad['name'])}: {one_line(bad['error'])}" for bad in group["unreadable"]]
        said = [": ".join(clue[part] for part in ("severity", "what", "value", "meaning")) for clue in group["clues"]]
        lines += [f"- {one_line(line)}" for line in said]
        lines += ["", *_table([finding_row(f) for f in group["findings"]])]
        lines += [line for file in files for line in ("", f"![{one_line(file)}]({quote(file)})")]
        if any("no-ground-truth" in f["flags"] for f in group["findings"]):
            flag = FLAGS["no-ground-truth"]
            lines += ["", f"Flag {flag.id}: {flag.reason}; {flag.remedy}."]
    told = result["environment"]
    where = f"{told['device']}, leakgauge {told['leakgauge']}, torch {told['torch']}"
    lines += ["", f"Seed {result['seed']}, {one_line(where)}.", ""]
    return "\n".join(lines)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    lines = [table_line(list(HEADS)), table_line(["---"] * len(HEADS))]
    return lines + [table_line([one_line(cell) for cell in row]) for row in rows]

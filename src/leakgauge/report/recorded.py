"""What was read from recorded updates, as a Markdown page with the pictures beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leakgauge.flags import FLAGS

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
    """The page; `pictures` are the files of each group."""
    lines = ["# Recorded updates", "", f"Read from `{result['recorded']}`; the clients' defence: {result['defense']}."]
    if result["left_out"]:
        lines.append(f"The recorder left out {result['left_out']:,} later updates: its limits were reached.")
    for number, (group, files) in enumerate(zip(result["groups"], pictures, strict=True), 1):
        rounds = ", ".join(str(r) for r in sorted({update["round"] for update in group["updates"]}))
        lines += ["", f"## Group {number}: {len(group['updates'])} updates of round {rounds or '?'}", ""]
        lines += [f"- Not read: {bad['name']}: {bad['error']}" for bad in group["unreadable"]]
        lines += [
            f"- {clue['severity']}: {clue['what']}: {clue['value']}: {clue['meaning']}" for clue in group["clues"]
        ]
        lines += ["", *_table([finding_row(f) for f in group["findings"]])]
        lines += [line for file in files for line in ("", f"![{file}]({file})")]
        if any("no-ground-truth" in f["flags"] for f in group["findings"]):
            flag = FLAGS["no-ground-truth"]
            lines += ["", f"Flag {flag.id}: {flag.reason}; {flag.remedy}."]
    told = result["environment"]
    lines += ["", f"Seed {result['seed']}, {told['device']}, leakgauge {told['leakgauge']}, torch {told['torch']}.", ""]
    return "\n".join(lines)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    return ["| " + " | ".join(_cell(c) for c in row) + " |" for row in (HEADS, ["---"] * len(HEADS), *rows)]


def _cell(text: str) -> str:
    """Names of clients come from others: nothing in them is markup."""
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("[", "\\["), ("`", "\\`")):
        text = text.replace(sign, instead)
    return " ".join(text.split())

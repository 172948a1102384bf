"""In a GitHub workflow the result is also shown on the page of the run: it is appended to the step's summary."""

from __future__ import annotations

import os
from pathlib import Path

from leakgauge.cli.console import say

VARIABLE = "GITHUB_STEP_SUMMARY"


def append_step_summary(text: str) -> bool:
    """Add `text` to the file that the workflow names; says so if it cannot, and never fails a finished audit."""
    named = os.environ.get(VARIABLE)
    if not named:
        return False
    try:
        with Path(named).open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n")
    except OSError as error:
        say(f"leakgauge: {VARIABLE} could not be written ({error.strerror or error}); see summary.md instead")
        return False
    return True

"""AuditReport -> html | json | markdown | junit | summary | officer."""

from leakgauge.report.comparison import to_comparison
from leakgauge.report.html import to_html
from leakgauge.report.json import from_json, scenario_toml, to_json
from leakgauge.report.junit import to_junit
from leakgauge.report.markdown import to_markdown, to_summary
from leakgauge.report.officer import to_officer
from leakgauge.report.writing import FORMATS, write, write_comparison

__all__ = [
    "FORMATS",
    "from_json",
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

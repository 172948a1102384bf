"""The command line: `leakgauge COMMAND`. One module per command."""

from leakgauge.cli.main import main

__all__ = ["main"]

"""Leakgauge measures what a federated-learning update gives away."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("leakgauge")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"

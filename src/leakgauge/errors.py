"""What Leakgauge raises on purpose. Each message is one line a stranger can act on."""

from __future__ import annotations

_LONGEST = 600  # characters of what came that a message repeats


class LeakgaugeError(Exception):
    """Root of every error that Leakgauge raises on purpose."""


class BadInput(LeakgaugeError, ValueError):
    """Something the user gave cannot be used; the command line turns it into exit code 2.

    The message names what is wrong, what is allowed, what came, and what to do.
    """

    def __init__(self, what: str, *, allowed: str, got: object, do: str) -> None:
        super().__init__(_one_line(f"{what} must be {allowed}, got {_short(str(got))}; {do}"))


class Unreadable(LeakgaugeError):
    """A file does not hold what its name says; whoever asked for it adds which file that is and what to do."""


class HiddenFact(LeakgaugeError):
    """An attack asked for a fact that the threat model does not reveal."""


class NotApplicable(LeakgaugeError):
    """An attack or defense does not fit this model; says why and what would fit."""


class MissingExtra(LeakgaugeError):
    """An optional part is not installed; the message says how to get it."""


class Untrusted(LeakgaugeError):
    """An encrypted message does not belong to this key, round or sum, or was changed; nothing of it is used."""


def _short(text: str) -> str:
    """A damaged file can have a megabyte where a word is expected."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _one_line(text: str) -> str:
    return " ".join(text.split())

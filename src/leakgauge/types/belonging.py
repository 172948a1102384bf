"""Whether a saved update came from the batch that stands beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Belonging:
    """What replaying the client says. An update that the batch cannot have given is refused and never gets here."""

    sure: bool  # False: other batches explain the update as well, so a recovery that is not there shows nothing
    flag: str = ""  # id of the flag to raise, if any
    why: str = ""  # in words, where it is not sure

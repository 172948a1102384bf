"""What fills a cell without an attack: a federated training, an error, an accountant's figure."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from leakgauge.audit.run import Watch

Figures = Mapping[str, tuple[float, ...]]  # the name of a figure (see `_figures`) -> its sample


@dataclass(frozen=True, kw_only=True)
class Measurement(ABC):
    """Its fields are all it depends on; it is done once for each seed and kept under a key of them."""

    unit: ClassVar[str]  # what its size counts: "rounds"

    seed: int = 0

    @property
    @abstractmethod
    def size(self) -> int:
        """How much stands behind its figures. A smaller measurement never replaces a larger one."""

    @abstractmethod
    def resized(self, size: int) -> Self:
        """The same with so much behind it: what `--quick` and `--size` ask for."""

    @property
    @abstractmethod
    def title(self) -> str:
        """One line for `--list` and the progress bar."""

    @property
    def setting(self) -> str:
        """What a reader has to know beside the size, to stand behind it in a table."""
        return ""

    @abstractmethod
    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        """Do it; raises a `LeakgaugeError` where that is not possible here."""

    def as_dict(self) -> dict[str, Any]:
        return {"measurement": type(self).__name__, **dataclasses.asdict(self)}

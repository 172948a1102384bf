"""JSON that somebody else may have written: nested too deep, cut off or in another encoding, it is refused alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from leakgauge.errors import Unreadable
from leakgauge.reading.files import regular


def read_json(path: Path) -> Any:
    """What the file holds. A file that is not there is for the caller to notice before."""
    try:
        return json.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(type(error).__name__) from error

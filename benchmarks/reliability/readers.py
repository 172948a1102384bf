"""Every reader of files that come from elsewhere: a small valid file, how the program reads it, and handmade traps."""

from __future__ import annotations

import archives
import files_of_data
import files_of_runs
import files_of_tensors
from reader import Reader

READERS: tuple[Reader, ...] = (
    *files_of_data.READERS,
    *files_of_tensors.READERS,
    *files_of_runs.READERS,
    *archives.READERS,
)

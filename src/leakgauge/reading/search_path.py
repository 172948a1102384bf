"""Where modules are looked for. An auditor is run in other people's folders: those come last, or not at all.

Python puts the working folder first for `python -m` and for the processes it spawns, so that a file named `random.py`
would be run in place of the library's.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_MACHINERY = ("importlib", "_frozen_importlib")
_OURS = __name__.partition(".")[0]
SAFE = "PYTHONSAFEPATH"  # Python's own switch, for processes that are started from here
_UNPICKLERS = {  # they import by a name that own code gave them
    "pickle",
    "multiprocessing.connection",
    "multiprocessing.queues",
    "multiprocessing.spawn",
    "cloudpickle.cloudpickle",
    "joblib.numpy_pickle",
    "ray._private.serialization",
    "ray.cloudpickle.cloudpickle",
    "torch.serialization",
}
_INSTALLED = tuple({os.path.realpath(sysconfig.get_path(key)) + os.sep for key in ("stdlib", "purelib", "platlib")})


class OwnCode:
    """Finds modules in a folder for code that lies there and for us, after everything installed.

    Libraries that only try whether a module is there (`try: import colorama`) find nothing here.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's question to everyone in `sys.meta_path`; a package's own modules are found by Python itself."""
        if path is not None or _asked_by_a_library():
            return None
        return PathFinder.find_spec(name, [self.folder], target)


def _asked_by_a_library() -> bool:
    """Whether the import statement that is being carried out stands in installed code that is not ours."""
    frame = sys._getframe(1)
    asker = frame.f_globals.get("__name__", "")
    while frame.f_back is not None and (asker == __name__ or asker.partition(".")[0] in _MACHINERY):
        frame = frame.f_back
        asker = frame.f_globals.get("__name__", "")
    if asker.partition(".")[0] == _OURS or asker in _UNPICKLERS:
        return False
    file = frame.f_code.co_filename
    in_packages = not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
    return file.startswith("<frozen") or os.path.realpath(file).startswith(_INSTALLED) or in_packages


def look_here_last(folder: str | None = None) -> None:
    """For code that the user named: what it imports may lie beside it, but replaces nothing that is installed."""
    folder = os.getcwd() if folder is None else folder
    known = (finder.folder for finder in sys.meta_path if isinstance(finder, OwnCode))
    if folder not in (*sys.path, *known):
        sys.meta_path.append(OwnCode(folder))


@contextmanager
def safe_children() -> Iterator[None]:
    """Processes that are started meanwhile do not look in the working folder first."""
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE]
        else:
            os.environ[SAFE] = before

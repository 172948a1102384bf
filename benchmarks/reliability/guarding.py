"""What a reader does while it reads: programs it starts, files it writes elsewhere, memory it takes."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from leakgauge.errors import LeakgaugeError

_RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn")
_REACHES = ("socket.connect", "socket.bind", "urllib.Request", "ctypes.dlopen")
_WRITES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.chmod")
MOST_MEMORY = 512 << 20  # bytes of address space that reading one small file may add


@dataclass
class Watch:
    """What is forbidden happened here; a folder of its own and the scratch folder may be written to."""

    allowed: tuple[str, ...]
    seen: list[str] = field(default_factory=list)


_now: list[Watch] = []  # the watch that is on, if any: a hook can be put in, never taken out
_hooked: list[bool] = []


@contextmanager
def watched(folder: Path) -> Iterator[Watch]:
    """Notes programs started, connections made, text executed and files changed outside `folder`."""
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    watch = Watch((str(folder.resolve()), str(Path(tempfile.gettempdir(), "leakgauge-scratch"))))
    _now.append(watch)
    try:
        yield watch
    finally:
        _now.remove(watch)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _now:
        return
    watch = _now[-1]
    if event == "subprocess.Popen" and arguments[0] == "git":
        return  # our own question for the commit that a result belongs to
    if event in _RUNS or event in _REACHES:
        watch.seen.append(f"{event} {arguments[:1]!r}")
    elif event == "exec" and isinstance(arguments[0], CodeType) and arguments[0].co_filename == "<string>":
        if sys._getframe(1).f_globals.get("__name__") != "typing":  # that reads the annotations of our own classes
            watch.seen.append("a text was executed")
    elif event == "open" and _for_writing(arguments) and not _inside(watch, arguments[0]):
        watch.seen.append(f"{arguments[0]!r} was opened for writing")
    elif event in _WRITES and not all(_inside(watch, a) for a in _paths(event, arguments)):
        watch.seen.append(f"{event} {arguments[:2]!r}")


def _paths(event: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is changed; nothing where it is named from an open folder, which was opened under the same eyes."""
    two = event in ("os.rename", "os.link", "os.symlink")
    if any(isinstance(a, int) and a >= 0 for a in arguments[2 if two or event in ("os.mkdir", "os.chmod") else 1 :]):
        return ()
    return arguments[: 2 if two else 1]


def _for_writing(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return bool(set(mode) & set("wax+"))
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _inside(watch: Watch, path: object) -> bool:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return isinstance(path, int)  # an open descriptor was opened under the same eyes
    full = os.path.realpath(os.fsdecode(path))
    return full == os.devnull or any(full == a or full.startswith(a + os.sep) for a in watch.allowed)


def offence(read: Callable[[Path], object], folder: Path) -> tuple[str | None, bool]:
    """What went wrong while `read` read what lies in `folder`, if anything did; and whether it refused it in order."""
    _forget_peak()
    before, crash, refused = _memory(), None, False
    with watched(folder) as watch:
        try:
            read(folder)
        except LeakgaugeError as error:
            refused = True
            if "\n" in str(error):
                crash = "a refusal of several lines"
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # panics of extensions and SystemExit are no Exception
            crash = f"{type(error).__name__} at {_where(error)}"
    if crash is None and watch.seen:
        crash = watch.seen[0]
    if crash is None and (more := max(map(int.__sub__, _memory(), before))) > MOST_MEMORY:
        crash = f"more than {MOST_MEMORY >> 20} MB of memory" if more < 1 << 30 else "more than 1 GB of memory"
    return crash, refused and crash is None


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f"{os.sep}leakgauge{os.sep}" in f.filename] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].name}"


def _memory() -> tuple[int, int]:
    """Bytes resident and bytes of address space, each at its most; zeros where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            told = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("VmHWM", "VmPeak"))}
    except OSError:
        return 0, 0
    return int(told["VmHWM"]) << 10, int(told["VmPeak"]) << 10


def _forget_peak() -> None:
    """Count what is resident from here on; address space cannot be counted anew."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass

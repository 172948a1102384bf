"""An unpickler that runs nothing: it knows a handful of names, and what they stand for is ours.

A pickle is a program: it names functions, calls them and changes the objects they give. Here a name that is not
expected ends the reading, expected ones stand for our own functions, and only a `Buildable` may be changed. It is the
unpickler in Python, not the one in C: there, one wrong byte can ask for gigabytes of memo table.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from leakgauge.errors import Unreadable


class Buildable:
    """An object whose pickle comes in two parts; `build` takes the second."""

    def build(self, state: Any) -> None:
        raise NotImplementedError


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)  # ours differs in one

    def __init__(self, content: bytes, names: Mapping[tuple[str, str], Any], stored: Callable[[Any], Any]) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._names, self._stored = names, stored

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._names:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused and was not run")
        return self._names[module, name]

    def persistent_load(self, pid: Any) -> Any:
        return self._stored(pid)

    def load_build(self) -> None:
        state = self.stack.pop()  # type: ignore[attr-defined]
        built = self.stack[-1]  # type: ignore[attr-defined]
        if not isinstance(built, Buildable):
            raise pickle.UnpicklingError(f"it changes a {type(built).__name__}, which is refused")
        built.build(state)

    dispatch[pickle.BUILD[0]] = load_build


def _nothing_stored(pid: Any) -> Any:  # noqa: ARG001
    raise pickle.UnpicklingError("it refers to something outside itself")


def unpickle(
    content: bytes, names: Mapping[tuple[str, str], Any], stored: Callable[[Any], Any] = _nothing_stored
) -> Any:
    """What the pickle holds. `names` are the names it may use; `stored` gives what it keeps outside itself."""
    try:
        return _Unpickler(content, names, stored).load()
    except Unreadable:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise Unreadable(f"{type(error).__name__}: {error}") from error

"""Finds attacks, defenses, models ... by walking their folders: no list to edit, a new file is enough.

A public module of these folders may define several things; each concrete class (or instance, for metrics and data sets)
with a `name` is found.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.reading.search_path import look_here_last
from leakgauge.settings import Settings, unknown_name
from leakgauge.types import Attack, Defense

FOLDERS = {  # packages by kind
    "attacks": ("attacks", "servers"),
    "defenses": ("defenses",),
    "models": ("models",),
    "data": ("data",),
    "metrics": ("metrics",),
    "aggregators": ("federation.aggregators",),
    "encryptions": ("federation.encryption",),
}
OWN = "leakgauge_own_"  # how the name of a module begins that was made of the user's own file


@cache
def find(kind: str) -> dict[str, Any]:
    """Everything of one kind by its command-line name, sorted: `find("attacks")["dlg"]`."""
    found: dict[str, Any] = {}
    for folder in FOLDERS[kind]:
        package = importlib.import_module(f"leakgauge.{folder}")
        for module_info in pkgutil.iter_modules(package.__path__):
            if module_info.name.startswith("_"):
                continue
            module = importlib.import_module(f"{package.__name__}.{module_info.name}")
            for thing in vars(module).values():
                name = _public_name(thing, module.__name__)
                if name is not None and found.setdefault(name, thing) is not thing:
                    raise LeakgaugeError(f"two {kind} are called {name!r}: {found[name]} and {thing}")
    return dict(sorted(found.items()))


def get(kind: str, name: str) -> Any:
    """One thing by name; an unknown name is refused with the nearest known one."""
    known = find(kind)
    if name not in known:
        raise unknown_name("data set" if kind == "data" else kind.removesuffix("s"), name, known)
    return known[name]


def baselines() -> frozenset[str]:
    """The attacks that never look at an update: the floors beside every score."""
    return frozenset(name for name, attack in find("attacks").items() if attack.baseline)


def build(kind: str, spec: str) -> Any:
    """An attack, defense or model from `name:field=value,...`, or from `file.py:Class:field=value,...`."""
    if is_own(spec):
        path, _, rest = spec.partition(":")
        thing_name, _, fields = rest.partition(":")
        cls = own(f"{path}:{thing_name}")
        base = {"attacks": Attack, "defenses": Defense}.get(kind, Settings)
        if not (inspect.isclass(cls) and issubclass(cls, base)):
            do = "see docs: adding an attack"
            raise BadInput(f"{spec!r}", allowed=f"a class of leakgauge {kind}", got=repr(cls), do=do)
        _refuse_incomplete(cls, base)
        return cls.from_text(fields)
    name, _, fields = spec.partition(":")
    return get(kind, name).from_text(fields)


def _refuse_incomplete(cls: type[Settings], base: type[Settings]) -> None:
    """A class of the user's own must set what its base only declares, before anything is run with it."""
    hints = {n: hint for owner in base.__mro__ for n, hint in vars(owner).get("__annotations__", {}).items()}
    declared = [n for n, hint in hints.items() if "ClassVar" in str(hint) and not hasattr(base, n)]
    missing = [n for n in declared if not hasattr(cls, n)] + sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        allowed, got = f"one that sets {', '.join(declared)}", f"one without {missing[0]!r}"
        do = "set it in the class body; see docs: adding an attack"
        raise BadInput(f"class {cls.__name__!r}", allowed=allowed, got=got, do=do)


def is_own(spec: str) -> bool:
    """Does `spec` point at the user's own code: `file.py:thing` or `package.module:thing`?"""
    head, sep, _ = spec.partition(":")
    return head.endswith(".py") or (bool(sep) and "." in head and "/" not in head)


def is_users(thing: Settings) -> bool:
    """Was it written by the user, and is no part of Leakgauge?"""
    return type(thing).__module__.partition(".")[0] != __package__


def own(spec: str) -> Callable[..., Any]:
    """The user's own factory or class from `file.py:thing` or `package.module:thing`."""
    head, _, thing = spec.partition(":")
    do = "write FILE.py:FACTORY or PACKAGE.MODULE:FACTORY"
    if not thing:
        raise BadInput(f"{spec!r}", allowed="a file or module and a name in it", got=repr(spec), do=do)
    if head.endswith(".py") and not Path(head).is_file():
        raise BadInput(f"file {head!r}", allowed="an existing Python file", got="no such file", do=do)
    look_here_last()
    try:
        module = _module_of(Path(head)) if head.endswith(".py") else importlib.import_module(head)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # a script without a guard may end the program
        got = f"{type(error).__name__}: {error}"
        raise BadInput(f"{head!r}", allowed="importable", got=got, do="correct it, or see --debug") from error
    if not hasattr(module, thing):
        raise unknown_name(f"name in {head!r}", thing, [n for n in vars(module) if not n.startswith("_")])
    found: Callable[..., Any] = getattr(module, thing)
    return found


def arguments(what: str, fields: str) -> dict[str, Any]:
    """The arguments behind the user's own factory, `key=value,...`."""
    found: dict[str, Any] = {}
    for part in filter(None, fields.split(",")):
        key, sep, value = part.partition("=")
        if not sep or not key.strip().isidentifier():
            raise BadInput(what, allowed="key=value,... behind it", got=repr(part), do="add key=")
        found[key.strip()] = _parse(value.strip())
    return found


def _parse(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _module_of(path: Path) -> ModuleType:
    loader_spec = importlib.util.spec_from_file_location(f"{OWN}{path.stem}", path)
    assert loader_spec is not None
    assert loader_spec.loader is not None
    module = importlib.util.module_from_spec(loader_spec)
    sys.modules[loader_spec.name] = module  # dataclasses look their module up here
    loader_spec.loader.exec_module(module)
    return module


def _public_name(thing: Any, module_name: str) -> str | None:
    """The command-line name of a thing that `module_name` itself defines; None for anything else."""
    if inspect.isclass(thing):
        mine = issubclass(thing, Settings) and f"{thing.__module__}.".startswith(f"{module_name}.")
        return thing.__dict__.get("name") if mine and not thing.__name__.startswith("_") else None
    owner = getattr(type(thing), "catalogued", False)
    return str(thing.name) if owner else None

"""What the catalogue holds, read from the source text: names, summaries, papers, needs and fields. Nothing is imported.

`outline.of("attacks")` says the same as `catalog.find("attacks")` and takes a fraction of the time that importing
torch takes. The reader knows the few ways in which the catalogue's modules are written: constants, other names, joined
texts, and functions that return a setting or a data set. Where a module needs more, the catalogue is asked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from leakgauge import catalog
from leakgauge.settings import Settings
from leakgauge.types import Fact

_ROOT = Path(__file__).parent
_TEXTS = ("name", "summary", "paper")


@dataclass(frozen=True)
class FieldOutline:
    """One field that a user may set."""

    name: str
    default: Any
    help: str


@dataclass(frozen=True)
class Outline:
    """One thing of the catalogue, without its code."""

    name: str
    summary: str
    paper: str = ""
    needs: tuple[str, ...] = ()  # facts, of an attack
    fields: tuple[FieldOutline, ...] = ()


class Unclear(Exception):
    """The source computes what the reader does not follow."""


@cache
def of(kind: str) -> dict[str, Outline]:
    """Everything of one kind by its command-line name, sorted."""
    try:
        return read(kind)
    except Unclear:
        return imported(kind)


def read(kind: str) -> dict[str, Outline]:
    """From the source text alone."""
    found: dict[str, Outline] = {}
    for folder in catalog.FOLDERS[kind]:
        parent = f"leakgauge.{folder}"
        for path in sorted(_path_of(parent).parent.iterdir()):
            public = not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").is_file())
            if public:
                found |= {each.name: each for each in _Source.of(f"{parent}.{path.stem}").catalogued()}
    return dict(sorted(found.items()))


def imported(kind: str) -> dict[str, Outline]:
    """From the things themselves."""
    found: dict[str, Outline] = {}
    for name, thing in catalog.find(kind).items():
        settable = fields(thing) if isinstance(thing, type) and issubclass(thing, Settings) else ()
        own = tuple(FieldOutline(f.name, f.default, f.metadata.get("help", "")) for f in settable)
        needs = tuple(sorted(fact.value for fact in getattr(thing, "needs", ())))
        found[name] = Outline(name, thing.summary, getattr(thing, "paper", ""), needs, own)
    return found


def instance(module: str, name: str) -> Outline:
    """What a module-level call such as `RECIPE = Recipe(name=..., summary=..., paper=...)` says of itself."""
    source = _Source.of(module)
    home, call, given = source.followed(source.node(name), {})
    said = {key: home.value(node, given) for key, node in home.arguments(call).items() if key in _TEXTS}
    return Outline(**said)


def _path_of(module: str) -> Path:
    path = _ROOT.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if (path / "__init__.py").is_file() else path.with_suffix(".py")


@dataclass(frozen=True)
class _Source:
    """One source file: what stands at its top level, by name."""

    name: str
    nodes: Mapping[str, ast.AST]  # classes, functions, and the values of assignments
    imports: Mapping[str, tuple[str, str]]  # name here -> (module, name there)

    @staticmethod
    @cache
    def of(name: str) -> _Source:
        try:
            tree = ast.parse(_path_of(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise Unclear(name) from error
        nodes: dict[str, ast.AST] = {}
        imports: dict[str, tuple[str, str]] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                nodes[node.name] = node
            elif isinstance(node, ast.ImportFrom):
                imports |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
            else:
                nodes |= dict(_assigned(node))
        return _Source(name, nodes, imports)

    def node(self, name: str) -> ast.AST:
        if name not in self.nodes:
            raise Unclear(f"{self.name}: {name}")
        return self.nodes[name]

    def home_of(self, name: str) -> tuple[_Source, str]:
        """The module that defines a name, and what it is called there."""
        if name in self.nodes or name not in self.imports:
            return self, name
        module, there = self.imports[name]
        if not module.startswith("leakgauge."):
            raise Unclear(f"{self.name}: {name}")
        return _Source.of(module).home_of(there)

    def called(self, call: ast.AST) -> tuple[_Source, ast.Call, ast.AST | None, str]:
        """A call, the module and source of what it calls (None where a name is built in), and its name there."""
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise Unclear(ast.dump(call))
        home, name = self.home_of(call.func.id)
        return home, call, home.nodes.get(name), name

    def catalogued(self) -> Iterator[Outline]:
        """The public things of this module or package that have a command-line name, as `catalog.find` sees them."""
        for name in [*self.nodes, *self.imports]:
            module, there = self.imports.get(name, (self.name, name))
            if not f"{module}.".startswith(f"{self.name}.") or there.startswith("_"):
                continue  # what a module borrows from another is listed there
            home, there = self.home_of(name)
            node = home.nodes.get(there)
            if isinstance(node, ast.ClassDef):
                if (found := home._class(node)) is not None:
                    yield found
            elif isinstance(node, ast.Call) and home._makes_catalogued(node):
                yield instance(home.name, there)

    def _class(self, node: ast.ClassDef) -> Outline | None:
        own = {target: value for target, _, value in _declared(node) if value is not None}
        line = list(self._line(node))
        if "name" not in own or line[-1][1].name != "Settings":
            return None
        said: dict[str, Any] = {}
        settings: dict[str, FieldOutline] = {}
        for home, cls in reversed(line):  # what is nearer replaces what is farther, and a field keeps its place
            for target, annotation, value in _declared(cls):
                if "ClassVar" not in annotation:
                    if value is None:
                        raise Unclear(f"{cls.name}.{target}")
                    settings[target] = home._field(target, value)
                elif value is not None and target in (*_TEXTS, "needs"):
                    said[target] = home.value(value)
        needs = tuple(sorted(fact.value for fact in said.pop("needs", ())))
        return Outline(**said, needs=needs, fields=tuple(settings.values()))

    def _line(self, node: ast.ClassDef) -> Iterator[tuple[_Source, ast.ClassDef]]:
        """A class and those that it derives from, nearest first."""
        yield self, node
        for base in node.bases:
            name = base.id if isinstance(base, ast.Name) else ""  # `nn.Module` and the like are not ours
            if name in self.nodes or self.imports.get(name, ("",))[0].startswith("leakgauge."):
                home, name = self.home_of(name)
                found = home.node(name)
                if isinstance(found, ast.ClassDef):
                    yield from home._line(found)

    def _field(self, name: str, value: ast.AST) -> FieldOutline:
        """`name: float = setting(0.1, "help")`, also where a function returns the setting."""
        home, call, given = self.followed(value, {})
        where = home.arguments(call)
        return FieldOutline(name, home.value(where["default"], given), home.value(where["help"], given))

    def _makes_catalogued(self, call: ast.Call) -> bool:
        """Does this call make a data set or a metric?"""
        try:
            home, last, _ = self.followed(call, {})
            _, _, cls, _ = home.called(last)
        except Unclear:
            return False
        return isinstance(cls, ast.ClassDef) and any(target == "catalogued" for target, _, _ in _declared(cls))

    def followed(self, node: ast.AST, given: Mapping[str, Any]) -> tuple[_Source, ast.Call, Mapping[str, Any]]:
        """Through functions that return a call: that call, where it stands, and the values of the names in it."""
        home, call, function, name = self.called(node)
        if not isinstance(function, ast.FunctionDef) or name == "setting":
            return self, call, given
        inside: dict[str, ast.AST] = dict(pair for statement in function.body for pair in _assigned(statement))
        last = function.body[-1]
        returned: ast.AST | None = last.value if isinstance(last, ast.Return) else None
        if isinstance(returned, ast.Name):
            returned = inside.get(returned.id)
        if returned is None:
            raise Unclear(f"{home.name}: {name}")
        values = {key: self.value(value, given) for key, value in self.arguments(node).items()}
        return home.followed(returned, values)

    def arguments(self, call: ast.AST) -> Mapping[str, ast.AST]:
        """The arguments of a call by name: of a function's own, or of a dataclass's fields."""
        _, made, callee, name = self.called(call)
        if isinstance(callee, ast.FunctionDef):
            names = [a.arg for a in callee.args.args]
        elif isinstance(callee, ast.ClassDef):
            names = [target for target, annotation, _ in _declared(callee) if "ClassVar" not in annotation]
        else:
            raise Unclear(name)
        return dict(zip(names, made.args, strict=False)) | {k.arg: k.value for k in made.keywords if k.arg is not None}

    def value(self, node: ast.AST, given: Mapping[str, Any] | None = None) -> Any:
        """What an expression comes to; `given` are the values of names inside a function."""
        scope = {"Fact": Fact, "frozenset": frozenset, **(given or {})}
        for name in (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id not in scope):
            home, there = self.home_of(name)
            scope[name] = home.value(home.node(there))
        try:
            return eval(compile(ast.Expression(node), self.name, "eval"), {"__builtins__": {}}, scope)  # type: ignore[arg-type]
        except Exception as error:
            raise Unclear(f"{self.name}: {ast.unparse(node)}") from error


def _declared(node: ast.ClassDef) -> Iterator[tuple[str, str, ast.AST | None]]:
    """Name, annotation and value of what a class body declares; without an annotation it belongs to the class."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id, ast.unparse(each.annotation), each.value
        elif isinstance(each, ast.Assign):
            yield from ((t.id, "ClassVar", each.value) for t in each.targets if isinstance(t, ast.Name))


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names that a statement gives a value, and that value; `A, B = BOTH = ("a", "b")` gives three."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        yield node.target.id, node.value
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            yield from ((name.id, value) for name, value in pairs if isinstance(name, ast.Name))

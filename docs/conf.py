"""Sphinx settings, and the tables that are written from the code at build time.

A table in these pages that lists attacks, defenses, models, data sets, metrics, flags, threat models, options or
public names is generated into `_generated/` when the documentation is built, so that it cannot fall behind the code.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import leakgauge
from leakgauge import catalog, testing
from leakgauge.cli.audit import DEFAULT_DEFENSES, TEMPLATE
from leakgauge.cli.commands import every, loaded
from leakgauge.federation.poisoning import Poison
from leakgauge.lab import recipes
from leakgauge.lab.reproduce import measured
from leakgauge.lab.words.training import Reading
from leakgauge.metrics.criterion import CRITERIA
from leakgauge.setup.capability import INFORMED, NO_HELP, NO_RULE, capabilities, capability
from leakgauge.setup.suites import SECONDS, played_in, spec_in
from leakgauge.types import ORACLES, THREAT_MODELS, Client, Fact, Partition, TamperingServer, Training
from leakgauge.verdict.flags import FLAGS

project = "Leakgauge"
author = "The Leakgauge developers"
project_copyright = author
version = release = leakgauge.__version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated/*.md"]  # other pages include these; folders below hold whole pages
html_theme = "furo"
html_title = f"Leakgauge {release}"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
nitpicky = True
smartquotes = False  # two dashes are an option, not a dash

DOCS = Path(__file__).parent
GENERATED = DOCS / "_generated"
sys.path[:0] = [str(DOCS), str(DOCS.parent / "tools")]  # modules of this folder, and the order of packages


def generate() -> None:
    """Write every generated table; pages include them."""
    GENERATED.mkdir(exist_ok=True)
    pages = {
        "attacks": _attacks(),
        "capabilities": _capabilities(),
        "ways": _ways(),
        "attack-fields": _fields_of("attacks"),
        "defenses": _overview("defenses"),
        "defense-fields": _fields_of("defenses"),
        "aggregators": _overview("aggregators"),
        "aggregator-fields": _fields_of("aggregators"),
        "encryptions": _overview("encryptions"),
        "encryption-fields": _fields_of("encryptions"),
        "poison": _fields(Poison),
        "reading": _fields(Reading),
        "models": _overview("models"),
        "model-fields": _fields_of("models"),
        "data": _data(),
        "data-files": _data_files(),
        "metrics": _metrics(),
        "threat-models": _threat_models(),
        "facts": _facts(),
        "flags": _table(["flag", "reason", "remedy"], [[_code(f.id), f.reason, f.remedy] for f in FLAGS.values()]),
        "criterion": _criterion(),
        "two-gaussians": _two_gaussians(),
        "local": _fields(Client),
        "partition": _fields(Partition),
        "training": _fields(Training),
        "defaults": _defaults(),
        "report-keys": _report_keys(),
        "suites": _suites(),
        "api": _api(),
        "modules": _modules("settings", "matching"),
        "testing": _testing(),
        "scenario": f"```toml\n{TEMPLATE.read_text()}```\n",
        "commands": _command_list(),
        "packages": _packages(),
        "way": _way(),
        **{f"cli-{name}": _options(command) for name, command in _commands().items()},
    }
    for kind in ("attacks", "defenses"):
        pages |= {f"{kind}/{name}": _page(kind, name, thing) for name, thing in catalog.find(kind).items()}
    pages |= {f"recipes/{name}": _recipe(name) for name in recipes.find() if name != "leaderboard"}
    for old in GENERATED.glob("*/*.md"):  # of something that was renamed or removed
        if old.relative_to(GENERATED).with_suffix("").as_posix() not in pages:
            old.unlink(missing_ok=True)
    for name, text in pages.items():
        path = GENERATED / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _packages() -> str:
    """The picture of packages and imports, in a file of its own; in words what each holds and imports."""
    import layers
    from package_picture import drawn

    imports = layers.without_implied(layers.package_graph())
    order = [part for part in layers.ORDER if part in imports and part not in ("entry", "__main__")]
    (GENERATED / "packages.svg").write_text(drawn(order, imports), encoding="utf-8")
    rows = []
    for part in reversed(order):
        folder = layers.SOURCE / part
        home = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        below = sorted(imports[part], key=layers.RANK.__getitem__, reverse=True)
        imported = f" Imports {_codes(below)}." if below else ""
        rows.append(f"{_code(part)}\n: {_prose(layers.said_by(home))}.{imported}\n")
    return "\n".join(rows)


def _way() -> str:
    """The modules between a command and what an attack does, as `tests/contract/test_one_audit.py` holds them."""
    import layers

    tree = ast.parse((DOCS.parent / "tests" / "contract" / "test_one_audit.py").read_text(encoding="utf-8"))
    (way,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "WAY"
    )
    paths = [layers.SOURCE.parent / (name.replace(".", "/") + ".py") for name in way]
    return "".join(f"1. {_code(n)}: {_prose(layers.said_by(path))}.\n" for n, path in zip(way, paths, strict=True))


def _page(kind: str, name: str, thing: Any) -> str:
    """One attack or defense: what it is, what it has to know, its fields, and what becomes of it against each other."""
    home = inspect.getmodule(thing)
    texts = [_prose(inspect.cleandoc(t)) for t in (home.__doc__ if home else "", thing.__doc__) if t]
    parts = [f"# {name}", f"{_plain(thing.summary[0].upper() + thing.summary[1:])}.", f"From: {_plain(thing.paper)}."]
    if kind == "attacks":
        needs = _codes(sorted(f.value for f in thing.needs)) or "nothing besides the model and the update"
        texts.append(f"Needs to know: {needs}; see [threat models](../../explanation/threat-models.md).")
    parts += [*texts, "## Fields", _fields(thing) or "None."]
    other = "defenses" if kind == "attacks" else "attacks"
    rows = []
    for rival, rival_thing in catalog.find(other).items():
        attack, defense = (thing, rival_thing) if kind == "attacks" else (rival_thing, thing)
        found = capability(attack(), defense())
        weaker = [f"{_code(way)} (weaker, by `--assume` alone)" for way in defense().weaker_ways(attack())]
        if found.verdict == INFORMED:
            ways = [_code(way) if way else "one way" for way in found.ways]
            rows.append([_link(other, rival), "; ".join([*ways, *weaker])])
    heads = [other.removesuffix("s"), "how an attacker who knows the defense uses that"]
    known = _table(heads, rows) if rows else "Nothing here is changed by it."
    return "\n\n".join([*parts, "## Knowing the defense", known])


def _recipe(name: str) -> str:
    """The page that `leakgauge lab reproduce` wrote of a recipe."""
    return f"```{{include}} ../../../results/{name}/README.md\n:relative-images:\n```\n"


_SIGNS = {NO_HELP: "–", NO_RULE: "?"}  # in the table of all; where one is informed stands the number of ways


def _capabilities() -> str:
    table = capabilities()
    names = list(catalog.find("defenses"))
    rows = [
        [_code(attack), *(_SIGNS.get(row[name].verdict, str(len(row[name].ways))) for name in names)]
        for attack, row in table.items()
    ]
    return _table(["attack", *(_code(name) for name in names)], rows)


def _ways() -> str:
    """The ways that have a name, by defense."""
    rows = []
    attacks = [attack() for attack in catalog.find("attacks").values()]
    for name, defense in catalog.find("defenses").items():
        named, weaker = (
            [w for w in dict.fromkeys(w for attack in attacks for w in ways(attack)) if w]
            for ways in (defense().ways, defense().weaker_ways)
        )
        if named:
            rows.append([_code(name), _codes(named), _codes(weaker) or "–"])
    return _table(["defense", "ways, each of them played", "weaker ways, which `--assume` alone plays"], rows)


def _link(kind: str, name: str) -> str:
    return f"[{name}](../{kind}/{name}.md)"


def _prose(text: str) -> str:
    """Docstrings are plain text with code in backticks."""
    return "".join(p if p.startswith("`") else _plain(p) for p in re.split(r"(`[^`]*`)", text))


def _overview(kind: str) -> str:
    rows = [[_code(name), thing.summary, thing.paper] for name, thing in catalog.find(kind).items()]
    return _table(["name", "what it is", "from"], rows)


def _attacks() -> str:
    rows = [
        [_code(name), attack.summary, _codes(sorted(f.value for f in attack.needs)), attack.paper]
        for name, attack in catalog.find("attacks").items()
    ]
    return _table(["name", "what it does", "needs to know", "from"], rows)


def _data() -> str:
    rows = [
        [_code(name), source.summary, "yes" if source.embedded else "no", _samples(source.samples), source.paper]
        for name, source in catalog.find("data").items()
    ]
    return _table(["name", "what it is", "embedded", "samples (public, private)", "from"], rows)


def _samples(counts: tuple[int, int] | None) -> str:
    return "" if counts is None else f"{counts[0]}, {counts[1]}"


def _data_files() -> str:
    rows = [
        [_code(name), ", ".join(dict.fromkeys(_code(f.paths[0]) for f in source.files if not f.optional))]
        for name, source in catalog.find("data").items()
        if source.files
    ]
    return _table(["name", "looked for in the data folder"], rows)


def _metrics() -> str:
    rows = [
        [
            _code(name),
            metric.summary,
            "higher" if metric.higher_is_better else "lower",
            f"{metric.low:g} to {metric.high:g}",
            ", ".join(metric.applies_to),
            metric.paper,
        ]
        for name, metric in catalog.find("metrics").items()
    ]
    return _table(["name", "what it is", "more recovered is", "range", "for", "from"], rows)


def _report_keys() -> str:
    """Every key of a report, from its JSON Schema: one table for the report itself and one for each object in it."""
    text = (Path(leakgauge.__file__).parent / "report" / "report.schema.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    parts, order = {"The report": schema} | schema["$defs"], ["The report"]
    for name in order:  # it grows: an object is explained behind the one that names it first
        found = dict.fromkeys(re.findall(r"#/\$defs/(\w+)", json.dumps(parts[name] | {"$defs": None})))
        order += [n for n in found if n not in order]
    lines = []
    for name in order:
        part = parts[name]
        keys = part["properties"].items()
        rows = [[_code(key), _holds(value), value.get("description", "")] for key, value in keys]
        if "$ref" in (more := part.get("additionalProperties", {})):
            rows.append(["METRIC_REDUCTION", _holds(more), "one for each metric: `psnr_mean_per_image`"])
        lines += [f"### {name}", f"{_plain(part['description'])}.", _table(["key", "holds", "meaning"], rows)]
    return "\n\n".join(lines)


def _holds(value: Mapping[str, Any]) -> str:
    """What a key of a JSON Schema holds, in words: "list of `Finding`", "number or null"."""
    if "const" in value:
        return str(value["const"])
    if "$ref" in value:
        return _code(value["$ref"].rpartition("/")[2])
    if "anyOf" in value:
        return " or ".join(_holds(option) for option in value["anyOf"])
    if value["type"] == "array":
        return f"list of {_holds(value['items'])}"
    if value["type"] == "object":
        return f"object of {_holds(value['additionalProperties'])}"
    kinds = value["type"] if isinstance(value["type"], list) else [value["type"]]
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    return " or ".join(words.get(kind, kind) for kind in kinds)


def _threat_models() -> str:
    rows = [[_code(t.name), t.summary, t.may_change, t.paper] for t in THREAT_MODELS.values()]
    return _table(["threat model", "who it is", "may change in the model", "from"], rows)


def _facts() -> str:
    models = list(THREAT_MODELS.values())
    rows = [
        [_code(fact.value), *("oracle only" if fact in ORACLES else "yes" if fact in t.facts else "–" for t in models)]
        for fact in Fact
    ]
    return _table(["fact", *(_code(t.name) for t in models)], rows)


def _criterion() -> str:
    rows = [[kind, f"{_code(rule.metric)} {rule.symbol} {rule.threshold:g}"] for kind, rule in CRITERIA.items()]
    return _table(["kind of data", "a record counts as recovered if"], rows)


def _two_gaussians() -> str:
    """The measured toy: points gained over FedAvg, and the first client's weight over another's."""
    folder = Path(__file__).parents[1] / "results" / "ren2022fedboosting"
    found = {(e.row, e.column, e.statistic): e for e in measured.read(folder) if e.table == "4.2"}
    cases = list(dict.fromkeys(case for _, case, _ in found))
    rows = []
    for aggregator in dict.fromkeys(row for row, _, _ in found):
        row = [_code(aggregator)]
        for case in cases:
            accuracy, gain, ratio = (
                found.get((aggregator, case, name)) for name in ("accuracy", "accuracy_gained", "weight_ratio")
            )
            assert accuracy is not None
            text = f"{100 * accuracy.value:.1f} %"
            if gain is not None:
                text += f"; {100 * gain.value:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
            row.append(text + (f"; weight {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else ""))
        rows.append(row)
    return _table(["aggregator", *cases], rows)


def _defaults() -> str:
    return _table(
        ["what", "default of a bare `leakgauge audit`"],
        [["suite", "`quick`"], ["configurations", _codes(["none", *DEFAULT_DEFENSES])]],
    )


def _suites() -> str:
    rows = []
    for suite, seconds in SECONDS.items():
        attacks, servers = (
            [spec_in(suite, a) for a in played_in(suite) if issubclass(a, TamperingServer) == is_server]
            for is_server in (False, True)
        )
        rows.append([_code(suite), f"{seconds:g}", _codes(attacks), _codes(servers)])
    return _table(["suite", "seconds per configuration", "attacks, in this order", "servers, where allowed"], rows)


def _fields_of(kind: str) -> str:
    """One table of fields per thing; things with the same fields and defaults share one."""
    shared: dict[str, list[str]] = {}
    for name, thing in catalog.find(kind).items():
        shared.setdefault(_fields(thing), []).append(name)
    parts = [f"**{_codes(names)}**\n\n{table or 'No fields.'}" for table, names in shared.items()]
    return "\n\n".join(parts) + "\n"


def _fields(settings: Any) -> str:
    fields = dataclasses.fields(settings)
    if not fields:
        return ""
    rows = [[_code(f.name), _code(f.default), _range(f.metadata), f.metadata.get("help", "")] for f in fields]
    return _table(["field", "default", "allowed", "meaning"], rows)


def _range(meta: Any) -> str:
    if meta.get("choices"):
        return _codes(meta["choices"])
    bounds = (("low", "≥"), ("above", ">"), ("high", "≤"))
    return ", ".join(f"{sign} {meta[key]:g}" for key, sign in bounds if meta.get(key) is not None)


def _commands() -> dict[str, click.Command]:
    """Every command of the command line by a file name; `attack` stands for the options all attacks share."""
    found = {"-".join(words): loaded(*words) for words in every() if words[0] != "attack"}
    return found | {"attack": loaded("attack", "mean-image")}  # which has no fields of its own


def _command_list() -> str:
    """Every command with the first paragraph of its help; all attacks are one."""
    rows = [[f"`leakgauge {' '.join(words)}`", _said(loaded(*words))] for words in every() if words[0] != "attack"]
    rows.append(["`leakgauge attack NAME`", "Run one attack: pictures and scores. Its fields are its flags."])
    return _table(["command", "what it does"], sorted(rows))


def _said(thing: Any) -> str:
    """The first paragraph of a command's help, or of a docstring."""
    text = thing.help if isinstance(thing, click.Command) else thing.__doc__
    return (text or "").partition("\n\n")[0]


def _options(command: click.Command) -> str:
    rows = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            names = " / ".join(_code(o) for o in (*parameter.opts, *parameter.secondary_opts))
            rows.append([names, parameter.help or ""])
    return _table(["option", "meaning"], [row for row in rows if row[0] != "`--help`"])


def _api() -> str:
    return "\n\n".join(_public(name, getattr(leakgauge, name)) for name in leakgauge.__all__) + "\n"


def _testing() -> str:
    """What `leakgauge.testing` offers, with the first paragraph of each docstring."""
    rows = [[_code(name), _said(getattr(testing, name))] for name in testing.__all__]
    return _table(["name", "what it does"], rows)


def _modules(*parts: str) -> str:
    """The public modules of some packages, each with the first sentence of its docstring."""
    import layers

    public = [p for p in layers.FILES if layers.part_of(p) in parts and not p.name.startswith("_")]
    rows = [[_code(f"leakgauge.{layers.relative(p)[:-3].replace('/', '.')}"), f"{layers.said_by(p)}."] for p in public]
    return _table(["module", "what is in it"], rows)


def _public(name: str, thing: Any) -> str:
    parts = [f"## {name}", _plain(inspect.cleandoc(thing.__doc__ or ""))]
    if dataclasses.is_dataclass(thing) and isinstance(thing, type):
        notes = _comments(thing)
        rows = [[_code(f.name), _code(f.type), _default(f), notes.get(f.name, "")] for f in dataclasses.fields(thing)]
        if rows:
            parts.append(_table(["field", "type", "default", ""], rows))
    elif inspect.isfunction(thing):
        parts.insert(1, f"```python\n{name}{inspect.signature(thing)}\n```")
    elif issubclass(thing, Fact):
        parts.append(_codes(f.value for f in thing) + ".")
    return "\n\n".join(parts)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "" if field.default_factory is dataclasses.MISSING else "empty"
    return _code(repr(field.default) if isinstance(field.default, str) else field.default)


def _comments(cls: type) -> dict[str, str]:
    """Help text of settings, and the comments that stand behind fields in the source: shapes and meanings."""
    found = re.findall(r"^    (\w+): [^#\n]*#\s*(.+)$", inspect.getsource(cls), flags=re.MULTILINE)
    helps = {f.name: f.metadata["help"] for f in dataclasses.fields(cls) if "help" in f.metadata}
    return {name: note for name, note in found if not note.startswith("noqa")} | helps


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    """One line; what is not in backticks or a link to a page is plain text."""
    pieces = re.split(r"(`[^`]*`|\*\*|\[[\w-]+\]\([\w./-]+\))", " ".join(text.split()))
    return "".join(p if p.startswith(("`", "**", "[")) else _plain(p) for p in pieces).replace("|", "\\|")


def _plain(text: str) -> str:
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)


def _code(value: object) -> str:
    return f"`{value}`"


def _codes(values: Iterable[object]) -> str:
    return ", ".join(_code(v) for v in values)


def setup(app: Any) -> None:
    """Figures on the pages of papers are read from the recipes."""
    from paper_figures import filled  # stands beside this file

    def fill(_: Any, page: str, source: list[str]) -> None:
        if page.startswith("papers/"):
            source[0] = filled(source[0])

    app.connect("source-read", fill)


generate()

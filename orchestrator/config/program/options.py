"""Read the options that a Python program declares from its sources, without a start of the program.

Known are argparse, click, typer, tyro, absl, and ``sys.argv`` with an index. Sources are the program's file
and files beside it that it imports.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.config.program.constants import constant, default_of
from orchestrator.core.types import Value

_MOST_FILES = 50
_MOST_NESTED = 5
_FLAGS = {"store_true": "flag", "store_false": "flag", "BooleanOptionalAction": "no-flag"}
_WITHOUT_RUN = ("help", "version")
SEED_NAMES = ("seed", "random_seed", "rng_seed", "global_seed", "manual_seed")


@dataclass(frozen=True)
class Option:
    """An option of a program. ``items``: the items of `command` that pass it, with its ``key`` in braces.

    ``left_out``: why it is not passed; empty if it is. ``names`` and ``action``: its spellings and action in
    argparse; no names for other libraries and for an option that is declared in two ways.
    """

    key: str
    items: tuple[str, ...]
    default: Value = None
    required: bool = False
    type: str = ""
    help: str = ""
    left_out: str = ""
    names: tuple[str, ...] = ()
    action: str = ""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, or a field of a class."""

    name: str
    annotation: ast.expr | None
    default: ast.expr | None
    help: str = ""


class Program:
    """The syntax of a program's files, with its calls, classes, functions and constants by name."""

    def __init__(self, path: Path) -> None:
        nodes = [node for _, tree in sources(path) for node in ast.walk(tree)]
        self.nodes = nodes
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        self.classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        self.constants = {
            name_of(node.targets[0]): node.value
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    def called(self, *names: str) -> Iterator[ast.Call]:
        """Yield the calls of functions with these names, as written or by their last part."""
        by_last = {name.rpartition(".")[2]: name for name in names}
        for call in self.calls:
            name = by_last.get(name_of(call.func))
            if name and ("." not in name or ast.unparse(call.func) == name):
                yield call

    def option(self, key: str, items: tuple[str, ...], default: ast.expr | None, **words: Any) -> Option:
        """Make an option with a default that is text of the program; without one it is required."""
        if default is None:
            return Option(key, items, required=True, **words)
        value, why = default_of(default, self.constants, words.get("type", ""))
        if isinstance(value, list) and "=" in items[0]:
            why = "its default is a list"
        return Option(key, items, value, left_out=why, **words)


@cache
def options_of(path: Path) -> tuple[Option, ...]:
    """Return the options that a program's sources declare, each key once."""
    program = Program(path)
    readers = (_of_argparse, _of_click, _of_absl, _of_tyro, _of_typer, _of_argv)
    found: dict[str, Option] = {}
    for option in (option for reader in readers for option in reader(program)):
        first = found.setdefault(option.key, option)
        if first.names and option.names and (first.type, first.action) != (option.type, option.action):
            found[option.key] = replace(first, names=(), left_out="it is declared in two ways")
    return tuple(found.values())


def _of_argparse(program: Program) -> Iterator[Option]:
    for call in program.called("add_argument"):
        words, names = keywords(call), _texts(call)
        if not names:
            name = ast.unparse(call.args[0]) if call.args else "?"
            yield Option(name, ("",), left_out="its name is not constant")
        elif option := _argument(program, names, words):
            yield replace(option, names=tuple(names), action=name_of(words.get("action")))


def _argument(program: Program, names: list[str], words: Mapping[str, ast.expr]) -> Option | None:
    name = next((one for one in names if one.startswith("--")), names[0])
    key, action = name.lstrip("-"), name_of(words.get("action"))
    told: dict[str, Any] = {"type": name_of(words.get("type")), "help": text_of(words.get("help"))}
    if action in _WITHOUT_RUN:
        return None
    if action in ("store_true", "store_false") and name.startswith("--"):
        is_on = action == "store_true" and text_of(words.get("default")) == "True"
        return Option(key, (f"{{{key}:flag}}",), is_on, type="bool", help=told["help"])
    items = (name, f"{{{key}}}") if name.startswith("-") else (f"{{{key}}}",)
    default = words.get("default")
    if action in _FLAGS:
        items = (f"{{{key}:{_FLAGS[action]}}}",)
    elif action not in ("", "store"):
        return Option(key, items, left_out=f"its action is {action}", **told)
    if told["type"] == "bool":
        return Option(key, items, left_out="type=bool reads every text, also false, as true", **told)
    optional = name.startswith("-") and text_of(words.get("required")) != "True"
    if default is None and (optional or text_of(words.get("nargs")) in ("?", "*")):
        return Option(key, items, left_out="it has no default", **told)
    option = program.option(key, items, default, **told)
    if isinstance(option.default, list) and "nargs" not in words:
        return Option(key, items, left_out="its default is a list", **told)
    return option


def _of_click(program: Program) -> Iterator[Option]:
    for call in program.called("option", "argument"):
        names, words = _texts(call), keywords(call)
        if not names or (name_of(call.func) == "option") != names[0].startswith("-"):
            continue
        name, _, other = next((one for one in names if one.startswith("--")), names[0]).partition("/")
        key = name.lstrip("-")
        told: dict[str, Any] = {"type": name_of(words.get("type")), "help": text_of(words.get("help"))}
        default = words.get("default")
        items = (name, f"{{{key}}}") if name.startswith("-") else (f"{{{key}}}",)
        if text_of(words.get("is_flag")) == "True" or other:
            items = (f"{{{key}:{'no-flag' if other else 'flag'}}}",)
            default = default or ast.Constant(False)
        if "multiple" in words or (other and other.strip() != f"--no-{key}"):
            yield Option(key, items, left_out="it is passed in another way", **told)
        elif default is None and name.startswith("-") and text_of(words.get("required")) != "True":
            yield Option(key, items, left_out="it has no default", **told)
        else:
            yield program.option(key, items, default, **told)


def _of_absl(program: Program) -> Iterator[Option]:
    for call in program.calls:
        kind = name_of(call.func).removeprefix("DEFINE_")
        if kind in ("float", "integer", "string", "bool", "boolean", "enum") and len(call.args) > 1:
            name, told = text_of(call.args[0]), text_of(call.args[-1] if len(call.args) > 2 else None)
            yield program.option(name, (f"--{name}={{{name}}}",), call.args[1], type=kind, help=told)


def _of_tyro(program: Program) -> Iterator[Option]:
    for call in program.called("tyro.cli"):
        for named in ast.walk(call.args[0]) if call.args else ():
            parameters = parameters_of(program, name_of(named)) if isinstance(named, ast.Name) else []
            yield from _flat(program, parameters)


def _flat(
    program: Program, parameters: list[Parameter], prefix: str = "", depth: int = 0
) -> Iterator[Option]:
    for one in parameters:
        key, kind = f"{prefix}{one.name}", annotated(one.annotation)
        if kind in program.classes and depth < _MOST_NESTED:
            yield from _flat(program, parameters_of(program, kind), f"{key}.", depth + 1)
        else:
            items = (f"{{{key}:no-flag}}",) if kind == "bool" else (f"--{key}", f"{{{key}}}")
            yield program.option(key, items, one.default, type=kind, help=one.help)


def _of_typer(program: Program) -> Iterator[Option]:
    names = {name_of(call.args[0]) for call in program.called("typer.run") if call.args}
    if any(isinstance(node, ast.Import) and node.names[0].name == "typer" for node in program.nodes):
        for function in program.functions.values():
            if any(
                isinstance(one, ast.Call) and name_of(one.func) == "command"
                for one in function.decorator_list
            ):
                names.add(function.name)
    for one in parameters_of(program, names.pop()) if len(names) == 1 else ():
        yield _typer_option(program, one)


def _typer_option(program: Program, one: Parameter) -> Option:
    declared = [
        call
        for node in (one.annotation, one.default)
        for call in (ast.walk(node) if node is not None else ())
        if isinstance(call, ast.Call) and name_of(call.func) in ("Option", "Argument")
    ]
    call = declared[0] if declared else None
    words, default = keywords(call), one.default
    if call is not None and call is default:
        default = call.args[0] if call.args else words.get("default")
    if isinstance(default, ast.Constant) and default.value is ...:
        default = None
    spelled = [name for name in (_texts(call) if call else []) if name.startswith("--") and "/" not in name]
    name = spelled[0] if spelled else f"--{one.name.replace('_', '-')}"
    key, kind = name[2:], annotated(one.annotation)
    positional = default is None if call is None else name_of(call.func) == "Argument"
    items = (f"{{{key}}}",) if positional else (name, f"{{{key}}}")
    items = (f"{{{key}:no-flag}}",) if kind == "bool" and not positional else items
    return program.option(key, items, default, type=kind, help=text_of(words.get("help")))


def _of_argv(program: Program) -> Iterator[Option]:
    found: dict[int, Option] = {}
    for node in program.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        value = node.value if isinstance(node, ast.Assign) else None
        for part in ast.walk(value) if value is not None else ():
            index = _argv_index(part)
            if index and isinstance(target, ast.Name):
                other = value.orelse if isinstance(value, ast.IfExp) else None
                convert = value.body if isinstance(value, ast.IfExp) else value
                kind = name_of(convert.func) if isinstance(convert, ast.Call) else ""
                option = program.option(target.id, (f"{{{target.id}}}",), other, type=kind)
                found.setdefault(index, option)
    for index in range(1, len(found) + 1):
        if index in found:
            yield found[index]


def _argv_index(node: ast.AST) -> int:
    """Return the index of ``sys.argv[n]``; 0 of anything else."""
    if isinstance(node, ast.Subscript) and name_of(node.value) == "argv":
        index = getattr(node.slice, "value", 0)
        return index if isinstance(index, int) and index > 0 else 0
    return 0


def parameters_of(program: Program, name: str, depth: int = 0) -> list[Parameter]:
    """Return the fields of a class with those of its bases, or the parameters of a function."""
    if function := program.functions.get(name):
        arguments = [*function.args.args, *function.args.kwonlyargs]
        defaults: list[ast.expr | None] = [None] * (len(function.args.args) - len(function.args.defaults))
        defaults += [*function.args.defaults, *function.args.kw_defaults]
        return [
            Parameter(one.arg, one.annotation, value) for one, value in zip(arguments, defaults, strict=True)
        ]
    found: dict[str, Parameter] = {}
    if (declared := program.classes.get(name)) and depth < _MOST_NESTED:
        for base in declared.bases:
            found |= {one.name: one for one in parameters_of(program, name_of(base), depth + 1)}
        for statement, following in zip(declared.body, [*declared.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign):
                told = text_of(following.value) if isinstance(following, ast.Expr) else ""
                name = name_of(statement.target)
                found[name] = Parameter(name, statement.annotation, _field_default(statement.value), told)
    return list(found.values())


def _field_default(value: ast.expr | None) -> ast.expr | None:
    """Return the default of a field, also within ``field(default=…)`` and its ``default_factory``."""
    if isinstance(value, ast.Call) and name_of(value.func) == "field":
        words = keywords(value)
        made = words.get("default_factory")
        return words.get("default", made.body if isinstance(made, ast.Lambda) else made)
    return value


def annotated(node: ast.expr | None) -> str:
    """Return an annotation as text, without ``Annotated``."""
    if (
        isinstance(node, ast.Subscript)
        and name_of(node.value) == "Annotated"
        and isinstance(node.slice, ast.Tuple)
    ):
        node = node.slice.elts[0]
    return "" if node is None else ast.unparse(node).strip("'\"")


def keywords(call: ast.Call | None) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call by name."""
    return {word.arg: word.value for word in call.keywords if word.arg} if call else {}


def _texts(call: ast.Call) -> list[str]:
    return [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def text_of(node: ast.expr | None) -> str:
    """Return a constant as one line of text; empty for any other expression."""
    try:
        return " ".join(str(constant(node, {})).split()) if node is not None else ""
    except (ValueError, RecursionError):
        return ""


def name_of(node: ast.expr | None) -> str:
    """Return the last name of an expression or the text of a constant."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return str(getattr(node, "attr", getattr(node, "id", "?")))


def sources(path: Path) -> Iterator[tuple[Path, ast.AST]]:
    """Yield a program's file, and files beside it or in this folder that it imports, with their syntax."""
    todo, seen = [path], {os.path.abspath(path)}
    while todo:
        file = todo.pop()
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield file, tree
        for name in _imported(tree):
            module = Path(*name.split("."))
            spelled = (module.with_suffix(".py"), module / "__init__.py")
            for other in (folder / path for folder in (file.parent, Path()) for path in spelled):
                if os.path.abspath(other) not in seen and len(seen) < _MOST_FILES and other.is_file():
                    seen.add(os.path.abspath(other))
                    todo.append(other)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module:
                yield module
            yield from (f"{module}.{one.name}".strip(".") for one in node.names if one.name != "*")

"""Draft a grid from a job script: array tasks and loops become the runs, its options the resources.

A small part of bash is interpreted: assignments, arrays, arithmetic and ``for``. Any other statement that
decides arguments is an error with its line. Nothing is started.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path

from orchestrator.config.profiles.sbatch_options import SHORT
from orchestrator.config.program.constants import constant
from orchestrator.config.program.options import SEED_NAMES
from orchestrator.config.yaml_files.scalars import resolve
from orchestrator.core.errors import PlacedError
from orchestrator.core.formatting import count
from orchestrator.core.types import Value
from orchestrator.ui.drafts.text import Draft

_MOST_RUNS = 10_000
_MOST_STEPS = 200_000
_OPTION = re.compile(
    r"^#SBATCH[ \t]+(?:--(?P<long>[\w-]+)|-(?P<short>\w))[= \t]*(?P<value>[^\s#]*)", re.MULTILINE
)
_TASK_ID = re.compile(r"\b([A-Z]+_ARRAY_TASK_ID)\b")
_ASSIGNED = re.compile(
    r"(?P<before>(?:export|local|readonly|declare(?: -\w+)?) )?\s*(?P<name>\w+)=(?P<value>.*)", re.S
)
_LOOP = re.compile(r"for\s+(\w+)\s+in\s+(.*)", re.S)
_WITHOUT_ARGUMENTS = re.compile(
    r"(?:cd\s+\W*[A-Z]+_SUBMIT_DIR|\.(?=\s)|(?:module|ml|source|conda|mamba|echo|mkdir|set|date|nvidia-smi|hostname|wait|sleep|ulimit|unset|exit|pwd)\b)"
)
# A line that starts the program: by a path, Python, a shell, or what starts programs in environments.
_PROGRAM = re.compile(
    r"(?:[\w.~-]*/\S+|python[\d.]*|bash|sh|uv|conda|apptainer|singularity|torchrun|julia|Rscript|java)(?!\S).*",
    re.S,
)
_STARTER = re.compile(r"(?:(?:srun|exec|nice|time)(?:\s+--?[\w-]+(?:=\S+)?)*\s+)?")
_EXPANDED = re.compile(
    r"\$\(\((?P<sum>[^$`]*?)\)\)|\$\{#(?P<counted>\w+)\[[@*]\]\}|\$\{(?P<all>\w+)\[[@*]\]\}"
    r"|\$\{(?P<array>\w+)\[(?P<index>[^\[\]{}]*)\]\}|\$\{(?P<braced>\w+)\}|\$(?P<plain>[A-Za-z_]\w*)"
    r"|\$\(seq\s+(?P<first>\d+)\s+(?P<last>\d+)\)"
)
_Values = dict[str, list[str]]


class _Unread(Exception):
    """A text that is not interpreted."""


def draft_of_job_script(file: Path, spelled: str) -> Draft:
    """Interpret a script for each of its array tasks. Raises :class:`PlacedError`."""
    text = file.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    options = {
        match["long"] or SHORT.get(match["short"], match["short"]): match["value"].strip()
        for match in _OPTION.finditer(text)
    }
    ids = {match[1] for match in _TASK_ID.finditer(text)}
    statements = list(_statements(text))
    script = _Script(file)
    for task in _tasks(options.get("array", ""), file):
        script.values = {name: [str(task)] for name in ids}
        script.run(statements)
    if not script.commands:
        raise PlacedError("found no line that starts a program", file=file)
    return _drafted(spelled, script.commands, options)


def _tasks(array: str, file: Path) -> list[int]:
    """Return the indices of an array, such as ``0-8%4`` and ``1,3,5-9:2``."""
    found: list[int] = []
    for part in array.partition("%")[0].split(",") if array else ():
        span = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?", part.strip())
        if span is None or span[3] == "0":
            raise PlacedError(f"array: found {array!r}, expected indices such as 0-8", file=file)
        found += range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1))
    return found[: _MOST_RUNS + 1] or [0]


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield a script's statements with their lines: split at ends of lines and ``;`` outside of quotes."""
    line, start, statement, quote, depth = 1, 1, "", "", 0
    for position, one in enumerate(f"{text}\n"):
        if one == "#" and not quote and text[position - 1 : position] in ("", *" \t\n;"):
            quote = "#"
        if quote == "#" and one != "\n":
            continue
        if one in "\"'" and quote in ("", one):
            quote = "" if quote else one
        depth += (one == "(") - (one == ")") if not quote else 0
        if quote in ("", "#") and (one == "\n" or one == ";") and depth <= 0:
            if stripped := re.sub(r"^(do|then)\b\s*", "", statement.strip()):
                yield start, stripped
            statement, start = "", line + (one == "\n")
        else:
            statement += one
        if one == "\n":
            line, quote = line + 1, "" if quote == "#" else quote


class _Script:
    """Values of a script's variables, as far as they are read, and the arguments of each program started."""

    def __init__(self, file: Path) -> None:
        self.file, self.values = file, _Values()
        self.commands: list[list[str]] = []
        self._steps = 0

    def run(self, statements: Sequence[tuple[int, str]]) -> None:
        """Interpret statements. Raises :class:`PlacedError`."""
        position = 0
        while position < len(statements):
            line, text = statements[position]
            position += 1
            try:
                if loop := _LOOP.fullmatch(text):
                    end = _end_of_loop(statements, position)
                    for value in self._words(loop[2]):
                        self.values[loop[1]] = [value]
                        self.run(statements[position:end])
                        self._step(line)
                    position = end + 1
                elif assigned := _ASSIGNED.fullmatch(text):
                    if re.match(r"[^\s\"'($`]*\s+\S", assigned["value"]) or re.search(r"\spython", text):
                        raise _Unread(text)
                    self._assign(assigned["name"], assigned["value"])
                elif _WITHOUT_ARGUMENTS.match(text) and not re.search(r"[|&]", text):
                    pass
                elif started := _PROGRAM.fullmatch(_STARTER.sub("", text, count=1)):
                    if re.search(r"[|<`]|&&|\|\|", text):
                        raise _Unread(text)
                    self.commands.append(self._words(re.sub(r"\s*(\d?>+\s*\S+|&\s*$)", "", started[0])))
                else:
                    raise _Unread(text)
            except (_Unread, ValueError, RecursionError, IndexError) as error:
                found = str(error) if isinstance(error, _Unread) else text
                raise PlacedError(
                    f"found {found[:80]!r}, which is not read: "
                    "expected assignments, arrays, arithmetic, for and lines that start a program",
                    file=self.file,
                    line=line,
                    hint=f"write base: {{command: [bash, {self.file.name}]}} and set its variables by hand",
                ) from None
            self._step(line)

    def _step(self, line: int) -> None:
        """Count a statement. Raises :class:`PlacedError` beyond the limits."""
        self._steps += 1
        if len(self.commands) > _MOST_RUNS:
            raise PlacedError(f"found more than {_MOST_RUNS:,} runs", file=self.file, line=line)
        if self._steps > _MOST_STEPS:
            found = f"found loops of more than {_MOST_STEPS:,} statements, expected fewer"
            raise PlacedError(found, file=self.file, line=line)

    def _assign(self, name: str, value: str) -> None:
        try:
            if value.startswith("(") and value.endswith(")"):
                self.values[name] = self._words(value[1:-1])
            else:
                self.values[name] = [" ".join(self._words(value))]
        except (_Unread, ValueError):
            self.values.pop(name, None)  # refused where an argument needs it

    def _words(self, text: str) -> list[str]:
        if re.search(r"'[^']*\$[^']*'", text):
            raise _Unread(text)
        text = re.sub(r"(?<!\S)\{(\d{1,5})\.\.(\d{1,5})\}(?!\S)", r"$(seq \1 \2)", text)
        for _ in range(3):  # an index or a sum may hold a variable
            text = _EXPANDED.sub(self._expanded, re.sub(r"\$\{?(\w+)\}?(?=[^()]*\)\))", r"\1", text))
        words = shlex.split(text)
        if re.search(r"[$`*?~]|[{(]", " ".join(words)):
            raise _Unread(text)
        return words

    def _expanded(self, match: re.Match[str]) -> str:
        if match["sum"] is not None:
            return str(self._sum(match["sum"]))
        if match["first"]:
            return " ".join(map(str, range(int(match["first"]), min(int(match["last"]), 10**5) + 1)))
        name = match["counted"] or match["all"] or match["array"] or match["braced"] or match["plain"]
        if name not in self.values:
            raise _Unread(match[0])
        values = self.values[name]
        if any(character in value for value in values for character in "'\"\\$"):
            raise _Unread(match[0])
        if match["counted"]:
            return str(len(values))
        index = self._sum(match["index"].replace("$", "")) if match["array"] else 0
        return " ".join(values) if match["all"] else values[index]

    def _sum(self, text: str) -> int:
        """Evaluate arithmetic of names and whole numbers."""
        filled = re.sub(r"[A-Za-z_]\w*", lambda one: self.values.get(one[0], ["?"])[0], text.replace("$", ""))
        try:
            value = constant(ast.parse(filled.strip().replace("/", "//"), mode="eval").body, {})
        except (SyntaxError, ValueError):
            raise _Unread(text) from None
        if not isinstance(value, int) or value < 0:
            raise _Unread(text)
        return value


def _end_of_loop(statements: Sequence[tuple[int, str]], start: int) -> int:
    depth = 1
    for position in range(start, len(statements)):
        text = statements[position][1]
        depth += bool(_LOOP.fullmatch(text)) - bool(re.match(r"done\b", text))
        if not depth:
            return position
    raise _Unread("for without done")


def _drafted(spelled: str, commands: Sequence[Sequence[str]], options: Mapping[str, str]) -> Draft:
    """Return a draft of runs with these argument lists; each argument that differs between them is a key."""
    if len({len(argv) for argv in commands}) > 1:
        raise PlacedError("found runs with different numbers of arguments, expected the same", file=spelled)
    columns = list(zip(*commands, strict=True))
    command, keys = [], dict[str, list[Value]]()
    for position, column in enumerate(columns):
        before, equals, _ = column[0].partition("=")
        prefix = f"{before}=" if equals and all(text.startswith(f"{before}=") for text in column) else ""
        named = before if prefix else columns[position - 1][0] if position else ""
        key = re.sub(r"\W+", "_", named.lstrip("-")).strip("_") or "value"
        key = "seed" if key in SEED_NAMES else key if key[:1].isalpha() else f"value_{key}"
        if len(set(column)) == 1:
            command.append(re.sub(r"\{(\w[^{}]*)\}", r"{{\1}}", column[0]))
            continue
        key = f"{key}_{position}" if key in keys else key
        keys[key] = [_value(text.removeprefix(prefix)) for text in column]
        command.append(f"{prefix}{{{key}}}")
    matrix = {key: list(dict.fromkeys(values)) for key, values in keys.items()}
    points = set(zip(*keys.values(), strict=True))
    is_product = prod(map(len, matrix.values())) == len(points) and points == set(product(*matrix.values()))
    later = [
        f"# {name}: {value}  # belongs in a profile"
        for name, value in options.items()
        if name in ("partition", "account", "qos", "constraint")
    ]
    started = count(len(commands), "start")
    notes = [f"{started} of a program. Modules and exported variables belong in a profile (setup:)."]
    return Draft(
        spelled,
        command,
        matrix=matrix if is_product else {},
        zipped={} if is_product else keys,
        resources=resources_of(options),
        notes=notes,
        later=later,
    )


def _value(text: str) -> Value:
    """Return a number if it is passed with this spelling, else the text."""
    try:
        value = resolve(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) and json.dumps(value) == text else text


def resources_of(options: Mapping[str, str]) -> dict[str, Value]:
    """Return the resources that options of sbatch ask for, by their long names."""
    gpus = (
        options.get("gres", "").rpartition("gpu:")[2]
        or options.get("gpus")
        or options.get("gpus-per-node", "")
    )
    count = gpus.rpartition(":")[2]
    found: dict[str, Value] = {}
    if options.get("cpus-per-task", "").isdecimal():
        found["cpus_per_task"] = int(options["cpus-per-task"])
    if count.isdecimal():
        found["gpus"] = int(count)
    return found | {name: options[name] for name in ("mem", "time") if options.get(name)}

"""Fill a run's values into the arguments of a `command` (docs/run-protocol.md, "Values in the command").

``{key}`` becomes the value and ``{{text}}`` the text ``{text}``. ``{key}`` and ``{key:flag}`` alone in an
argument may become several arguments, or none. Into the code of a shell go only values that the shell cannot
read as code.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from orchestrator.config.command_line.command import shell_code_at
from orchestrator.config.command_line.shell_quoting import COMMENT, DOCUMENT, UNKNOWN, quotation_at
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Value

# Keys that are no arguments of the program.
_NOT_PASSED = ("command", "code")
_KEY = r"[A-Za-z_][A-Za-z0-9_./+~-]*"
_PLACEHOLDER = re.compile(
    rf"\{{(?P<text>\{{{_KEY}(?::[a-z-]+)?\}})\}}"
    rf"|(?P<dollar>\$?)\{{(?P<key>{_KEY})(?::(?P<form>flag|no-flag))?\}}"
)
# By the quotation: characters that end it or begin code in it.
_CODE_IN = {"'": frozenset("'"), '"': frozenset('"\\$`'), "": frozenset("'\"\\$`;&|<>()#\n\r")}
_CODE_IN |= dict.fromkeys((COMMENT, DOCUMENT, UNKNOWN), frozenset().union(*_CODE_IN.values()))
_VARIABLE = re.compile(r"(?<![\\$])\$(\{[#!]?)?(?P<name>[A-Za-z_]\w*)(?(1)(?=(?P<rest>[^{}]*\}?)))")
# What sets a variable; `train.py seed=3` does not.
_SETS = (
    r"(?:^|[;&|({{`]|\b(?:then|do|else|export|local|declare|typeset|readonly|env)\b)"
    r"\s*(?:-\w+\s+|\w+\+?=\S*\s+)*{0}\+?="
    r"|\b(?:for|select)\s+{0}\b|\b(?:read|mapfile|getopts|printf\s+-v)\s[^;\n]*(?<![\w$]){0}\b"
)


def keys_asked_for(command: Any) -> set[str]:
    """Return the keys of the placeholders in a command."""
    items = command if isinstance(command, list | tuple) else ()
    placeholders = (match for item in items for match in _PLACEHOLDER.finditer(_text(item)))
    return {match["key"] for match in placeholders if match["key"] and not match["dollar"]}


def flags_in(command: Any) -> list[tuple[str, str]]:
    """Return the keys of placeholders such as ``{key:flag}`` in a command, each with its form."""
    items = command if isinstance(command, list | tuple) else ()
    placeholders = (match for item in items for match in _PLACEHOLDER.finditer(_text(item)))
    return [(match["key"], match["form"]) for match in placeholders if match["form"]]


def arguments(command: Sequence[Value], point: Mapping[str, Any]) -> list[str]:
    """Return a run's argument vector; ``point`` holds its keys with its seed and threads.

    Raises :class:`OrchestrateError` for a placeholder that cannot be filled.
    """
    values = {"threads": 1, **point}
    code = shell_code_at(command)
    argv: list[str] = []
    for position, text in enumerate(map(_text, command)):
        if position == code:
            _refuse_unset_variables("\n".join(map(_text, command[:code])), text, values)
            argv.append(_PLACEHOLDER.sub(lambda match: _in_shell(match, match.string, values), text))
        elif "{" not in text:
            argv.append(text)
        elif (alone := _PLACEHOLDER.fullmatch(text)) and _is_filled(alone, text, values):
            argv += _words(alone, values)
        else:
            argv.append(_longer_argument(text, values))
    return argv


def _longer_argument(text: str, values: Mapping[str, Any]) -> str:
    def fill(match: re.Match[str]) -> str:
        if not _is_filled(match, text, values):
            return match["text"] or match[0]
        return _value_within(match, text, values)

    return _PLACEHOLDER.sub(fill, text)


def _refuse_unset_variables(before: str, code: str, values: Mapping[str, Any]) -> None:
    """Refuse a variable that the shell expands, has the name of a key, and is not set in these."""
    lines = f"{before}\n{code}".replace("\\\n", " ")
    for match in _VARIABLE.finditer(code):
        name = match["name"]
        if (
            name in values.keys() - _NOT_PASSED
            and not re.search(_SETS.format(name), lines, re.MULTILINE)
            and quotation_at(code, match.start()) not in ("'", COMMENT)
        ):
            raise _ambiguous(name, match[0] + (match["rest"] or ""), code)


def _in_shell(match: re.Match[str], code: str, values: Mapping[str, Any]) -> str:
    if not _is_filled(match, code, values):
        return match["text"] or match[0]
    key, quote = match["key"], quotation_at(code, match.start())
    several = bool(match["form"]) or isinstance(values[key], list | tuple)
    if several and quote == UNKNOWN:
        raise OrchestrateError(
            f"`command`: {match[0]} in {code!r} may be several arguments, and how the shell reads "
            "that place is not known: it is in or after a substitution, or code for another shell",
            hint=f'pass it after the code: [bash, -c, \'python train.py "$@"\', bash, "{match[0]}"]',
        )
    before, after = code[: match.start()][-1:], code[match.end() :][:1]
    alone = before in ("", *" \t\n") and after in ("", *" \t\n;&|)")
    if several and not quote:
        return shlex.join(_words(match, values) if alone else [_value_within(match, code, values)])
    text = _value_within(match, code, values)
    quoted = shlex.quote(text)
    if not _CODE_IN[quote].isdisjoint(text) or (quote == UNKNOWN and quoted != text):
        raise OrchestrateError(
            f"`command`: {key} is {text!r} in a run, and the shell that gets {match[0]} in {code!r} "
            "could split or drop it, or read some of it as code",
            hint="pass it as an argument after the code: "
            f'[bash, -c, \'python train.py --{key} "$1"\', bash, "{match[0]}"]',
        )
    return text if quote else quoted


def _is_filled(match: re.Match[str], item: str, values: Mapping[str, Any]) -> bool:
    """Return whether a value takes the place of this match; what is no key of the run is refused.

    ``${name}`` is left to a shell or to the program, unless it is a key.
    """
    if match["text"]:
        return False
    key = match["key"]
    if match["dollar"]:
        if key in values:
            raise _ambiguous(key, match[0], item)
        return False
    if key not in values:
        known = sorted(set(values) - set(_NOT_PASSED))
        near = get_close_matches(key, known, 1)
        meant = f"did you mean {{{near[0]}}}? " if near else ""
        raise OrchestrateError(
            f"`command`: {item!r} asks for {key!r}, and the run has: {', '.join(known)}",
            hint=f"{meant}The text {match[0]} itself is written {{{match[0]}}}",
        )
    return True


def _ambiguous(key: str, text: str, item: str) -> OrchestrateError:
    return OrchestrateError(
        f"`command`: {item!r} has {text}, and {key} is a key of the run",
        hint=f"write {{{key}}} for the run's value, ${{{{{key}}}}} for a variable of a shell",
    )


def _words(match: re.Match[str], values: Mapping[str, Any]) -> list[str]:
    """Return the arguments for a placeholder that stands alone."""
    key, form = match["key"], match["form"]
    value = values[key]
    texts = [*map(_text, value)] if isinstance(value, list | tuple) else [_text(value)]
    if form is None:
        return texts
    if value is True:
        return [f"--{key}"]
    if value is False:
        return [f"--no-{key}"] if form == "no-flag" else []
    return [] if value is None or not texts else [f"--{key}", *texts]


def _value_within(match: re.Match[str], item: str, values: Mapping[str, Any]) -> str:
    """Return the text for a placeholder within a longer argument, or within quotes of a shell."""
    if match["form"]:
        raise OrchestrateError(
            f"`command`: {match[0]} stands for whole arguments, and is a part of one in {item!r}",
            hint=f"let it stand alone, or write --{match['key']}={{{match['key']}}}",
        )
    return _text(values[match["key"]])


def _text(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)

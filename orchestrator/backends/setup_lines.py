"""Write lines of a set-up such that the trap for errors of bash sees each that fails.

Bash calls a trap for errors neither for a command before `&&` or `|`, nor for one in the `$(...)` of an
`export` or an `eval`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, takewhile

# Ends a rewritten command with its own exit code.
_STATUS = " || (exit $?)"
# A writer may lose its reader, as in `yes | head`: SIGPIPE is no failure.
_PIPE = "(set -o pipefail; {} || exit $(($? == 141 ? 0 : $?)))"
# Stands between a rewritten line and the line as it was.
_WAS = " #: "
# Command of sed that shows a line as it was.
ORIGINAL = f"s/^ *//;s/.*{_WAS}//"

_LITERAL = r"\\.|'[^']*'"
_BARE = rf"""{_LITERAL}|"(?:\\.|[^"\\])*"|[^()'"\\]"""
_INSIDE = rf"(?:{_BARE})*"
for _ in range(3):  # depth of parentheses within `$(...)`
    _INSIDE = rf"(?:{_BARE}|\({_INSIDE}\))*"
_EXPANSION = rf"\$'(?:\\.|[^'\\])*'|\$\({_INSIDE}\)|\$\{{[^}}]*\}}|`(?:\\.|[^`\\])*`|\$(?![({{])"
_DOUBLE = rf'"(?:\\.|{_EXPANSION}|[^"\\$`])*"'
_TOKEN = re.compile(
    rf"""(?P<blank>(?:\s|\\\n)+)|(?P<comment>\#[^\n]*)|(?P<redirection>\d*[<>]+[&|]?|&>>?)
    |(?P<operator>;;&?|;&|&&|\|\||\|&|[;&|()])
    |(?P<word>\[\[\s.*?\s\]\](?=[\s;&|]|$)|(?:{_LITERAL}|{_DOUBLE}|{_EXPANSION}|[^\s;&|()<>'"\\$`])+)""",
    re.DOTALL | re.VERBOSE,
)
# The beginning of a word with a substitution, in double quotes or in none.
_SUBSTITUTION = re.compile(
    rf"""(?:{_LITERAL}|"(?:\\.|[^"\\$`]|\$(?!\((?!\()))*(?:"|(?=\$\((?!\()|`))|[^\\'"])*?(?:\$\((?!\()|`)""",
    re.DOTALL,
)
_ASSIGNS = re.compile(rf"(\w+)\+?={_SUBSTITUTION.pattern}", re.DOTALL)

_CONTINUES = {"&&", "||", "|", "|&"}
_DECLARES = {"export", "readonly"}
# Commands that answer a question: "no", before `&&`, is no failure.
_CONDITIONS = {"[", "[[", "!", "test", "command", "type", "which", "hash", "grep", "egrep", "fgrep"}
_CONDITIONS |= {"pgrep", "pidof", "diff", "cmp", "mountpoint"}
# Words before a command of a compound one, and other parts of compound commands.
_BEFORE = {"then", "else", "do", "{"}
_COMPOUND = {"if", "elif", "fi", "while", "until", "for", "done", "case", "esac", "select", "function", "}"}

_Command = Sequence[re.Match[str]]


def visibly_failing(
    lines: Iterable[str], simple: Callable[[str], str] = lambda command: command
) -> Iterator[str]:
    """Yield the lines, each command that could fail unseen rewritten; ``simple`` rewrites one of its own."""
    text, verbatim = "", False
    for line in lines:
        text += line
        if verbatim or (tokens := _tokens(text)) is None:
            text += "\n"
        elif any(token["redirection"] in ("<<", "0<<") for token in tokens):
            text, verbatim = f"{text}\n", True  # what follows is input of a command, up to its delimiter
        else:
            yield _rewritten(text, tokens, simple)
            text = ""
    if text:
        yield text.removesuffix("\n")


def _tokens(text: str) -> _Command | None:
    """Return the words and operators of a line; ``None`` if it goes on in the next line."""
    tokens, place = [], 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            return None
        place = token.end()
        if token.lastgroup not in ("blank", "comment"):
            tokens.append(token)
    return None if tokens and tokens[-1]["operator"] in _CONTINUES else tokens


def _rewritten(text: str, tokens: _Command, simple: Callable[[str], str]) -> str:
    operators = {token["operator"] for token in tokens} - {None}
    joined = (word.group() for before, word in pairwise(tokens) if before["operator"] in _CONTINUES)
    if not operators <= {";", *_CONTINUES} or not (_COMPOUND | _BEFORE).isdisjoint(joined):
        return text
    statements = [_statement(part, simple) for part in _split(tokens, ";")]
    if statements == [_raw(part) for part in _split(tokens, ";")]:
        return text
    indent = text[: len(text) - len(text.lstrip())]
    was = " ".join(_raw(tokens).replace("\\\n", " ").split())
    return f"{indent}{'; '.join(filter(None, statements))}{_WAS}{was}"


def _split(tokens: _Command, *operators: str) -> list[_Command]:
    parts: list[list[re.Match[str]]] = [[]]
    for token in tokens:
        if token["operator"] in operators:
            parts.append([])
        else:
            parts[-1].append(token)
    return list(parts)


def _raw(tokens: _Command) -> str:
    return tokens[0].string[tokens[0].start() : tokens[-1].end()] if tokens else ""


def _statement(tokens: _Command, simple: Callable[[str], str]) -> str:
    before = list(takewhile(lambda token: token.group() in _BEFORE, tokens))
    command = tokens[len(before) :]
    if not command or command[0].group() in _COMPOUND or any(one["operator"] == "||" for one in command):
        return _raw(tokens)
    commands = _split(command, "&&")
    if not all(part for one in commands for part in _split(one, "|", "|&")):
        return _raw(tokens)  # bash names such a mistake
    return " ".join([*(word.group() for word in before), _and_list(commands, simple)])


def _and_list(commands: Sequence[_Command], simple: Callable[[str], str]) -> str:
    conditions = len(list(takewhile(_is_condition, commands[:-1])))
    rest = commands[conditions:]
    question = next((number for number, one in enumerate(rest[:-1]) if _is_condition(one)), None)
    if question is not None:  # one that fails before it ends the job, so that `;` is `&&`
        joined = f"{_and_list(rest[:question], simple)}; {_and_list(rest[question:], simple)}"
    else:
        joined = " && ".join(_simple(command, simple) for command in rest)
        if " && " in joined and not (len(rest) == 1 and joined == _raw(rest[0])):
            joined += _STATUS
    if conditions and joined != _raw(rest[0]):
        joined = f"{{ {joined}; }}"
    return " && ".join([*map(_raw, commands[:conditions]), joined])


def _is_condition(command: _Command) -> bool:
    """Whether it answers a question; of a pipe its first or last command may."""
    parts = _split(command, "|", "|&")
    return any(part and part[0].group().split()[0] in _CONDITIONS for part in (parts[0], parts[-1]))


def _simple(command: _Command, simple: Callable[[str], str]) -> str:
    """Rewrite a command without `&&`; the result has the precedence of `&&`."""
    if len(_split(command, "|", "|&")) > 1:
        return _raw(command) if _is_condition(command) else _PIPE.format(simple(_raw(command)))
    name, *words = (token.group() for token in command)
    if name == "ulimit":  # a limit that is not granted leaves an environment that works
        return f"{{ {_raw(command)} || :; }}"
    if any(token["redirection"] for token in command) or not any(map(_SUBSTITUTION.match, words)):
        return simple(_raw(command))
    if name == "eval" and len(words) == 1:
        quote = '"' if words[0].startswith('"') else ""
        return f"setup_text={words[0]} && eval {quote}$setup_text{quote}"
    if name in _DECLARES:
        assigned = [word for word in words if _ASSIGNS.match(word)]
        declared = [found[1] if (found := _ASSIGNS.match(word)) else word for word in words]
        return " && ".join([*assigned, " ".join([name, *declared])])
    return simple(_raw(command))

"""Write lines of a set-up such that the trap for errors of bash sees each that fails.

Bash calls a trap for errors neither for a command before `&&` or `|`, nor for one in the `$(...)` of an
`export` or an `eval`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

# Ends a rewritten line with its own exit code.
_STATUS = " || (exit $?)"
# The same where a writer may lose its reader, as in `yes | head`: SIGPIPE is no failure.
_STATUS_OF_PIPE = " || (exit $(($? == 141 ? 0 : $?)))"
# Commands of sed that show a rewritten line as it was, valid in double quotes of a shell.
ORIGINAL = (
    r"s/^ *//;s/ || (exit [$].*//;s/^(set -o pipefail; \(.*\))$/\1/;"
    r"s/^setup_text=\(.*\) && eval .*/eval \1/;s/^\([A-Za-z0-9_]*\)=\(.*\) && export \1$/export \1=\2/"
)

_CODE = re.compile(r"""(?!\s*#)(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\]|\s+(?!\s*#))*""", re.DOTALL)
_SUBSTITUTION = r'(?P<text>"?\$\([^()]+\)[^\s"]*"?)'
_EXPORT = re.compile(rf"(?P<indent>\s*)export\s+(?P<name>\w+)={_SUBSTITUTION}")
_EVAL = re.compile(rf"(?P<indent>\s*)eval\s+{_SUBSTITUTION}")
_PIPES = {"|", "|&"}
_CONTINUES = {"&&", "||", *_PIPES}
# First words of conditions, whose falsehood is no failure, and of parts of compound commands.
_CONDITIONS = {"[", "[[", "!", "test", "command", "type", "which", "grep"}
_COMPOUND = {"if", "then", "elif", "else", "fi", "while", "until", "for", "do", "done", "case", "esac"}
_COMPOUND |= {"select", "function", "{", "}", "(", "(("}
_SEPARATORS = {";", ";;", "&", "||"}


def visibly_failing(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, each whole command that could fail unseen rewritten."""
    text, verbatim = "", False
    for line in lines:
        text += line
        if verbatim or (words := _words(text)) is None:
            text += "\n"
        elif "<<" in words:
            text, verbatim = f"{text}\n", True  # what follows is input of a command, up to its delimiter
        else:
            yield _rewritten(text, words)
            text = ""
    if text:
        yield text.removesuffix("\n")


def _code(text: str) -> str:
    """Return the text up to a comment, or up to a quotation that goes on."""
    return found.group() if (found := _CODE.match(text)) else ""


def _words(text: str) -> list[str] | None:
    """Return the words and operators of a command; ``None`` if it goes on in the next line."""
    code = _code(text)
    if text[len(code) :].lstrip()[:1] not in ("", "#"):
        return None
    lexer = shlex.shlex(code, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words = list(lexer)
    return None if words and words[-1] in _CONTINUES else words


def _rewritten(text: str, words: list[str]) -> str:
    code = _code(text).rstrip()
    if match := _EXPORT.fullmatch(code):
        return f"{match['indent']}{match['name']}={match['text']} && export {match['name']}{_STATUS}"
    if match := _EVAL.fullmatch(code):
        quote = '"' if match["text"].startswith('"') else ""
        return f"{match['indent']}setup_text={match['text']} && eval {quote}$setup_text{quote}{_STATUS}"
    kept = not words or words[0] in _CONDITIONS | _COMPOUND or not _SEPARATORS.isdisjoint(words)
    if kept or code.count("(") != code.count(")"):
        return text
    if "&&" in words:
        return code + _STATUS
    if not _PIPES.isdisjoint(words) and "$(" not in code:
        return f"(set -o pipefail; {code.lstrip()}){_STATUS_OF_PIPE}"
    return text

"""Detect secrets by name or by value: grids, profiles and overrides stay on disk.

A clear name (``api_key``, ``password``) decides alone. ``token`` and ``key`` are also words of machine
learning: there the value counts as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Literal

from orchestrator.core.types import Value

# WANDB_API_KEY, --auth-token, aws.secret_access_key; not TOKENIZERS_PARALLELISM, SSL_CERT_FILE, max_tokens.
_SURE = re.compile(
    r"(?:.*[_.-])?(?:api_?keys?|(?:secret|access|private|auth|encryption|signing|ssh)_?keys?(?:_?ids?)?|key_?id"
    r"|(?:api|auth|access|refresh|bearer|session|id|hf|github|gitlab|wandb|slack)_?tokens?"
    r"|pass(?:word|wd|phrase)s?|secrets?|credentials?)",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"(?:.*[_.-])?token", re.IGNORECASE)
_TOKENS = re.compile(r"(?:.*[_.-])?tokens?", re.IGNORECASE)  # for names of variables: HF_TOKENS
_KEY = re.compile(r"(?:.*[_.-])?(?:keys?|auth)", re.IGNORECASE)
_PWD = re.compile(r"(?:.*[_.-])?pwd", re.IGNORECASE)  # as a variable, PWD is the current folder
_LONG_NUMBER = 10**7  # larger than any count of tokens or token id
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Known prefixes of issued keys, and a password in an address. A search takes time in proportion to the text:
# no two attempts read the same long stretch.
_ISSUED = (
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{16,}|AGE-SECRET-KEY-1\w{16,}"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
)
_ADDRESS = r"\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]+:(?!\$)(?P<password>[^\s/@]+)@"
_PEM = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"
_ITSELF = re.compile(rf"\b(?:sk-[A-Za-z0-9_-]{{16,}}|{_ISSUED})|{_PEM}|\bBearer\s+[\w.~+/-]{{8,}}|{_ADDRESS}")
# The same in files: prose has words such as sk-learn-contrib, and code has beginnings of keys.
_IN_FILE = rf"\b(?:(?<![\w-])sk-(?:[a-z0-9]+-)*\w{{20,}}|{_ISSUED})"
_IN_TEXT = re.compile(rf"{_IN_FILE}|{_PEM}")
_IN_CODE = re.compile(rf"{_IN_FILE}|{_PEM}[A-Z ]*-----[\s\\nr\"'+]*[\w+/=]{{16}}")
_IN_SETTINGS = re.compile(rf"{_IN_FILE}|{_PEM}|{_ADDRESS}")
# One of these is in every match, but for an address: looked for first, as most files have none.
_MARKS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "AKIA", "ASIA", "xox"),
    *("AIza", "npm_", "pypi-", "AGE-SECRET-KEY-", "eyJ", "PRIVATE KEY"),
)
# The same for names of secrets, in lower case.
_WORDS = ("key", "token", "pass", "pwd", "secret", "credential", "auth")
_LINE = re.compile(
    r"""(?:^|[{,])[ \t]*(?:export[ \t]+|-[ \t]+)?["']?([A-Za-z_][\w.-]*)["']?[ \t]*[:=][ \t]*"""
    r"""("[^"\n]*"|'[^'\n]*'|[^\s,#"'}]+)""",
    re.MULTILINE,
)
# Values that stand for one to be filled in.
_NO_VALUE = re.compile(r"null|none|true|false|\W*|your.*|change.?me|x+|todo|dummy|placeholder", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[A-Za-z]{0,19}[0-9])(?=[0-9]{0,19}[A-Za-z])[A-Za-z0-9]{20}")
# A reference is no secret itself: $NAME, ${oc.env:NAME}, $(cat file), {key}, ~/file.
_ELSEWHERE = re.compile(r"[\"']?(?:\$|~|\.{0,2}/|\{[A-Za-z_][\w./+~-]*\}|<[^<>]*>|\[[^\[\]]*\]|\*+$|\.\.\.$)")
_ASSIGNED = re.compile(r"(?<![\w.-])(?:--?)?([A-Za-z_][\w.-]*)=([^\s;&|]+)")
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")
_OPTION_BEFORE = re.compile(r"(?<![\w.-])--([A-Za-z][\w.-]*)\s+([^\s;&|-][^\s;&|]*)")

WHERE_THEY_GO = (
    "export it as a variable in the shell that submits, and read that in the program: jobs inherit the "
    "environment (a rented machine those that `secrets:` of its profile names)"
)


def secret_in(name: str, value: Value) -> str | None:
    """Return the name or kind of a secret in a key or its value, nested ones too; never the secret."""
    return next(_found(name, value), None)


def secret_in_text(text: str) -> str | None:
    """Return the same for shell text: ``NAME=value``, ``--token=value``, ``--token value``."""
    return next(_in_text(text), None)


TextKind = Literal["code", "settings", "text"]


def secret_in_file(text: str, kind: TextKind) -> bool:
    """Return whether a file's text holds a secret.

    Of code and other text only issued keys count. In settings so do passwords in addresses, and values of
    names that are clear, or look random.
    """
    pattern = {"code": _IN_CODE, "settings": _IN_SETTINGS, "text": _IN_TEXT}[kind]
    marked = any(mark in text for mark in _MARKS) or (kind == "settings" and "://" in text)
    if marked and pattern.search(text):
        return True
    if kind != "settings":
        return False
    lower = text.lower()
    named = any(word in lower for word in _WORDS)
    return named and any(_is_set(*match.groups()) for match in _LINE.finditer(text))


def _is_set(name: str, value: str) -> bool:
    """Return whether a line of settings gives a secret a value."""
    name, bare = _snake_case(name), value.strip("\"'")
    if _NO_VALUE.fullmatch(bare) or _ELSEWHERE.match(bare):
        return False
    if bare.isdecimal() and bare == value:  # in vocabularies words have numbers
        return False
    if _SURE.fullmatch(name) or _PWD.fullmatch(name):
        return True
    return bool((_TOKEN.fullmatch(name) or _KEY.fullmatch(name)) and _RANDOM.search(bare))


def looks_secret(name: str) -> bool:
    """Return whether the name of a variable indicates a secret, for any value."""
    return any(pattern.fullmatch(_snake_case(name)) for pattern in (_SURE, _TOKENS, _KEY))


def _found(name: str, value: Value) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _found(str(key), inner)
    elif isinstance(value, list | tuple):
        # In [--token, abc] the name is one item and the value the next.
        for first, second in pairwise(value):
            if isinstance(first, str) and (option := _OPTION.fullmatch(first)) and not _is_option(second):
                yield from _named(option[1], second)
        for item in value:
            yield from _found(name, item)
    else:
        yield from _named(name, value)
        if isinstance(value, str):
            yield from _in_text(value)


def _named(name: str, value: Value) -> Iterator[str]:
    if _is_secret(_snake_case(name.lstrip("+~")), value):
        yield name


def _is_secret(name: str, value: Value) -> bool:
    if value is None or isinstance(value, bool | Mapping | list) or value == "":
        return False
    sure = bool(_SURE.fullmatch(name) or _PWD.fullmatch(name))
    if not isinstance(value, str):
        return sure and (bool(re.search("pass|pwd", name.lower())) or value >= _LONG_NUMBER)
    if _ELSEWHERE.match(value):
        return False
    if sure:
        return True
    if _TOKEN.fullmatch(name):
        return " " not in value
    mixed = re.search(r"\d", value) and re.search(r"[A-Za-z]", value)
    return bool(_KEY.fullmatch(name) and len(value) >= 16 and mixed and " " not in value)


def _in_text(text: str) -> Iterator[str]:
    for pattern in (_ASSIGNED, _OPTION_BEFORE):
        for match in pattern.finditer(text):
            yield from _named(match[1], match[2])
    if known := _ITSELF.search(text):
        yield "a password in an address" if known["password"] else f"{known[0][:4]}…"


def _is_option(value: Value) -> bool:
    return isinstance(value, str) and value.startswith("-")


def _snake_case(name: str) -> str:
    """Normalise ``apiKey`` and ``api-key`` to ``api_key``."""
    return _CAMEL.sub("_", name).replace("-", "_")

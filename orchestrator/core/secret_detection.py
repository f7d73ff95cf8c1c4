"""Detect secrets by name or by value: grids, profiles and overrides stay on disk.

A clear name (``api_key``, ``password``) decides alone. ``token`` and ``key`` are also words of machine
learning: there the value counts as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

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
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}"
    r"|(?:AKIA|ASIA)(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}"
    r"|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{16,}|AGE-SECRET-KEY-1\w{16,}"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
)
_ADDRESS = r"\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]+:(?!\$)(?P<password>[^\s/@]+)@"
_PEM = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"
_ITSELF = re.compile(rf"\b(?:sk-[A-Za-z0-9_-]{{16,}}|{_ISSUED})|{_PEM}|\bBearer\s+[\w.~+/-]{{8,}}|{_ADDRESS}")
# The same in files: prose has words such as sk-learn-contrib, and text and code have beginnings of keys.
# The last is a private key in base64, as in a kubeconfig.
_IN_FILE = (
    rf"\b(?:(?<![\w-])sk-(?:[a-z0-9]+-)*\w{{20,}}|{_ISSUED}"
    r"|LS0tLS1CRUdJTi(?:BQUklWQV|BSU0EgUFJJV|BFQyBQUklWQ|BPUEVOU1NI))"
)
_IN_TEXT = re.compile(rf"{_IN_FILE}|{_PEM}[A-Z ]*-----[\s\\nr\"'+]*(?:Proc-Type|[\w+/=]{{16}})")
_IN_SETTINGS = re.compile(rf"{_IN_FILE}|{_PEM}|{_ADDRESS}")
# One of these is in every match, but for an address: looked for first, as most files have none.
_MARKS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "AKIA", "ASIA", "xox"),
    *("AIza", "npm_", "pypi-", "AGE-SECRET-KEY-", "eyJ", "PRIVATE KEY", "LS0tLS1CRUdJTi"),
)
# The same for names of secrets, in lower case.
_WORDS = ("key", "token", "pass", "pwd", "secret", "credential", "auth")
# A name with a value, which may be the only text of the next line; not one with a mapping or a list.
_PAIR = re.compile(
    r"""(?<![\w.-])([A-Za-z_][\w.-]*)\\?["']?[ \t]*[:=]"""
    r"""(?:[ \t]*(?:[>|]-?)?\n[ \t]+(?=\S+[ \t]*$)|[ \t]*)\\?"""
    r"""("[^"\n]*"|'[^'\n]*'|[^\s,#"'{}\[\]]+)""",
    re.MULTILINE,
)
# Values that stand for one to be filled in.
_NO_VALUE = re.compile(r"null|none|true|false|\W*|your.*|change.?me|x+|todo|dummy|placeholder", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[A-Za-z]{0,19}[0-9])(?=[0-9]{0,19}[A-Za-z])[A-Za-z0-9]{20}")
_CHOSEN = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{6,}|[0-9]{6,}")  # people choose words and numbers
_WANDB_KEY = re.compile(r"[0-9a-f]{40}")
# In settings these are references, too.
_REFERENCE = re.compile(r"!|env:|[\w./-]+\.(?:json|ya?ml|toml|txt|pem|key|env)$")
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


def secret_in_file(text: str, *, settings: bool) -> bool:
    """Return whether a file's text holds a secret.

    Issued keys count, and random values of names that are clear. In settings so do passwords in addresses,
    values of clear names that people may have chosen, and random ones of other names.
    """
    marked = any(mark in text for mark in _MARKS) or (settings and "://" in text)
    if marked and (_IN_SETTINGS if settings else _IN_TEXT).search(text):
        return True
    lower = text.lower()
    named = any(word in lower for word in _WORDS)
    return named and any(_is_set(*match.groups(), settings=settings) for match in _PAIR.finditer(text))


def _is_set(name: str, value: str, *, settings: bool) -> bool:
    """Return whether a name with a value in a file is a secret that has one."""
    name, bare = _snake_case(name), value.strip("\"'\\")
    sure = _SURE.fullmatch(name) or _PWD.fullmatch(name)
    other = not sure and (_TOKEN.fullmatch(name) or _KEY.fullmatch(name))
    if not (sure or other) or _NO_VALUE.fullmatch(bare) or _ELSEWHERE.match(bare) or _REFERENCE.match(bare):
        return False
    if not settings:
        return bool(
            _RANDOM.match(bare) and "(" not in bare if sure else name == "key" and _WANDB_KEY.fullmatch(bare)
        )
    if bare.isdecimal() and bare == value:  # in vocabularies words have numbers
        return False
    return bool(_CHOSEN.fullmatch(bare) if sure else _RANDOM.search(bare))


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

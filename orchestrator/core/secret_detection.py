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
    r"|secrets?|credentials?)|(?:.*[_.-])?(?:db|smtp|mysql|redis|ftp|root|ssh)_?pass|.*pass(?:word|wd|phrase)s?",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r".*pass(?:word|wd|phrase)?s?", re.IGNORECASE)
_TOKEN = re.compile(r"(?:.*[_.-])?token", re.IGNORECASE)
_TOKENS = re.compile(r"(?:.*[_.-])?tokens?", re.IGNORECASE)  # for names of variables: HF_TOKENS
_KEY = re.compile(r"(?:.*[_.-])?(?:keys?|auth)", re.IGNORECASE)
_PWD = re.compile(r"(?:.*[_.-])?pwd", re.IGNORECASE)  # as a variable, PWD is the current folder
_LONG_NUMBER = 10**7  # larger than any count of tokens or token id
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Known prefixes of issued keys, and a password in an address. A search takes time in proportion to the text:
# no two attempts read the same long stretch.
_ISSUED = (
    r"(?:gh[pousr]_|hf_|npm_|[rs]k_(?:live|test)_|gsk_|r8_|shp(?:at|ss|ca|pa)_|lin_api_|dckr_pat_|whsec_)"
    r"[A-Za-z0-9]{20,}"
    r"|(?:github_pat|wandb_v1)_\w{20,}|(?:do[opr]_v1_|dapi)[0-9a-f]{32,}"
    r"|(?:gl(?:pat|rt|dt|ptt|cbt|soat)|nvapi|GOCSPX|tskey)-[\w-]{16,}|ya29\.[\w-]{20,}|SG\.[\w-]{22}\.[\w-]{40,}"
    r"|(?:AKIA|ASIA)(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}|(?:Account|SharedAccess)Key=[\w+/]{40,}"
    r"|xox[abeprs][.-][\w-]{10,}|xapp-[0-9]-[\w-]{20,}|hooks\.slack\.com/services/T\w+/B\w+/\w{16,}"
    r"|AIza[\w-]{30,}|pypi-AgE[\w-]{16,}|AGE-SECRET-KEY-1\w{16,}|eyJhcGlfYWRkcmVzcy[\w+/]{20,}"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
)
_ADDRESS = r"\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]+:(?!\$)(?P<password>[^\s/@]+)@(?!sha256:|localhost\b|127\.0\.0\.1\b)"
_PEM = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY"
_ITSELF = re.compile(rf"\b(?:sk-[A-Za-z0-9_-]{{16,}}|{_ISSUED})|{_PEM}|\bBearer\s+[\w.~+/-]{{8,}}|{_ADDRESS}")
# The same in files: prose has words such as sk-learn-contrib, and text and code have beginnings of keys.
# The last are a key of W&B, and a private key in base64, as in a kubeconfig.
_IN_FILE = re.compile(
    rf"\b(?:(?<![\w-])sk-(?:[a-z0-9]+-)*\w{{20,}}|{_ISSUED}"
    r"|Bearer +(?=[A-Za-z._~+/-]{0,19}[0-9])(?=[0-9._~+/-]{0,19}[A-Za-z])[\w.~+/-]{20,}"
    r"|(?i:wandb)[\w. ]{0,9}(?i:key|login)\W{1,9}(?:key\W{1,3})?[0-9a-f]{40}\b"
    r"|LS0tLS1CRUdJTi(?:BQUklWQV|BSU0EgUFJJV|BFQyBQUklWQ|BPUEVOU1NI))"
    rf"|{_PEM}[A-Z ]{{0,10}}-----[\s\\nr\"'+]{{0,40}}(?:[A-Z][\w-]+: |[\w+/=]{{16}})"
)
_IN_ADDRESS = re.compile(_ADDRESS)
# One of these is in every match, but for an address: looked for first, as most files have none.
_MARKS = (
    *("PRIVATE KEY", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "AKIA"),
    *("ASIA", "xox", "AIza", "npm_", "pypi-", "AGE-SECRET-KEY-", "eyJ", "LS0tLS1CRUdJTi", "k_live_"),
    *("k_test_", "gsk_", "r8_", "shp", "lin_api_", "dckr_pat_", "whsec_", "wandb", "WANDB", "_v1_", "dapi"),
    *("nvapi-", "glrt-", "gldt-", "glptt-", "glcbt-", "glsoat-", "GOCSPX-", "tskey-", "ya29.", "SG."),
    *("Key=", "xapp-", "hooks.slack.com", "Bearer"),
)
# The same for names of secrets, in lower case.
_WORDS = ("key", "token", "pass", "pwd", "secret", "credential", "auth")
# A name with a value, which may be the only text of the next line; not one with a mapping or a list.
_PAIR = re.compile(
    r"""(?<![\w.-])-{0,2}([A-Za-z_][\w.-]*)\\?["']?\]?[ \t]*(?:=>|[:=>])"""
    r"""(?:[ \t]*(?:[>|]-?)?\n[ \t]+(?=\S+[ \t]*$)|[ \t]*)\\?"""
    r"""("[^"\n]*"|'[^'\n]*'|[^\s,#"'{}\[\]<]+)""",
    re.MULTILINE,
)
# Values that stand for one to be filled in.
_NO_VALUE = re.compile(r"null|none|true|false|\W*|your.*|change.?me|x+|todo|dummy|placeholder", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[A-Za-z]{0,19}[0-9])(?=[0-9]{0,19}[A-Za-z])[A-Za-z0-9]{20}")
_CHOSEN = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{6,}|[0-9]{6,}")  # people choose words and numbers
# Of passwords, words without a number too, but not those of forms, types, examples and other languages.
_TYPED = re.compile(r"[^\s()<>\[\]$.:;/\\]{8,}|(?:[a-z]{3,} ){3,}[a-z]{3,}")
_DESCRIBES = re.compile(
    r"pass|pwd|secret|token|key|auth|credential|log.?in|user|admin|guest|root|string|text|char|field|input|widget"
    r"|requir|optional|mandator|valid|incorrect|wrong|missing|empty|hidden|redact|mask|remov|sensitive|private"
    r"|abled|default|example|sample|demo|test|fake|mock|dummy|placehold|change|your|crypt|hash|plain|null|undefined"
    r"|unknown|anonym|insecure|postgres|mysql|mariadb|mongo|rabbit|kennwort|wachtwoord|contrase|enter|letter",
    re.IGNORECASE,
)
_WANDB_KEY = re.compile(r"[0-9a-f]{40}")
# In settings these are references, too: also names of variables, and of environments.
_REFERENCE = re.compile(
    r"!|env[:.]|os\.environ|[A-Z][A-Z0-9]*_[A-Z0-9_]+$|[\w./-]+-v[0-9]+$|[\w./-]+\.(?:json|ya?ml|toml|txt|pem|key|env)$"
)
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


def secret_in_file(text: str, *, settings: bool, chosen: bool = True) -> bool:
    """Return whether a file's text holds a secret.

    Issued keys count, and random values of names that are clear; where people may have chosen values so do
    quoted passwords and those in addresses. In settings so do values of all clear names, and random ones of
    other names.
    """
    if any(mark in text for mark in _MARKS) and _IN_FILE.search(text):
        return True
    if chosen and "://" in text:
        found = (match["password"] for match in _IN_ADDRESS.finditer(text))
        if any(_is_chosen(password, settings=settings) for password in found):
            return True
    lower = text.lower()
    if not any(word in lower for word in _WORDS):
        return False
    return any(_is_set(*match.groups(), settings=settings, chosen=chosen) for match in _PAIR.finditer(text))


def _is_chosen(password: str, *, settings: bool) -> bool:
    """Return whether a password in an address or a text is a real one."""
    if _NO_VALUE.fullmatch(password) or _ELSEWHERE.match(password):
        return False
    if settings and _CHOSEN.fullmatch(password):
        return True
    return bool(_TYPED.fullmatch(password) and not _DESCRIBES.search(password))


def _is_set(name: str, value: str, *, settings: bool, chosen: bool) -> bool:
    """Return whether a name with a value in a file is a secret that has one."""
    variable, name, bare = name, _snake_case(name), value.strip("\"'\\")
    sure = _SURE.fullmatch(name) or _PWD.fullmatch(name)
    other = not sure and (_TOKEN.fullmatch(name) or _KEY.fullmatch(name))
    if not (sure or other) or _NO_VALUE.fullmatch(bare) or _ELSEWHERE.match(bare) or _REFERENCE.match(bare):
        return False
    if settings and bare.isdecimal() and bare == value:  # in vocabularies words have numbers
        return False
    # Unquoted, in text and code, a value is a word of them, but for that of a variable.
    clear = settings or bare != value or (variable.isupper() and bare.isalnum())
    if chosen and clear and _PASSWORD.fullmatch(name) and _is_chosen(bare, settings=settings):
        return True
    if not settings:
        return bool(
            _RANDOM.match(bare) and "(" not in bare if sure else name == "key" and _WANDB_KEY.fullmatch(bare)
        )
    return bool(_CHOSEN.fullmatch(bare) if sure else _RANDOM.search(bare) and not _reads_as_words(bare))


def _reads_as_words(value: str) -> bool:
    """Return whether most of a value is words, as in KeyCorridorS3R1: random ones have few such."""
    return 2 * sum(map(len, re.findall("[A-Z][a-z]{2,}", value))) > len(value)


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

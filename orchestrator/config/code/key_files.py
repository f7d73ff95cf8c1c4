"""Recognise files that may hold keys, by name and by content: no copy of a project's code has them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from orchestrator.config.file_kinds import is_source
from orchestrator.core.secret_detection import secret_in_file

# Where programs keep logins.
_NAMES = re.compile(
    r"id_(rsa|dsa|ecdsa|ed25519)[^.]*|(deploy|ssh)[-_](key|rsa|ed25519)|[._]?netrc|\.git-credentials|\.pypirc"
    r"|\.npmrc|\.yarnrc(\.yml)?|\.envrc|(.+)?\.env|\.env[._-].+|env\.local|kubeconfig(\.ya?ml)?|rclone\.conf"
    r"|\.?my\.cnf|\.(vault-token|pgpass|boto|s3cfg|dockercfg|htpasswd)"
    r"|kaggle\.json|(application_default_)?credentials(\.(json|ya?ml|toml|ini|db))?"
    r"|(client_?secrets?|service[-_]?account).*\.json|(.+[._-])?secrets?(\.enc)?\.(ya?ml|json|toml|ini|cfg|conf|txt)"
    r"|(api[-_]?keys?|passwords?|token|(api|access|auth|hf)[-_]?tokens?)\.(ya?ml|json|toml|ini|cfg|conf|txt)"
    r"|\.?(hf|huggingface|github|gitlab|wandb|api|access|auth)[-_]?(token|api_?key|key)(\.txt)?"
    r"|cookies\.(txt|sqlite)|cookiejar|.+\.(tfstate|tfvars)(\.json)?"
    r"|.+\.(pem|key|p12|pfx|jks|keystore|keyring|kdbx|ovpn|ppk|gpg)",
    re.IGNORECASE,
)
_OLDER = re.compile(r"(\.(bak|backup|old|orig|save)|~)$", re.IGNORECASE)
_TEMPLATES = re.compile(r".+[._-](pub|example|sample|template|dist)(\.\w+)?", re.IGNORECASE)
_PLACES = re.compile(
    r"/\.(ssh|gnupg|aws|azure|kube|gcloud|huggingface|kaggle|oci|terraform|config/gcloud)/"
    r"|/\.docker/config\.json$|/\.cache/huggingface/(token|stored_tokens)$"
)
# Settings, in which a name and its value stand on a line.
_SETTINGS = re.compile(
    r".+\.(ya?ml|json|toml|ini|cfg|conf|env|properties|xml|(ba|z)?sh|sbatch)|\.[^.]+|(?!readme$)[^.]+",
    re.IGNORECASE,
)
# Their passwords are made up, or words of a language.
_FIXTURES = re.compile(
    r"(.*/)?(tests?|testdata|__tests__|fixtures?|i18n|locales?|translations)/.*"
    r"|(.*/)?(conftest\.py|(test_|i18n|locale)[^/]*|[^/]*[._-](tests?|spec|fixtures?)\.[^/]*)",
    re.IGNORECASE,
)
_MOST_READ = 1 << 20
_LARGEST_SETTINGS = 1 << 18


def may_hold_key(path: Path, name: str) -> bool:
    """Return whether the file at ``path`` may hold a key; ``name`` is its path in the project.

    Reads a file again only after a change. Raises ``OSError`` if it cannot be read.
    """
    if is_named_like_key(name):
        return True
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        mark = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        known = _known.get(os.fspath(path))
        if known is None or known[0] != mark:
            known = _known[os.fspath(path)] = (mark, has_key(name, file.read(_MOST_READ)))
        return known[1]


_known: dict[str, tuple[tuple[int, ...], bool]] = {}


def is_named_like_key(name: str) -> bool:
    """Return whether programs keep logins in files of this name; sources and templates are none."""
    last = _OLDER.sub("", name.rpartition("/")[2])
    if is_source(last) or _TEMPLATES.fullmatch(last):
        return False
    return bool(_NAMES.fullmatch(last) or _PLACES.search(f"/{name}"))


def has_key(name: str, content: bytes) -> bool:
    """Return whether the content of a file of this name has a key."""
    if b"\0" in content:
        return False
    last = name.rpartition("/")[2]
    fixture = _FIXTURES.fullmatch(name) is not None
    settings = not fixture and len(content) <= _LARGEST_SETTINGS and bool(_SETTINGS.fullmatch(last))
    return secret_in_file(content.decode(errors="replace"), settings=settings, chosen=not fixture)

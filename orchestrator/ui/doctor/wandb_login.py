"""Check W&B: where runs log, and whether there is a login. No key is shown, no server contacted.

Runs log offline unless ``WANDB_MODE`` is online and ``WANDB_API_KEY`` is set, so that none shows up empty.
Offline logs are complete, and `orchestrate sync --wandb` sends them.
"""

from __future__ import annotations

import configparser
import netrc
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.core.findings import Finding, not_here, ok, problem, warning
from orchestrator.core.machine.installation import install_package, installed_version

_SERVER = "https://api.wandb.ai"
_MODES = ("online", "offline", "shared", "disabled", "dryrun", "run")
_SHORTEST_KEY = 40
_KEY = "WANDB_API_KEY"


@dataclass(frozen=True)
class _Login:
    """A login. ``by``: where its key is from. ``wrong``: why it is not a key."""

    by: str
    wrong: str = ""


def wandb(_: Path) -> Finding:
    """Check W&B's login and mode."""
    name, version = "W&B", installed_version("wandb")
    if version is None:
        return not_here(name, "not installed: runs cannot have the logger wandb", install_package("wandb"))
    host, mode = _host(), os.environ.get("WANDB_MODE", "")
    login = _login(host)
    if login is not None and login.wrong:
        fix = f"wandb login --relogin, or copy the key again from {_page(host)}"
        return problem(name, f"{login.by} holds no key for {host}: {login.wrong}", fix)
    if mode not in ("", *_MODES):
        return warning(name, f"WANDB_MODE is {mode!r}, so runs log offline", "set it to online or offline")
    if login is None:
        return _without_login(name, version, host, mode)
    if mode == "online" and login.by != _KEY:
        found = f"WANDB_MODE is online, but runs take their key from {_KEY} only: they log offline"
        return warning(name, found, f"export {_KEY}, or send them later: orchestrate sync --wandb")
    if mode == "online":
        return ok(
            name, f"{version}: runs log to {host}, by the key in {_KEY} (whether it is valid was not asked)"
        )
    sends = f"`orchestrate sync --wandb` sends them to {host}"
    return ok(name, f"{version}: runs log offline, and {sends}, by the login in {login.by}")


def _without_login(name: str, version: str, host: str, mode: str) -> Finding:
    found = f"no login for {host}: runs log offline, complete, and cannot be sent from here"
    if mode == "online":
        fix = f"export {_KEY}; or unset WANDB_MODE, `wandb login`, and later `orchestrate sync --wandb`"
        return warning(name, f"WANDB_MODE is online, but there is {found}", fix)
    fix = "if you use W&B: `wandb login`, once; then `orchestrate sync --wandb`"
    return warning(name, f"{version}, {found}", fix)


def _login(host: str) -> _Login | None:
    """Return the login for the server as W&B's client finds it: the environment first, then netrc."""
    if key := os.environ.get(_KEY):
        return _Login(_KEY, _wrong(key))
    file = _netrc_file()
    try:
        login = netrc.netrc(file).authenticators(host)
    except FileNotFoundError:
        return None
    except netrc.NetrcParseError as error:
        return _Login(str(file), f"line {error.lineno} cannot be read")
    except (OSError, UnicodeDecodeError) as error:
        return _Login(str(file), getattr(error, "strerror", None) or "it is no text")
    if login is None:
        return None
    return _Login(str(file), _wrong(login[2] or ""))


def _wrong(key: str) -> str:
    """Return why W&B's client would refuse the key, without a character of it."""
    secret = key.partition("-")[2] or key
    if key.count(".") == 2:
        return ""  # a token that its own servers make
    if not re.fullmatch(r"[\w-]+", secret):
        return "it has other characters than letters, digits and underscores"
    if len(secret) < _SHORTEST_KEY:
        return f"it has {len(secret)} characters, and a key has {_SHORTEST_KEY} or more"
    return ""


def _netrc_file() -> Path:
    if named := os.environ.get("NETRC"):
        return Path(os.path.expanduser(named))
    usual, other = (os.path.expanduser(name) for name in ("~/.netrc", "~/_netrc"))
    return Path(other if os.path.exists(other) and not os.path.exists(usual) else usual)


def _host() -> str:
    """Return the server's name, with its port if it has one."""
    url = os.environ.get("WANDB_BASE_URL") or _setting("base_url") or _SERVER
    try:
        place = urlsplit(url if "//" in url else f"//{url}").netloc or urlsplit(_SERVER).netloc
        return place.rpartition("@")[2]  # a name and password may stand before it
    except ValueError:  # no address at all
        return url.rpartition("@")[2]


def _setting(key: str) -> str | None:
    """Read a setting from the files of `wandb login` and `wandb init`; the current folder's comes first."""
    own = os.environ.get("WANDB_CONFIG_DIR") or os.path.expanduser("~/.config/wandb")
    for file in (Path("wandb", "settings"), Path(own, "settings")):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(file)
            if parser.has_option("default", key):
                return parser.get("default", key)
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # so does W&B
    return None


def _page(host: str) -> str:
    """Return the address where a person finds the key."""
    return f"https://{host.removeprefix('api.')}/authorize"

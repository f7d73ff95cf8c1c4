"""Read each kind of profile key: a node in, a checked value out, or an error with its position."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping

from orchestrator.config.backends import ALTERNATIVES, backend_names
from orchestrator.config.grid.resources import OTHER_NAMES, by_other_name, read_count
from orchestrator.config.profiles.sbatch_options import OWNED_OPTIONS, contradiction, option_name
from orchestrator.config.yaml_files.nodes import (
    Entries,
    Items,
    KeyNode,
    Node,
    Position,
    Scalar,
    YamlFile,
    did_you_mean,
    kind,
    shown,
)
from orchestrator.core.errors import HostError, PlacedError
from orchestrator.core.machine.ssh import Host
from orchestrator.core.secret_detection import looks_secret, secret_in_text
from orchestrator.core.types import Value

Reader = Callable[[str, Node, YamlFile], Value]
Names = Callable[[], Collection[str]]

# Other names for our keys.
_CALLED = {
    "options": "gres",
    "setup": "activate venv",
    "python": "command container",
    "environment": "env",
    "ssh": "host login_node",
    "accelerators": "accelerator",
    "infra": "cloud region",
    "disk": "disk_size",
    "image": "image_id",
    "spot": "use_spot",
    "store": "bucket",
    "instances": "num_nodes",
    "time": "max_time",
    "modules": "module",
    "partition": "queue",
}
OTHER_KEYS = {**OTHER_NAMES, **by_other_name(_CALLED)}
# Options beside the keys that a script can omit.
_FORBIDDABLE = ("gres", "mem-per-gpu", "no-requeue", "nodes", "ntasks", "open-mode", "requeue")
_GPUS = re.compile(r"(?:(?P<type>[A-Za-z0-9][A-Za-z0-9._-]*):)?(?P<count>[0-9]{1,6})")
_ACCELERATOR = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_OPTION = re.compile(r"[a-z][a-z0-9-]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Far above any price; sums of it stay in range.
_MOST_PER_HOUR = 1_000_000
_VARIABLE = re.compile(r"\$[A-Za-z_{]")
# A reference such as NAME=$(cat file) is no secret itself.
_ASSIGNED = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)=(?![\"']?\$)(?=[^\s;&|])")


def read_text(key: str, node: Node, source: YamlFile) -> str:
    """Read text on one line. Numbers stay as written: an account may be called 0123."""
    if not isinstance(node, Scalar) or node.value is None or isinstance(node.value, bool):
        several = isinstance(node, Items) and key in ("infra", "instance_type")
        raise source.unexpected(key, node, "text", ALTERNATIVES if several else None)
    text = node.text.strip()
    if not text or not text.isprintable():
        raise source.unexpected(key, node, "text on one line without control characters")
    return text


def read_ssh(key: str, node: Node, source: YamlFile) -> str:
    """Read a machine's ssh name."""
    text = read_text(key, node, source)
    try:
        return Host(text).name
    except HostError as error:
        raise source.error(node.at, f"{key}: {error}", error.hint) from None


def count_from(least: int) -> Reader:
    """Return a reader of whole numbers from ``least``."""
    return lambda key, node, source: read_count(key, node, least, source)


def one_of(*names: str) -> Reader:
    """Return a reader of one of these names."""

    def read(key: str, node: Node, source: YamlFile) -> str:
        text = node.text if isinstance(node, Scalar) else ""
        if text not in names:
            raise source.unexpected(key, node, f"one of: {', '.join(names)}", did_you_mean(text, names))
        return text

    return read


def read_backend(key: str, node: Node, source: YamlFile) -> Value:
    return one_of(*backend_names())(key, node, source)


def read_gpus(key: str, node: Node, source: YamlFile) -> tuple[str | None, int]:
    """Read a number of GPUs, with or without a type."""
    gpus = _GPUS.fullmatch(node.text.strip()) if isinstance(node, Scalar) else None
    if gpus is None:
        raise source.unexpected(key, node, "a number, or a type and a number such as l4:2")
    return gpus["type"], int(gpus["count"])


def read_accelerators(key: str, node: Node, source: YamlFile) -> str:
    """Read GPUs in SkyPilot's names, always with a number: ``L4`` is ``L4:1``, and so is ``{L4: 1}``."""
    hint = None
    if isinstance(node, Entries) and len(node.entries) == 1:
        [entry] = node.entries
        count = entry.node.text if isinstance(entry.node, Scalar) else "?"
        node = Scalar(f"{entry.key}:{count}", False, node.at, f"{entry.key}:{count}")
    elif not isinstance(node, Scalar):
        hint = ALTERNATIVES
    gpus = _GPUS.fullmatch(node.text.strip()) if isinstance(node, Scalar) else None
    if isinstance(node, Scalar) and _ACCELERATOR.fullmatch(node.text.strip()):
        return f"{node.text.strip()}:1"
    if gpus is None or gpus["type"] is None or not int(gpus["count"]):
        raise source.unexpected(key, node, "a GPU and a number such as L4:1", hint)
    return f"{gpus['type']}:{int(gpus['count'])}"


def read_store(key: str, node: Node, source: YamlFile) -> str:
    """Read the address of a store: a bucket, a folder on a host, or a mounted folder."""
    text = read_text(key, node, source)
    host, colon, folder = text.partition(":")
    if text.startswith("/") or (text.startswith("s3://") and len(text) > len("s3://")):
        return text.rstrip("/") or "/"
    if not colon or "/" in host or not folder or folder.startswith("//"):
        raise source.unexpected(key, node, "s3://BUCKET/FOLDER, HOST:FOLDER or a folder: /mnt/store")
    try:
        return f"{Host(host).name}:{folder}"
    except HostError as error:
        raise source.error(node.at, f"{key}: {error}", error.hint) from None


def read_names(key: str, node: Node, source: YamlFile) -> tuple[str, ...]:
    """Read names of variables."""
    names = read_texts(key, node, source)
    for name in names:
        _require_name(key, name, node.at, source)
    return names


def _require_name(key: str, name: str, at: Position, source: YamlFile) -> None:
    if not _NAME.fullmatch(name):
        text = f"{key}: found {shown(name)}, expected a name of letters, digits and underscores"
        raise source.error(at, text)


def read_file_mounts(key: str, node: Node, source: YamlFile) -> Mapping[str, str]:
    """Read a mapping of remote to local paths."""
    if not isinstance(node, Entries):
        raise source.unexpected(key, node, "a mapping such as {~/data: ~/my/data}")
    return {entry.key: read_text(f"{key}.{entry.key}", entry.node, source) for entry in node.entries}


def read_price(key: str, node: Node, source: YamlFile) -> float:
    """Read US dollars per hour."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_PER_HOUR:
        most = f"US dollars for one job and hour, {_MOST_PER_HOUR:,} at most"
        raise source.unexpected(key, node, most)
    return float(value)


def read_texts(key: str, node: Node, source: YamlFile) -> tuple[str, ...]:
    """Read a list of texts."""
    if not isinstance(node, Items):
        raise source.unexpected(key, node, "a list such as [first, second]")
    return tuple(read_text(key, item, source) for item in node.items)


def read_python(key: str, node: Node, source: YamlFile) -> tuple[str, ...]:
    """Read the command that starts Python: words or a list of them."""
    if isinstance(node, Items):
        words = read_texts(key, node, source)
    else:
        try:
            words = tuple(shlex.split(read_text(key, node, source)))
        except ValueError as error:
            raise source.error(
                node.at, f"{key}: found {kind(node)}, which is no command: {str(error).lower()}"
            ) from None
    if not words or not all(words):
        raise source.error(
            node.at,
            f"{key}: found no command, expected one that starts Python",
            "such as uv run --no-sync python",
        )
    for word in words:
        _refuse_variable(key, word, node, source)
        _refuse_assigned_secrets(key, word, node, source)
    return words


def read_setup(key: str, node: Node, source: YamlFile) -> tuple[str, ...]:
    """Read lines of shell: a list of them, or one block of text."""
    items = node.items if isinstance(node, Items) else (node,)
    lines: list[str] = []
    for item in items:
        if not isinstance(item, Scalar) or not isinstance(item.value, str):
            raise source.unexpected(key, item, "lines of shell")
        for line in item.text.rstrip("\n").split("\n"):
            if not line.replace("\t", " ").isprintable():
                raise source.error(
                    item.at, f"{key}: found {shown(line)}, expected a line without control characters"
                )
            _refuse_assigned_secrets(key, line, item, source)
            if line.lstrip().startswith("#SBATCH"):
                raise source.error(
                    item.at,
                    f"{key}: found {shown(line.strip())}, an option of sbatch, which stands elsewhere",
                    "write it as a key of its own, or into options: {name: value}",
                )
            lines.append(line)
    return tuple(lines)


def read_environment(key: str, node: Node, source: YamlFile) -> Mapping[str, str]:
    """Read variables for the job; refuse secrets."""
    if not isinstance(node, Entries):
        raise source.unexpected(key, node, "a mapping such as {NAME: value}")
    variables = {}
    for entry in node.entries:
        _require_name(key, entry.key, entry.at, source)
        if looks_secret(entry.key):
            raise _secret(key, entry.key, entry, source)
        value = entry.node
        if not isinstance(value, Scalar) or not value.text.isprintable():
            raise source.unexpected(f"{key}.{entry.key}", value, "text on one line")
        _refuse_variable(f"{key}.{entry.key}", value.text, value, source)
        _refuse_assigned_secrets(f"{key}.{entry.key}", value.text, value, source)
        variables[entry.key] = value.text
    return variables


def _refuse_variable(key: str, text: str, node: Node, source: YamlFile) -> None:
    """Refuse a variable in text that no shell expands."""
    if _VARIABLE.search(text):
        raise source.error(
            node.at,
            f"{key}: found {shown(text)}, where $VARIABLES are not filled in",
            "write the value out; lines of setup are shell, such as export NAME=$HOME/cache",
        )


def _refuse_assigned_secrets(key: str, text: str, node: Node, source: YamlFile) -> None:
    for name in _ASSIGNED.findall(text):
        if looks_secret(name):
            raise _secret(key, name, node, source)
    if secret := secret_in_text(text):
        raise _secret(key, secret, node, source)


def _secret(key: str, text: str, node: Node | KeyNode, source: YamlFile) -> PlacedError:
    name = text if _NAME.fullmatch(text) else "it"
    return source.error(
        node.at,
        f"{key}: found {text}, which looks like a secret: profiles and scripts stay on disk",
        f"export {name} in the shell that submits: jobs inherit its environment",
    )


def read_options(own: Names, key: str, node: Node, source: YamlFile) -> tuple[tuple[str, str | None], ...]:
    """Read further options of sbatch; ``own``: those that are keys themselves."""
    if not isinstance(node, Entries):
        raise source.unexpected(key, node, "a mapping such as {exclusive: true, nice: 10}")
    options: dict[str, str | None] = {}
    for entry in node.entries:
        name = option_name(entry.key)
        refusal = "for the second time" if name in options else _refusal(name, own())
        if refusal:
            raise source.error(entry.at, f"{key}: found {shown(entry.key)}, {refusal}")
        value = _option_value(f"{key}.{entry.key}", entry.node, source)
        if problem := contradiction(name, value):
            raise source.error(entry.at, f"{key}: found {shown(entry.key)}: {problem[0]}", problem[1])
        options[name] = value
    return tuple(options.items())


def _refusal(name: str, own: Collection[str]) -> str | None:
    if not _OPTION.fullmatch(name):
        return "expected the long name of an option of sbatch, without dashes before it"
    if name in OWNED_OPTIONS:
        return "which the program sets itself"
    if name in own:
        return "which is a key of its own: write it beside options, not in them"
    return None


def _option_value(key: str, node: Node, source: YamlFile) -> str | None:
    if isinstance(node, Scalar) and node.value is True:
        return None
    if isinstance(node, Scalar) and (node.value is None or node.value is False):
        raise source.unexpected(key, node, "a value, or true for an option that has none")
    return read_text(key, node, source)


def read_forbidden(own: Names, key: str, node: Node, source: YamlFile) -> frozenset[str]:
    """Read the options that a site refuses; ``own``: those that are keys themselves."""
    known = [*own(), *_FORBIDDABLE]
    names = [option_name(text.lstrip("-")) for text in read_texts(key, node, source)]
    for name in names:
        if name not in known:
            raise source.error(
                node.at,
                f"{key}: found {shown(name)}, expected options that scripts can do without, such as mem",
                did_you_mean(name, known, OTHER_NAMES),
            )
    return frozenset(names)


def read_required(keys: Names, key: str, node: Node, source: YamlFile) -> tuple[str, ...]:
    """Parse required keys, or alternatives such as ``setup or modules``."""
    required = read_texts(key, node, source)
    for name in (name for one in required for name in one.split(" or ")):
        if name not in keys():
            raise source.error(
                node.at,
                f"{key}: found {shown(name)}, expected keys of a profile such as account",
                did_you_mean(name, keys(), OTHER_KEYS),
            )
    return required

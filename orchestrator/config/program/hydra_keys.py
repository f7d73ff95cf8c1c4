"""Read the keys of a program's config file, that it takes as ``key=value``: Hydra and OmegaConf."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.config.grid.hydra_sweeps import SweepTextError, sweep_values
from orchestrator.config.program.options import Option, Program, keywords, text_of
from orchestrator.config.yaml_files.nodes import Entries, Node, YamlFile, plain_value, read_nodes
from orchestrator.config.yaml_files.text import read_text
from orchestrator.core.types import Value

_SAFE = re.compile(r"[\w./:@%+-]+")


def config_options(path: Path) -> list[Option]:
    """Return the keys of the config file of ``hydra.main``, or of files that ``OmegaConf.load`` reads.

    Raises :class:`GridError` for a config file that cannot be read.
    """
    found: dict[str, Option] = {}
    for root in _configs(path):
        found |= {option.key: option for option in _options(root)}
    return list(found.values())


def config_sweep(path: Path) -> dict[str, list[Value]]:
    """Return the values of each key of ``hydra.sweeper.params``. Raises :class:`GridError`."""
    found: dict[str, list[Value]] = {}
    for root in _configs(path):
        node: Any = plain_value(root)
        for key in ("hydra", "sweeper", "params"):
            node = node.get(key) if isinstance(node, dict) else None
        for key, text in node.items() if isinstance(node, dict) else ():
            try:
                found[key] = sweep_values(str(text)) or [text]
            except SweepTextError:
                found[key] = [str(text)]
    return found


def _configs(path: Path) -> Iterator[Node]:
    program = Program(path)
    files: list[Path] = []
    for call in program.called("hydra.main"):
        words = keywords(call)
        name = text_of(words.get("config_name"))
        files.append(
            path.parent
            / text_of(words.get("config_path")).removeprefix("None")
            / re.sub(r"(\.yaml)?$", ".yaml", name, count=1)
        )
    if any(program.called("OmegaConf.from_cli")):
        files += [
            path.parent / text_of(call.args[0]) for call in program.called("OmegaConf.load") if call.args
        ]
    for file in files:
        if file.is_file():
            source = YamlFile(str(file), noun="config")
            yield read_nodes(read_text(file, source, lambda _: ""), source)


def _options(node: Node, prefix: str = "") -> Iterator[Option]:
    for entry in node.entries if isinstance(node, Entries) else ():
        key = f"{prefix}{entry.key}"
        if key == "defaults":
            yield from _groups(plain_value(entry.node))
        elif isinstance(entry.node, Entries) and entry.node.entries:
            yield from _options(entry.node, f"{key}.") if key != "hydra" else ()
        else:
            yield _option(key, plain_value(entry.node))


def _groups(defaults: Value) -> Iterator[Option]:
    """Yield the groups of a defaults list, such as ``optimizer: adam``."""
    for choice in defaults if isinstance(defaults, list) else ():
        for group, name in choice.items() if isinstance(choice, dict) else ():
            if isinstance(name, str) and " " not in group and "override" not in group:
                yield _option(group.lstrip("/"), name)


def _option(key: str, value: Value) -> Option:
    items = (f"{key}={{{key}}}",)
    if value == "???":
        return Option(key, items, required=True)
    items_of = value if isinstance(value, list) else [value]
    unsafe = any(
        isinstance(one, dict) or (isinstance(one, str) and not _SAFE.fullmatch(one)) for one in items_of
    )
    return Option(key, items, value, left_out=f"its value is {value}" if unsafe else "")

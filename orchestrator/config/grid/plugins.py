"""Parse the section `plugins`: packages with tasks, models and algorithms for the trainer."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.config.trainers import TrainerSpec
from orchestrator.config.yaml_files.nodes import Node, YamlFile, kind, texts
from orchestrator.core.types import PluginSource

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INSTALLED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def read_plugins(node: Node | None, spec: TrainerSpec, source: YamlFile) -> tuple[PluginSource, ...]:
    """Parse the plug-ins named by one text or a list of them.

    A text with a slash, ``.`` or ``..`` is the folder of a package, relative to the grid file; any other is
    the name of an installed package. Raises :class:`GridError`.
    """
    if node is None:
        return ()
    if not spec.takes_plugins:
        raise source.error(node.at, f"plugins: found {kind(node)}, but the trainer {spec.name} takes none")
    plugins: dict[str, PluginSource] = {}
    expected = "the folder of a package or an installed one's name"
    for text, item in texts("plugins", node, source, expected, "such as plugins: ./my_marl"):
        plugin = _plugin(text, item, source)
        if plugin.name in plugins:
            raise source.error(item.at, f"plugins: found {plugin.name} twice", "remove or rename one of them")
        plugins[plugin.name] = plugin
    return tuple(plugins.values())


def _plugin(text: str, item: Node, source: YamlFile) -> PluginSource:
    if "/" not in text and text not in (".", ".."):
        if not _INSTALLED.fullmatch(text):
            raise source.error(item.at, f"plugins: found {text!r}, expected the name of an installed plug-in")
        return PluginSource(text)
    folder = (Path(source.name).absolute().parent / Path(text).expanduser()).resolve()
    if not _NAME.fullmatch(folder.name):
        raise source.error(
            item.at,
            f"plugins: found the folder {folder.name!r}, expected a name that Python can import: letters, "
            "digits and underscores",
        )
    return PluginSource(folder.name, str(folder))

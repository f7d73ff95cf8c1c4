"""Hash the code of a trainer."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestrator.config.code.syntax_hash import syntax_hash
from orchestrator.config.trainers import TrainerSpec, plugin_folder
from orchestrator.core.types import PluginSource


@cache
def code_id(spec: TrainerSpec) -> str:
    """Hash the training code into 12 hexadecimal digits.

    It consists of the trainer's sources, its packages' versions and its plug-ins' files. Two results with
    different ids may differ although their runs are the same. Comments, docstrings, import statements and the
    names of modules change nothing.
    """
    digest = hashlib.sha256()
    for package in spec.packages:
        try:
            digest.update(f"{package}=={version(package)}\n".encode())
        except PackageNotFoundError:
            digest.update(f"{package} absent\n".encode())
    files = {file for module in spec.source for file in _sources(module)}
    for text in sorted(map(_source_hash, files)):
        digest.update(text.encode() + b"\n")
    for source in spec.plugins:
        _add_plugin(digest, source)
    return digest.hexdigest()[:12]


def _source_hash(file: Path) -> str:
    """Hash one source file: a module by its syntax, a preset by content and name."""
    content = file.read_bytes()
    if file.suffix == ".py":
        return syntax_hash(content)
    return f"{file.name} {hashlib.sha256(content).hexdigest()}"


def _add_plugin(digest: hashlib._Hash, source: PluginSource) -> None:
    """Add every file of the plug-in's package with its relative path: data files decide results, too."""
    folder = plugin_folder(source)
    digest.update(f"plug-in {source.name}\n".encode())
    for file in sorted(_plugin_files(folder)) if folder is not None else ():
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(folder or file).as_posix()}\0{content}\n".encode())


def _plugin_files(folder: Path) -> Iterator[Path]:
    """Yield the files, through links too: in a code snapshot, ignored files are links."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        files = (Path(place, name) for name in names if not name.startswith("."))
        yield from (file for file in files if file.is_file())


def _sources(module: str) -> Iterator[Path]:
    """Yield the Python and YAML files of a module or package, without importing it."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return
    base = Path(spec.origin).parent.joinpath(*rest)
    if not rest and not spec.submodule_search_locations:
        yield Path(spec.origin)
    elif base.is_dir():
        yield from sorted(path for path in base.rglob("*") if path.suffix in (".py", ".yaml"))
    else:
        yield base.with_suffix(".py")

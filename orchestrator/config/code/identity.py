"""Hash the code of a trainer."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestrator.config.code.syntax import read_source
from orchestrator.config.trainers import TrainerSpec, plugin_folder
from orchestrator.core.types import PluginSource

# The walk goes through these beside the trainer's own package ...
_DECIDING = ("jobs.hydra", "jobs.trainers", "jobs.training", "orchestrator.core.hydra_text")
# ... but for what checks before a run starts, words errors, records, or watches processes.
_DECIDES_NOTHING = (
    "jobs.hydra.checking",
    "jobs.hydra.spelling",
    "jobs.trainers.actor_critic.memory",
    "jobs.trainers.amounts",
    "jobs.trainers.benchmarl.configuration.spelling",
    "jobs.training.processes",
    "jobs.training.records",
)


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
    for text in sorted(sources(spec).values()):
        digest.update(text.encode() + b"\n")
    for source in spec.plugins:
        _add_plugin(digest, source)
    return digest.hexdigest()[:12]


def sources(spec: TrainerSpec) -> dict[Path, str]:
    """Return the hashes of the files that decide the trainer's results: modules and settings in YAML.

    They are the module of ``train``, what it imports of the trainer's own package and of the modules for all
    trainers, directly or not, ``source`` likewise, and YAML files beside these in a package.
    """
    roots = (spec.train.partition(":")[0], *spec.source)
    modules = _Modules({root.partition(".")[0] for root in roots})
    modules.walk(roots)
    return modules.hashes


class _Modules:
    """Modules that decide a result, found by import statements without importing them."""

    def __init__(self, own: set[str]) -> None:
        self.hashes: dict[Path, str] = {}
        self._own = own - {"jobs", "orchestrator"}
        self._places = {top: place for top in {*own, "jobs", "orchestrator"} if (place := _place(top))}
        self._seen: set[str] = set()

    def walk(self, roots: Iterable[str]) -> None:
        """Add these modules, of a package all, and what they import."""
        left = [found for root in roots for found in (root, *self._below(root))]
        self._seen |= set(left)
        while left:
            module = left.pop()
            imported = {name for name in self._add(module) if self._decides(name)} - self._seen
            self._seen |= imported
            left += imported

    def _decides(self, module: str) -> bool:
        if module.partition(".")[0] in self._own:
            return True
        return _within(module, _DECIDING) and not _within(module, _DECIDES_NOTHING)

    def _below(self, package: str) -> Iterator[str]:
        """Yield the modules of a package, and add its YAML files."""
        folder = self._path(package)
        if folder is None or not folder.is_dir():
            return
        for file in folder.rglob("*.yaml"):
            self._add_settings(file)
        for file in folder.rglob("*.py"):
            parts = file.relative_to(folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")])

    def _add(self, module: str) -> Iterable[str]:
        """Add the module's file and settings; return its packages and what it imports."""
        path = self._path(module)
        if path is None:
            return ()
        package, file = module, path / "__init__.py"
        if not file.is_file():
            package, file = module.rpartition(".")[0], path if path.is_file() else path.with_suffix(".py")
            if not file.is_file():
                return ()
        source = read_source(file.read_bytes())
        self.hashes[file] = source.hash
        for settings in file.parent.glob("*.yaml") if package else ():
            self._add_settings(settings)
        return {module.rpartition(".")[0], *source.imported(package)}

    def _add_settings(self, file: Path) -> None:
        self.hashes[file] = f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}"

    def _path(self, module: str) -> Path | None:
        """Return a package's folder, a module's path without ending, or the file of one in no package."""
        top, *rest = module.split(".")
        place = self._places.get(top)
        return place.joinpath(*rest) if place is not None else None


def _place(top: str) -> Path | None:
    """Return the folder of a package, or the file of a module in none, without importing it."""
    spec = importlib.util.find_spec(top) if top else None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin is not None else None


def _within(module: str, packages: tuple[str, ...]) -> bool:
    """Return whether the module is one of these, or lies in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


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

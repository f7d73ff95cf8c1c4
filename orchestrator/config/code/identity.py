"""Hash the code of a trainer."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources.abc import Traversable
from pathlib import Path

from orchestrator.config.code.syntax import read_source
from orchestrator.config.trainers import TrainerSpec, plugin_folder
from orchestrator.core.machine.package_files import CONF
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
        self._places["jobs.conf"] = CONF
        self._seen: set[str] = set()

    def walk(self, roots: Iterable[str]) -> None:
        """Add these modules, of a package all, and what they import."""
        left = [module for root in roots for module in (root, *self._below(root))]
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
        for file in folder.iterdir() if folder is not None and folder.is_dir() else ():
            if isinstance(file, Path) and file.is_symlink() and file.is_dir():
                continue  # it may lead to a folder above
            if file.is_dir():
                yield from self._below(f"{package}.{file.name}")
            elif file.name.endswith(".yaml"):
                self._add_settings(file)
            elif file.name.endswith(".py"):
                yield package if file.name == "__init__.py" else f"{package}.{file.name[:-3]}"

    def _add(self, module: str) -> Iterable[str]:
        """Add the module's file and settings; return its packages and what it imports."""
        path = self._path(module)
        if path is None:
            return ()
        package = module
        folder: Traversable | None = path
        file = path / "__init__.py"
        if not file.is_file():
            package, _, name = module.rpartition(".")
            folder = self._path(package) if package else None
            file = folder / f"{name}.py" if folder is not None else path
            if not file.is_file():
                return ()
        source = read_source(file.read_bytes())
        self.hashes[Path(str(file))] = source.hash
        for settings in folder.iterdir() if folder is not None else ():
            if settings.name.endswith(".yaml"):
                self._add_settings(settings)
        return {module.rpartition(".")[0], *source.imported(package)}

    def _add_settings(self, file: Traversable) -> None:
        self.hashes[Path(str(file))] = f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}"

    def _path(self, module: str) -> Traversable | None:
        """Return a package's folder, a module's path without ending, or the file of one in no package."""
        package, _, name = module.rpartition(".")
        if module in self._places or not package:
            return self._places.get(module)
        above = self._path(package)
        return above / name if above is not None else None


def _place(top: str) -> Traversable | None:
    """Return the folder of a package, or the file of a module in none, without importing it."""
    spec = importlib.util.find_spec(top) if top else None
    if spec is None:
        return None
    if (archive := getattr(spec.loader, "archive", None)) is not None:
        return zipfile.Path(archive, f"{top}/")
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

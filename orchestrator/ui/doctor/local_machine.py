"""Check this machine: Python, the trainers' packages, programs, and the results folder."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from orchestrator import __version__
from orchestrator.config.trainers import get_trainer, trainer_names
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.findings import PATIENCE_S, Finding, not_here, ok, problem, warning
from orchestrator.core.formatting import amount, count
from orchestrator.core.machine import hardware
from orchestrator.core.machine.installation import install_here, installed_version

OLDEST_PYTHON = (3, 11)
_OLDEST_RSYNC = (3, 2, 5)
_INSTALL_RSYNC = "apt-get install rsync openssh-client, brew install rsync, or conda install rsync openssh"

# Limits of a warning and of a problem: a sweep of a hundred short runs fits; a sweep cannot begin.
_LITTLE_BYTES, _NO_BYTES = 5 << 30, 100 << 20
_LITTLE_FILES, _NO_FILES = 50_000, 500


def python(_: Path) -> Finding:
    """Check that this Python is new enough."""
    found = f"{'.'.join(map(str, sys.version_info[:3]))} with orchestrate {__version__} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        return problem("Python", found, "make an environment with Python 3.11 or newer")
    return ok("Python", found)


def trainers(_: Path) -> Finding:
    """Check the trainers' packages by their records: importing them takes seconds and is left to workers."""
    wrong: list[str] = []
    there: list[str] = []
    for name in trainer_names():
        try:
            spec = get_trainer(name)
        except OrchestrateError as error:
            wrong.append(str(error))
            continue
        versions = {package: installed_version(package) for package in spec.packages}
        if absent := [package for package, found in versions.items() if found is None]:
            wrong.append(f"{name} lacks {', '.join(absent)}")
        there += [
            f"{package} {found}"
            for package, found in versions.items()
            if package in (name, "torch") and found
        ]
    if wrong:
        return warning("Trainers", "; ".join(wrong), install_here("train"))
    return ok("Trainers", ", ".join(sorted(set(there))) or "none that needs a package")


def cores_and_gpus(_: Path) -> Finding:
    """Report cores and GPUs."""
    cores, physical, gpus = hardware.cores(), hardware.physical_cores(), hardware.gpus()
    models = ", ".join(f"{gpus.count(model)} × {model}" for model in dict.fromkeys(gpus))
    threads = f" ({physical} physical ones)" if physical < cores else ""
    return ok("Cores and GPUs", f"{count(cores, 'core')}{threads}, {models or 'no GPU that can be used'}")


def git(_: Path) -> Finding:
    """Check that git is installed."""
    if program := shutil.which("git"):
        return ok("git", program)
    fix = "install git, or `module load git`: sweeps then keep the project's code and name its commit"
    return warning("git", "not on PATH", fix)


def rsync(complain: Callable[[str, str, str], Finding] = warning) -> Finding:
    """Check the programs that fetch results from other machines."""
    name = "rsync"
    if missing := [program for program in ("rsync", "ssh") if shutil.which(program) is None]:
        found = f"{' and '.join(missing)} not on PATH: `orchestrate sync` cannot fetch results"
        return complain(name, found, _INSTALL_RSYNC)
    try:
        said = subprocess.run(
            ["rsync", "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError) as error:
        return complain(name, f"{shutil.which('rsync')} does not run: {error}", _INSTALL_RSYNC)
    match = re.search(r"rsync +version v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})", said)
    oldest = ".".join(map(str, _OLDEST_RSYNC))
    if match is None:
        return complain(name, f"{shutil.which('rsync')} is another program of that name", _INSTALL_RSYNC)
    version = ".".join(match.groups())
    if tuple(map(int, match.groups())) < _OLDEST_RSYNC:
        return complain(name, f"{version}, and `orchestrate sync` needs {oldest}", _INSTALL_RSYNC)
    return ok(name, f"{version}, with {shutil.which('ssh')}")


def results_folder(results: Path) -> Finding:
    """Check that the results folder can be written, and has hard links, which claims need, and locks."""
    name, folder = "Results folder", _existing(results)
    shown = results.absolute()
    if not folder.is_dir():
        return problem(name, f"{folder} is a file", "choose another folder with --results DIR")
    try:
        with tempfile.TemporaryDirectory(prefix=".orchestrate-doctor-", dir=folder) as probe:
            file = Path(probe, "file")
            file.write_bytes(b"x")
            os.replace(file, file := Path(probe, "renamed"))
            linked, locked = _links(file), _locks(file)
    except OSError as error:
        why = error.strerror or str(error)
        return problem(name, f"{folder} cannot be written: {why}", "choose another folder with --results DIR")
    if not linked:
        fix = "choose a folder on another file system with --results DIR: claims are made of hard links"
        return problem(name, f"{folder} has no hard links", fix)
    if not locked:
        fix = "run one command at a time there; on Lustre ask for the mount option `flock`"
        return warning(name, f"{folder} has no file locks: commands cannot wait for each other", fix)
    return ok(name, f"{shown}: can be written, hard links and locks work")


def space(results: Path) -> Finding:
    """Check free space and files in the results folder's file system."""
    name, folder = "Space", _existing(results)
    try:
        status = os.statvfs(folder)
    except OSError as error:
        return not_here(name, f"{folder} cannot be examined: {error.strerror}")
    free, files = status.f_bavail * status.f_frsize, status.f_favail
    counted = bool(status.f_files)  # some file systems make inodes as they need them, and say 0
    found = f"{amount(free)} free" + (f", and room for {files:,} files" if counted else "")
    fix = "free space, or choose a folder on another file system with --results DIR"
    if free < _NO_BYTES or (counted and files < _NO_FILES):
        return problem(name, found, fix)
    if free < _LITTLE_BYTES or (counted and files < _LITTLE_FILES):
        return warning(name, found, fix)
    return ok(name, f"{found} (a quota may allow less)")


CHECKS = (python, trainers, cores_and_gpus, git, results_folder, space)


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    folder = folder.absolute()
    return next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))


def _links(file: Path) -> bool:
    link = file.with_name("link")
    try:
        os.link(file, link)
    except OSError:
        return False
    return link.stat().st_nlink == 2


def _locks(file: Path) -> bool:
    try:
        with open(file, "ab") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
    except OSError:
        return False
    return True

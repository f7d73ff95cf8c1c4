"""Find BenchMARL's experiments in a folder, without opening a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

# <algorithm>_<task>_<model>__<8 hexadecimal digits>_<yy_mm_dd-hh_mm_ss>
_NAME = re.compile(r".+__(?P<run>[0-9a-f]{8}_(?P<when>\d\d_\d\d_\d\d-\d\d_\d\d_\d\d))", re.ASCII)
_NEVER = {"wandb", "checkpoints", "videos", "texts", "scalars"}
# Hydra's record is at most so many folders above the experiment's.
_HYDRA_ABOVE = 3


@dataclass(frozen=True)
class FoundExperiment:
    """The files of one experiment, as far as there are any.

    ``name`` is for people, ``place`` the folder that holds them. ``scalars`` and ``texts`` are the CSV
    logger's folders, ``json`` is the file for marl-eval, ``hydra`` the folder of Hydra's record.
    """

    name: str
    place: Path
    scalars: Path | None = None
    texts: Path | None = None
    json: Path | None = None
    hydra: Path | None = None

    @property
    def run_id(self) -> str:
        """The unique part of the name: random digits, and the time of start."""
        return self._named()["run"]

    @property
    def when(self) -> str:
        """The time of start, as text that sorts by time."""
        return self._named()["when"]

    def _named(self) -> re.Match[str]:
        match = _NAME.fullmatch(self.name)
        assert match is not None, self.name
        return match


def find_experiments(folder: Path, unreadable: Callable[[OSError], None]) -> list[FoundExperiment]:
    """Find every experiment in ``folder`` and below, oldest first, without following links to folders.

    A name that is there several times is listed as often. ``unreadable`` is called for unreadable folders.
    """
    loggers: dict[tuple[str, Path], Path] = {}
    files: dict[tuple[str, Path], Path] = {}
    bare: set[tuple[str, Path]] = set()
    for path, folders, names in os.walk(folder.resolve(), onerror=unreadable):
        here = Path(path)
        if _NAME.fullmatch(here.name) is not None:
            if "scalars" in folders:
                loggers[here.name, here.parent] = here
            else:
                bare.add((here.name, here))
        files |= {(name, here): here / f"{name}.json" for name in _experiments_among(names)}
        folders[:] = sorted(name for name in folders if name not in _NEVER and not name.startswith("."))
    experiments = [
        FoundExperiment(
            readable(name),
            place,
            _folder(loggers.get((name, place)), "scalars"),
            _folder(loggers.get((name, place)), "texts"),
            files.get((name, place)),
            _hydra(place),
        )
        for name, place in {*loggers, *files, *bare}
    ]
    return sorted(experiments, key=lambda experiment: (experiment.when, experiment.name, experiment.place))


def _experiments_among(names: Iterable[str]) -> list[str]:
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return [stem for stem in stems if _NAME.fullmatch(stem)]


def _folder(logger: Path | None, name: str) -> Path | None:
    return logger / name if logger is not None and (logger / name).is_dir() else None


def _hydra(place: Path) -> Path | None:
    above = [place, *place.parents][:_HYDRA_ABOVE]
    return next((path / ".hydra" for path in above if (path / ".hydra").is_dir()), None)


def readable(name: str | Path) -> str:
    """Return text that can be written anywhere: bytes of a name that are not UTF-8 are spelled out."""
    try:
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character: possible in JSON, not in a file's name
        return str(name).encode("utf-8", "backslashreplace").decode()

"""Whether a run that came here is whole: its result is one, and every file that it lists is as it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import RunDir, sha256
from orchestrator.rundir.foreign_marks import read_absent
from orchestrator.rundir.synced import RUNS, is_brought, plain_size
from orchestrator.sync.file_names import is_plain
from orchestrator.sync.rsync import brief

ATTEMPTS = "attempts"
_THREADS = 4
# Bytes. The first is what file systems take; the second leaves room for where a results tree lies.
_LONGEST_NAME, _LONGEST_PATH = 255, 1000
# More tries than a run can have; what is beyond is no number to count on from.
_MOST_ATTEMPTS = 1 << 31


@dataclass(frozen=True)
class Checked:
    """``wrong``: what each file of the manifest that is not as the result says is instead, by its path.

    ``absent``: files of the manifest that are not here; ``void``: whether a file it needs is wrong or absent.
    """

    wrong: Mapping[str, str]
    absent: frozenset[str]
    void: bool


def staged_result(staged: RunDir) -> dict[str, Any]:
    """The result that came, before anybody can see it. Raises :class:`DamagedFileError` for what is none.

    So it does if the mark beside it, that says which files are elsewhere, is none.
    """
    result = staged.result()
    if result is None:
        raise DamagedFileError(staged.result_path, "did not come")
    for item in result["manifest"]:
        if not is_listable(item["path"]) or item["bytes"] < 0:
            raise DamagedFileError(
                staged.result_path, f"lists {brief(item['path'])}, which is no file of a run"
            )
    attempt = result.get("attempt")
    if type(attempt) is not int or not 0 < attempt < _MOST_ATTEMPTS:
        raise DamagedFileError(staged.result_path, "does not say which attempt it is of")
    read_absent(staged.path)
    return result


def is_listable(path: str) -> bool:
    """Whether a result may list this path in the run's folder: a file of an attempt, that comes like others.

    What has a meaning of its own, as the result itself, comes by other ways.
    """
    parts = path.split("/")
    if not is_plain(path) or parts[0] != ATTEMPTS or any(part.startswith(".") for part in parts):
        return False
    try:
        lengths = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:  # half a character, as JSON can spell it
        return False
    short = max(lengths) <= _LONGEST_NAME and sum(lengths) + len(parts) <= _LONGEST_PATH
    return short and len(parts) > 1 and is_brought(PurePosixPath(RUNS, "run", path))


def is_as_listed(folder: Path, item: Mapping[str, Any]) -> bool:
    """Whether a run's file is here as its result lists it."""
    same_size = plain_size(folder, item["path"]) == item["bytes"]
    return same_size and sha256(folder / item["path"]) == str(item["sha256"])


def check(run: RunDir, result: Mapping[str, Any]) -> Checked:
    """Compare every file of the manifest by size and content; follows no link."""
    wrong, absent = {}, set()
    void = False
    for item in result["manifest"]:
        size = plain_size(run.path, item["path"])
        if size is None:
            absent.add(item["path"])
        elif size != item["bytes"]:
            wrong[item["path"]] = f"holds {size} bytes, its result says {item['bytes']}"
        elif sha256(run.path / item["path"]) != item["sha256"]:
            wrong[item["path"]] = "has other content than its result says"
        else:
            continue
        void = void or item["required"]
    return Checked(wrong, frozenset(absent), void)


def check_all(runs: Sequence[tuple[RunDir, Mapping[str, Any]]]) -> list[Checked]:
    """As :func:`check`, several at once: hashing leaves Python alone."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda one: check(*one), runs))

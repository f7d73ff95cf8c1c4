"""Verify fetched runs, by every listed file's size and checksum, and give their results their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import RunDir, sha256
from orchestrator.rundir.attempts.absent_files import read_absent
from orchestrator.rundir.copies.synced import RUNS, is_brought, is_plain, is_short, plain_size
from orchestrator.rundir.files.atomic import link
from orchestrator.rundir.files.plain_files import same_content
from orchestrator.rundir.records.result import ManifestItem, Result
from orchestrator.rundir.run import ATTEMPTS
from orchestrator.sync.rsync import brief

_THREADS = 4
# Bytes. The first is the limit of file systems; the second leaves room for the path of a results tree.
_LONGEST_NAME, _LONGEST_PATH = 255, 1000
# More attempts than a run can have; larger numbers are invalid.
_MOST_ATTEMPTS = 10**9


@dataclass(frozen=True)
class Checked:
    """``wrong``: the fault of each listed file with other content, by its path.

    ``absent``: listed files that are not here; ``void``: whether a required file is wrong or absent.
    """

    wrong: Mapping[str, str]
    absent: frozenset[str]
    void: bool


def staged_result(staged: RunDir) -> Result:
    """Return a fetched result before it is published. Raises :class:`DamagedFileError` if it is invalid.

    Also raises if the mark beside it, which lists deleted files, is invalid.
    """
    result = staged.result()
    if result is None:
        raise DamagedFileError(staged.result_path, "was not fetched")
    for item in result.manifest:
        if not may_be_listed(item.path) or item.bytes < 0:
            raise DamagedFileError(staged.result_path, f"lists {brief(item.path)}, which is no file of a run")
    if not 0 < result.attempt < _MOST_ATTEMPTS:
        raise DamagedFileError(staged.result_path, "names no attempt")
    read_absent(staged.path)
    return result


def may_be_listed(path: str) -> bool:
    """Return whether a result may list this path in the run's folder: a file of an attempt.

    Files with their own meaning, such as the result, are fetched separately.
    """
    parts = path.split("/")
    if not is_plain(path) or parts[0] != ATTEMPTS or any(part.startswith(".") for part in parts):
        return False
    short = is_short(path, _LONGEST_NAME, _LONGEST_PATH)
    return short and len(parts) > 1 and is_brought(PurePosixPath(RUNS, "run", path))


def is_as_listed(folder: Path, item: ManifestItem) -> bool:
    """Return whether a run's file here has the listed size and checksum."""
    return plain_size(folder, item.path) == item.bytes and sha256(folder / item.path) == item.sha256


def check(run: RunDir, manifest: Iterable[ManifestItem]) -> Checked:
    """Compare every listed file by size and content; follows no link."""
    wrong, absent = {}, set()
    void = False
    for item in manifest:
        size = plain_size(run.path, item.path)
        if size is None:
            absent.add(item.path)
        elif size != item.bytes:
            wrong[item.path] = f"holds {size} bytes, its result says {item.bytes}"
        elif sha256(run.path / item.path) != item.sha256:
            wrong[item.path] = "has other content than its result says"
        else:
            continue
        void = void or item.required
    return Checked(wrong, frozenset(absent), void)


def check_all(runs: Sequence[tuple[RunDir, Iterable[ManifestItem]]]) -> list[Checked]:
    """Run :func:`check` on several runs in parallel: hashing releases Python's lock."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda one: check(*one), runs))


def publish(staged: RunDir, run: RunDir) -> bool:
    """Publish the result of a verified run; ``False`` if it has another one. The file keeps its time."""
    try:
        link(staged.result_path, run.result_path)
    except FileExistsError:
        return same_content(staged.result_path, run.result_path)
    return True


def drop_pruned(run: RunDir, there: Iterable[str]) -> None:
    """Remove checkpoints that no longer exist at an unfinished run's source, if a newer one is here.

    ``there``: paths in the run's folder at the source.
    """
    names = set(there)
    found = [(one, one.path.relative_to(run.path).as_posix() in names) for one in run.checkpoints()]
    newest = max((one.frames for one, is_there in found if is_there), default=0)
    for one, is_there in found:
        if not is_there and one.frames < newest:
            one.path.unlink(missing_ok=True)

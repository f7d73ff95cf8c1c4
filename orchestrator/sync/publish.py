"""What makes a run that came a result of this tree: checked, published, put in its place, remembered."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir import RunDir, tidy_finished
from orchestrator.rundir.foreign_marks import MARK, mark_absent, read_absent
from orchestrator.rundir.plain_files import same_content
from orchestrator.rundir.synced import CODE, RESULT, RUNS, copy_of, is_tidy, kind_of, leave_journals
from orchestrator.sync import merge
from orchestrator.sync.file_selection import ChosenFiles
from orchestrator.sync.job import SweepSync
from orchestrator.sync.precedence import forget, is_done_again_here, settle_places
from orchestrator.sync.rsync import stamp_of, time_of
from orchestrator.sync.verify import Checked, check_all, staged_result

# Times are in whole seconds: what changed just before the list may have changed again just after it.
_RACE_S = 2.0
# A run's process clears up after its result is there: on a busy disk that can take a while.
_CLEARING_S = 600.0


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A run whose result is to be published; ``staged`` has it until then, beside what its source says."""

    run: RunDir
    staged: RunDir
    result: Mapping[str, Any]


def finish(task: SweepSync, batch: Sequence[ChosenFiles], *, clean: bool) -> None:
    """Check and publish what a batch completed; ``clean``: every file of it could be brought."""
    for one in batch:
        if not one.run_id and one.whole:
            _finish_sweep(task, one, clean=clean)
    runs = [one for one in batch if one.run_id]
    waiting = [one for one in runs if _is_waiting(task, one)]
    again = {one.run_id for one in waiting if task.run(one.run_id).result_path.exists()}
    new = _publish(task, _candidates(task, waiting))
    amiss = {one.run_id for one in waiting} - new
    for one in runs:
        if one.run_id not in task.there.runs:
            continue
        run = task.run(one.run_id)
        if run.result_path.exists():
            sound = clean and one.run_id not in amiss
            _settle(task, one, run, just_now=one.run_id in new - again, clean=sound)
        elif one.whole:
            merge.drop_pruned(run, one.there)


def refused(task: SweepSync) -> dict[str, str]:
    """Runs that are done there and were not taken, now or by an earlier sync that looked at them, and why."""
    found = task.folder.refused()
    for problem in task.brought.problems:
        run, _, why = problem.partition(": ")
        if run.startswith("run "):
            found[run.removeprefix("run ")] = why
    return {
        run_id: why
        for run_id, why in found.items()
        if (there := task.there.runs.get(run_id)) is not None
        and there.result is not None
        and not task.run(run_id).result_path.exists()
    }


def follow_retries(task: SweepSync, visited: Iterable[str]) -> None:
    """Put aside here the results that were put aside there, under the same names."""
    others = []
    visited = list(visited)
    _review_adopted(task, [run_id for run_id in visited if task.adopted(run_id)])
    for run_id in visited:
        if task.adopted(run_id):
            continue
        there, run = task.there.runs[run_id], task.run(run_id)
        stamp = stamp_of(run.result_path)
        if stamp is not None and not _is_sound(task, run):
            settle_places(task, [run_id])
            continue
        if stamp in (None, there.result):
            continue
        retired = [name for name, one in there.retired.items() if one == stamp]
        if retired:
            _retire(task, run, retired[0])
        elif there.result is not None:
            others.append(run)
    _compare_results(task, others)


def _review_adopted(task: SweepSync, run_ids: Sequence[str]) -> None:
    """Have runs adopted no longer whose result in the main tree is not the one that this source has now."""
    _stage(task, [f"{RUNS}/{run_id}/{RESULT}" for run_id in run_ids])
    for run_id in run_ids:
        theirs, ours = _staged(task, run_id).result_path, task.sweep.run(run_id).result_path
        if not (theirs.exists() and ours.exists() and same_content(theirs, ours)):
            forget(task, run_id)


def _is_sound(task: SweepSync, run: RunDir) -> bool:
    """Whether a result here is one; otherwise it goes, to be brought again."""
    try:
        run.result()
    except DamagedFileError as error:
        run.result_path.unlink(missing_ok=True)
        task.brought.notes.append(f"run {run.run_id}: {error}; brought again")
        return False
    return True


def _retire(task: SweepSync, run: RunDir, name: str) -> None:
    attempt = max((attempt.number for attempt in run.attempts()), default=0)
    os.replace(run.result_path, run.path / name)
    task.state.unsettle(run.run_id)
    if run.run_id in task.state.placed:
        with task.sweep.lock():
            merge.take_back(task.sweep, task.folder, run, attempt)
        task.state.placed.discard(run.run_id)
    task.brought.tell(run.run_id, f"done again there; its old result is {name}")


def _compare_results(task: SweepSync, runs: Sequence[RunDir]) -> None:
    """Results that were changed there and not put aside: another time is all right, other words are not."""
    _stage(task, [f"{RUNS}/{run.run_id}/{RESULT}" for run in runs])
    for run in runs:
        theirs = _staged(task, run.run_id).result_path
        if not theirs.exists():
            continue
        if same_content(theirs, run.result_path):
            found = theirs.stat()
            os.utime(run.result_path, ns=(found.st_atime_ns, found.st_mtime_ns))
        elif is_done_again_here(task, run):
            forget(task, run.run_id)  # and it comes to be kept beside this one
        else:
            text = "its result there is another than the one verified here, which stays"
            task.brought.problems.append(f"run {run.run_id}: {text}")


def _stage(task: SweepSync, names: Sequence[str]) -> None:
    """Bring files to where nobody takes them for anything."""
    if names:
        task.rsync.fetch(task.there.name, task.folder.staged, names, task.folder.incoming)


def _staged(task: SweepSync, run_id: str) -> RunDir:
    return RunDir(task.folder.staged / RUNS / run_id)


def _finish_sweep(task: SweepSync, one: ChosenFiles, *, clean: bool) -> None:
    if clean and task.wish.only is None:
        for code in task.there.codes:
            if f"{CODE}/{code}" in one.there and (folder := one.here / CODE / code).is_dir():
                task.state.settle_code(code, str(folder))
    leave_journals(one.here, one.there)


def _is_waiting(task: SweepSync, one: ChosenFiles) -> bool:
    """Whether a run has a result there that is not here, or not with all its files as they should be."""
    there = task.there.runs.get(one.run_id)
    if there is None or there.result is None:
        return False
    run = task.run(one.run_id)
    try:
        again = one.repaired or one.run_id in task.suspect or not run.result_path.exists()
        return again or bool(read_absent(run.path).files)
    except DamagedFileError as error:
        if (run.path / MARK).is_dir():
            task.brought.problems.append(f"run {one.run_id}: {error}; left as it is")
            return False
        return True  # the mark is written again


def _candidates(task: SweepSync, waiting: Sequence[ChosenFiles]) -> list[_Candidate]:
    """The results of these runs: those that are here already, others where nobody takes them for such."""
    new = [one.run_id for one in waiting if not task.run(one.run_id).result_path.exists()]
    marked = [one.run_id for one in waiting if task.there.runs[one.run_id].pruned]
    _stage(task, [f"{RUNS}/{run_id}/{RESULT}" for run_id in new] + [f"{RUNS}/{one}/{MARK}" for one in marked])
    found = []
    for one in waiting:
        run, staged = task.run(one.run_id), _staged(task, one.run_id)
        try:
            result = staged_result(staged) if one.run_id in new else run.result()
            read_absent(staged.path)
        except DamagedFileError as error:
            if (
                staged.result_path.exists() or one.run_id not in new
            ):  # else it was put aside there a moment ago
                task.brought.problems.append(f"run {one.run_id}: {error}; not taken")
        else:
            assert result is not None, run.path
            found.append(_Candidate(run, staged, result))
    return found


def _publish(task: SweepSync, candidates: Sequence[_Candidate]) -> set[str]:
    """Publish those whose files are as their results say; what is not is fetched once more by its content."""
    checked = dict(zip(candidates, _check(candidates), strict=True))
    again = {one: names for one, found in checked.items() if (names := _amiss(task, one, found))}
    if again:
        for here in {task.where(one.run.run_id) for one in again}:
            names = [
                f"{RUNS}/{one.run.run_id}/{name}"
                for one, missing in again.items()
                if task.where(one.run.run_id) == here
                for name in missing
            ]
            task.rsync.fetch(task.there.name, here, names, task.folder.incoming, by_content=True)
        checked |= dict(zip(again, _check(list(again)), strict=True))
    whole = [one for one, found in checked.items() if _is_whole(task, one, found)]
    if whole:
        os.sync()  # a result must not outlive its files in a power cut
    placed: dict[str, Mapping[str, Any]] = {}
    with task.sweep.lock() if whole else nullcontext():
        for one in whole:
            _accept(task, one, checked[one], placed)
        if copy_of(task.sweep) is None:
            merge.put_on_record(task.sweep, placed)
    task.brought.complete += [one.run.run_id for one in whole]
    return {one.run.run_id for one in whole}


def _check(candidates: Sequence[_Candidate]) -> list[Checked]:
    return check_all([(one.run, one.result) for one in candidates])


def _elsewhere(task: SweepSync, one: _Candidate) -> set[str]:
    """Files of the manifest that are not to be here: not wanted, or not at the source either."""
    names = [item["path"] for item in one.result["manifest"]]
    wish = task.wish
    left_out = {name for name in names if not wish.wants(PurePosixPath(name))}
    if wish.latest_checkpoint:
        left_out |= {name for name in names if kind_of(PurePosixPath(name)) == "checkpoints"}
    return left_out | read_absent(one.staged.path).files


def _amiss(task: SweepSync, one: _Candidate, found: Checked) -> list[str]:
    return sorted({*found.wrong, *(found.absent - _elsewhere(task, one))})


def _is_whole(task: SweepSync, one: _Candidate, found: Checked) -> bool:
    """Whether the result may be published; says of every file that is not as it says what it is instead."""
    needed = {item["path"] for item in one.result["manifest"] if item["required"]}
    whole = True
    for name in _amiss(task, one, found):
        why = found.wrong.get(name, "is not there, though its result lists it")
        text = f"run {one.run.run_id}: {name} {why}"
        if name in needed:
            here = "it stays so here" if one.run.result_path.exists() else "the run is left unfinished here"
            task.brought.problems.append(f"{text}; damaged at {task.source}, and {here}")
            whole = False
        elif name in found.wrong and kind_of(PurePosixPath(name)) != "logs":  # which may go on for a moment
            task.brought.notes.append(f"{text} (it is not needed)")
    return whole


def _accept(task: SweepSync, one: _Candidate, found: Checked, placed: dict[str, Mapping[str, Any]]) -> None:
    """Give a whole run its result and its place."""
    run, run_id = one.run, one.run.run_id
    elsewhere = _elsewhere(task, one)
    mark_absent(run.path, task.source, found.absent & elsewhere)
    if run.result_path.exists():  # and only files of it were missing
        return
    main = task.sweep.run(run_id)
    if not task.main and merge.place(task.sweep, task.folder, task.source, run_id):
        merge.publish(one.staged, main)
        task.state.placed.add(run_id)
        placed[run_id] = one.result
        return
    merge.publish(one.staged, run)
    if main.path != run.path:
        where = run.path.parent.relative_to(task.sweep.results)
        if main.result_path.exists():
            text = f"done in two places; {task.source}'s is kept in {where} ({merge.compare(main, run)})"
        else:
            text = f"finished at {task.source}; kept in {where}, because this tree has begun it"
        task.brought.tell(run_id, text)


def _settle(task: SweepSync, one: ChosenFiles, run: RunDir, *, just_now: bool, clean: bool) -> None:
    """Remove what is of no use any more, and remember that the run need not be looked at again."""
    result = run.result()
    assert result is not None, run.path
    tidy = one.whole and not one.fresh and not task.adopted(one.run_id)
    if tidy and one.run_id not in task.state.settled:
        tidy_finished(run, result, also=one.there)
    quiet = not one.names and not just_now
    unchanged = task.began - time_of(task.there.runs[one.run_id].stamp)
    final = unchanged > _RACE_S if is_tidy(result, one.there) else quiet and unchanged > _CLEARING_S
    if clean and one.whole and final:
        task.state.settle(one.run_id, task.token(one.run_id), str(run.path))

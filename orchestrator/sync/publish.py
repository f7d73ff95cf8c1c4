"""Check fetched runs, publish their results in the source's copy, and record their state."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.rundir import RunDir, SweepDir, depends_on_time, tidy_finished
from orchestrator.rundir.attempts.absent_files import MARK, mark_absent, read_absent
from orchestrator.rundir.copies.synced import CODE, RESULT, RUNS, is_tidy, kind_of, leave_journals
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.files.plain_files import same_content
from orchestrator.rundir.records.ledger_entries import FoundEntry, FoundResult, LostEntry
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.records.run_state import decisions_in
from orchestrator.status.disk_check import inspect
from orchestrator.sync.file_selection import ChosenFiles
from orchestrator.sync.listing import SweepSync
from orchestrator.sync.rsync import stamp_of, time_of
from orchestrator.sync.verify import Checked, check_all, drop_pruned, publish, staged_result

# Times are in whole seconds: files changed just before the listing may have changed again after it.
_RACE_S = 2.0
# Seconds in which a run's process may still clean up after publishing its result.
_CLEARING_S = 600.0


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A run with a result to publish; ``staged`` holds that until then, with the source's marks."""

    run: RunDir
    staged: RunDir
    result: Result


def finish_batch(sync: SweepSync, batch: Sequence[ChosenFiles], *, clean: bool) -> None:
    """Check and publish the runs that a batch completed; ``clean``: all its files were fetched."""
    for one in batch:
        if not one.run_id and one.whole:
            _finish_sweep(sync, one, clean=clean)
    runs = [one for one in batch if one.run_id]
    waiting = [one for one in runs if _is_waiting(sync, one)]
    again = {one.run_id for one in waiting if sync.run(one.run_id).result_path.exists()}
    new = _publish(sync, _candidates(sync, waiting))
    amiss = {one.run_id for one in waiting} - new
    for one in runs:
        if one.run_id not in sync.listed.runs:
            continue
        run = sync.run(one.run_id)
        if run.result_path.exists():
            sound = clean and one.run_id not in amiss
            _mark_settled(sync, one, run, just_now=one.run_id in new - again, clean=sound)
        elif one.whole:
            drop_pruned(run, one.there)


def refused_runs(sync: SweepSync) -> dict[str, str]:
    """Return runs that are finished at the source and were refused, now or by an earlier sync, and why."""
    found = sync.folder.refused()
    for problem in sync.report.problems:
        run, _, why = problem.partition(": ")
        if run.startswith("run "):
            found[run.removeprefix("run ")] = why
    return {
        run_id: why
        for run_id, why in found.items()
        if (there := sync.listed.runs.get(run_id)) is not None
        and there.result is not None
        and not sync.run(run_id).result_path.exists()
    }


def follow_retries(sync: SweepSync, visited: Iterable[str]) -> None:
    """Put aside results here that were put aside at the source, under the same names."""
    others = []
    for run_id in visited:
        there, run = sync.listed.runs[run_id], sync.run(run_id)
        stamp = stamp_of(run.result_path)
        if stamp is None or not _is_sound(sync, run) or stamp == there.result:
            continue
        retired = [name for name, one in there.retired.items() if one == stamp]
        if retired:
            os.replace(run.result_path, run.path / retired[0])
            sync.state.unsettle(run_id)
            sync.report.tell(run_id, f"retried at the source; its old result is {retired[0]}")
        elif there.result is not None:
            others.append(run)
    _compare_results(sync, others)


def record_results(sync: SweepSync) -> None:
    """Record in the ledger of a sweep of this tree's own which results here count, or were retried there."""
    if read_copy(sync.sweep.path) is not None:
        return
    with sync.sweep.lock():
        decisions = decisions_in(sync.sweep.read_ledger())
        found, lost = {}, {}
        for run_id, there in sync.listed.runs.items():
            known = decisions.of(run_id).found
            if (known is None) == (there.result is None) and run_id not in sync.report.complete:
                continue
            facts = _facts(sync.sweep, run_id)
            if facts is not None and facts != known:
                found[run_id] = facts
            elif known is not None and not sync.sweep.run_to_read(run_id).has_result():
                lost[run_id] = known.attempt
        for run_id, evidence in inspect(sync.sweep, lost).items():  # attempts of copies are none of this tree
            lost[run_id] = min(lost[run_id], evidence.ended)
        for entry in (FoundEntry(runs=found), LostEntry(runs=lost)):
            if entry.runs:
                sync.sweep.add_to_ledger(entry)


def _facts(sweep: SweepDir, run_id: str) -> FoundResult | None:
    """Return the facts of the result that counts; None if it is of this tree's own, or not to be read."""
    own, counting = sweep.run(run_id), sweep.run_to_read(run_id)
    try:
        result = None if counting.path == own.path else counting.result()
    except DamagedFileError:
        return None
    if result is None:
        return None
    found = FoundResult.of(result)
    return replace(found, attempt=max(found.attempt, own.newest_attempt()))


def _is_sound(sync: SweepSync, run: RunDir) -> bool:
    """Return whether a result here is valid; a damaged one is removed, and fetched again."""
    try:
        run.result()
    except DamagedFileError as error:
        run.result_path.unlink(missing_ok=True)
        sync.report.notes.append(f"run {run.run_id}: {error}; fetched again")
        return False
    return True


def _compare_results(sync: SweepSync, runs: Sequence[RunDir]) -> None:
    """Handle results changed at the source without a retry: take over a new time, report other content."""
    _stage(sync, [f"{RUNS}/{run.run_id}/{RESULT}" for run in runs])
    for run in runs:
        theirs = _staged(sync, run.run_id).result_path
        if not theirs.exists():
            continue
        if same_content(theirs, run.result_path):
            found = theirs.stat()
            os.utime(run.result_path, ns=(found.st_atime_ns, found.st_mtime_ns))
        else:
            text = "its result at the source differs from the one verified here, which is kept"
            sync.report.problems.append(f"run {run.run_id}: {text}")


def _stage(sync: SweepSync, names: Sequence[str]) -> None:
    """Fetch files to a folder for unpublished results."""
    if names:
        sync.rsync.fetch(sync.listed.name, sync.folder.staged, names, sync.folder.incoming)


def _staged(sync: SweepSync, run_id: str) -> RunDir:
    return RunDir(sync.folder.staged / RUNS / run_id)


def _finish_sweep(sync: SweepSync, one: ChosenFiles, *, clean: bool) -> None:
    if clean and sync.options.only is None:
        for code in sync.listed.codes:
            if f"{CODE}/{code}" in one.there and (folder := one.here / CODE / code).is_dir():
                sync.state.settle_code(code, str(folder))
    leave_journals(one.here, one.there)


def _is_waiting(sync: SweepSync, one: ChosenFiles) -> bool:
    """Return whether a finished run at the source is not complete here."""
    there = sync.listed.runs.get(one.run_id)
    if there is None or there.result is None:
        return False
    run = sync.run(one.run_id)
    try:
        again = one.repaired or one.run_id in sync.suspect or not run.result_path.exists()
        return again or bool(read_absent(run.path).files)
    except DamagedFileError as error:
        if (run.path / MARK).is_dir():
            sync.report.problems.append(f"run {one.run_id}: {error}; left as it is")
            return False
        return True  # the mark is rewritten


def _candidates(sync: SweepSync, waiting: Sequence[ChosenFiles]) -> list[_Candidate]:
    """Return the results of these runs, fetched to the staging folder where they are not here."""
    new = [one.run_id for one in waiting if not sync.run(one.run_id).result_path.exists()]
    marked = [one.run_id for one in waiting if sync.listed.runs[one.run_id].pruned]
    _stage(sync, [f"{RUNS}/{run_id}/{RESULT}" for run_id in new] + [f"{RUNS}/{one}/{MARK}" for one in marked])
    found = []
    for one in waiting:
        run, staged = sync.run(one.run_id), _staged(sync, one.run_id)
        try:
            result = staged_result(staged) if one.run_id in new else run.result()
            read_absent(staged.path)
        except DamagedFileError as error:
            if staged.result_path.exists() or one.run_id not in new:  # else it was just put aside there
                sync.report.problems.append(f"run {one.run_id}: {error}; not published")
        else:
            assert result is not None, run.path
            found.append(_Candidate(run, staged, result))
    return found


def _publish(sync: SweepSync, candidates: Sequence[_Candidate]) -> set[str]:
    """Publish runs with intact files; fetch damaged ones once more by content."""
    checked = dict(zip(candidates, _check(candidates), strict=True))
    again = {one: names for one, found in checked.items() if (names := _missing_or_wrong(sync, one, found))}
    if again:
        names = [f"{RUNS}/{one.run.run_id}/{name}" for one, missing in again.items() for name in missing]
        sync.rsync.fetch(sync.listed.name, sync.folder.path, names, sync.folder.incoming, by_content=True)
        checked |= dict(zip(again, _check(list(again)), strict=True))
    whole = [one for one, found in checked.items() if _is_whole(sync, one, found)]
    if whole:
        os.sync()  # after a power cut no result may exist without its files
    for one in whole:
        _publish_run(sync, one, checked[one])
    sync.report.complete += [one.run.run_id for one in whole]
    return {one.run.run_id for one in whole}


def _check(candidates: Sequence[_Candidate]) -> list[Checked]:
    return check_all([(one.run, one.result.manifest) for one in candidates])


def _not_expected(sync: SweepSync, one: _Candidate) -> set[str]:
    """Return files of the manifest that need not be here: not selected, or deleted at the source."""
    names = [item.path for item in one.result.manifest]
    options = sync.options
    left_out = {name for name in names if not options.wants(PurePosixPath(name))}
    if options.latest_checkpoint:
        left_out |= {name for name in names if kind_of(PurePosixPath(name)) == "checkpoints"}
    return left_out | read_absent(one.staged.path).files


def _missing_or_wrong(sync: SweepSync, one: _Candidate, found: Checked) -> list[str]:
    return sorted({*found.wrong, *(found.absent - _not_expected(sync, one))})


def _is_whole(sync: SweepSync, one: _Candidate, found: Checked) -> bool:
    """Return whether the result may be published; report each file that is not as listed."""
    needed = {item.path for item in one.result.manifest if item.required}
    whole = True
    for name in _missing_or_wrong(sync, one, found):
        why = found.wrong.get(name, "is missing, but listed in its result")
        text = f"run {one.run.run_id}: {name} {why}"
        if name in needed:
            here = "also here" if one.run.result_path.exists() else "the run stays unfinished here"
            sync.report.problems.append(f"{text}; damaged at {sync.source}, and {here}")
            whole = False
            if sync.rsync.source.mirror is not None and not one.run.result_path.exists():
                (one.run.path / name).unlink(missing_ok=True)  # else it would be taken for the object
        elif name in found.wrong and kind_of(PurePosixPath(name)) != "logs":  # logs may still grow
            sync.report.notes.append(f"{text} (optional file)")
    return whole


def _publish_run(sync: SweepSync, one: _Candidate, found: Checked) -> None:
    """Publish a complete run; report where other copies of it are finished or at work."""
    mark_absent(one.run.path, sync.source, found.absent & _not_expected(sync, one))
    if one.run.result_path.exists():  # only files were missing
        return
    publish(one.staged, one.run)
    run_id, counting = one.run.run_id, sync.sweep.run_to_read(one.run.run_id)
    others = [run for run in sync.sweep.versions(run_id) if run.path != one.run.path and run.has_result()]
    if counting.path != one.run.path and not counting.has_result():
        text = f"finished at {sync.source}; does not count, because this tree has begun or retried it"
        sync.report.tell(run_id, text)
    elif others:
        other = others[0] if counting.path == one.run.path else counting
        if not same_content(other.result_path, one.run.result_path):
            same, where = _compare(other, one.run), _origin(counting)
            sync.report.tell(run_id, f"finished in two places; the result {where} counts ({same})")


def _origin(run: RunDir) -> str:
    """Describe where a version of a run was finished."""
    copy = read_copy(run.path.parent.parent)
    return "of this tree" if copy is None else f"from {copy.source}"


def _compare(ours: RunDir, theirs: RunDir) -> str:
    """Describe whether two versions of a finished run have the same metrics."""
    try:
        mine, other = _metrics(ours), _metrics(theirs)
    except (OrchestrateError, OSError):
        return "metrics cannot be compared"
    return "with the same metrics" if mine == other else "with other metrics"


def _metrics(run: RunDir) -> list[tuple[int, int, tuple[tuple[str, str], ...]]]:
    result = run.result()
    rows = run.history(result.attempt if result else None)
    return [
        (
            row.iteration,
            row.frames,
            tuple((name, repr(value)) for name, value in row.metrics.items() if not depends_on_time(name)),
        )
        for row in rows
    ]


def _mark_settled(sync: SweepSync, one: ChosenFiles, run: RunDir, *, just_now: bool, clean: bool) -> None:
    """Remove leftovers, and record that the run need not be checked again."""
    result = run.result()
    assert result is not None, run.path
    tidy = one.whole and not one.fresh
    if tidy and one.run_id not in sync.state.settled:
        tidy_finished(run, result, also=one.there)
    quiet = not one.names and not just_now
    unchanged = sync.began - time_of(sync.listed.runs[one.run_id].stamp)
    final = unchanged > _RACE_S if is_tidy(result, one.there) else quiet and unchanged > _CLEARING_S
    if clean and one.whole and final:
        sync.state.settle(one.run_id, sync.token(one.run_id), str(run.path))

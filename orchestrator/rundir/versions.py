"""Which version of a run counts, of those in a sweep's own folder and in its copies from further sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.errors import DamagedFileError
from orchestrator.rundir.run import RunDir, attempt_ended


@dataclass(frozen=True)
class RunVersion:
    """One copy of a run. ``done``: it has a result, which is published only when all its files are verified.

    ``attempt``: the newest; ``frames``: of its most advanced checkpoint.
    """

    done: bool
    attempt: int = 0
    frames: int = 0


def version_that_counts(own: RunVersion, others: Sequence[RunVersion], retried: int, *, held: bool) -> int:
    """Return the number of the version of a run that counts: 0 for ``own``, from 1 on those in ``others``.

    ``own``: in the sweep's folder; ``others``: of further sources, in the order of their first sync. The own
    result counts, or the own attempt while a worker of this tree may be at work (``held``). Else the first
    result does; without any, the version with the most progress. A retry in this tree makes the attempts of
    others up to ``retried`` void.
    """
    if own.done or held:
        return 0
    versions = [own, *others]

    def rank(number: int) -> tuple[bool, bool, int, int, int]:
        one = versions[number]
        valid = number == 0 or one.attempt > retried
        progress = (0, 0) if one.done else (one.frames, one.attempt)
        return valid, one.done, *progress, -number

    return max(range(len(versions)), key=rank)


def counting_run(own: RunDir, others: Sequence[RunDir], *, is_copy: bool) -> RunDir:
    """Return the folder of the version that counts. ``is_copy``: the sweep's own folder is a copy, too."""
    if not others or own.has_result():
        return own
    retried, held = (0, False) if is_copy else (own.retired, _is_held(own))
    number = version_that_counts(_version(own), list(map(_version, others)), retried, held=held)
    return [own, *others][number]


def _version(run: RunDir) -> RunVersion:
    done = run.has_result()
    frames = 0 if done else max((one.frames for one in run.checkpoints()), default=0)
    return RunVersion(done, run.newest_attempt(), frames)


def _is_held(run: RunDir) -> bool:
    """Return whether a worker of this tree may be at work on the run."""
    try:
        return not all(map(attempt_ended, run.attempts()[-1:]))
    except DamagedFileError:  # no proof
        return True

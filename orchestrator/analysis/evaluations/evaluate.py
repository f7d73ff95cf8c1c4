"""Evaluate trained policies: choose checkpoints, play them in the trainer's process, record the results.

Run folders are only read, even during training. Results are kept with the sweep
(:class:`orchestrator.rundir.Evaluation`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.analysis.evaluations.played_tasks import OWN_TASK, PlayedTask
from orchestrator.config.trainers import can_evaluate, get_trainer, trainer_names
from orchestrator.core.errors import (
    BackendUnavailableError,
    DamagedFileError,
    NotFoundError,
    OrchestrateError,
    StorageError,
)
from orchestrator.core.machine.installation import install_here
from orchestrator.core.machine.json_process import JsonProcess
from orchestrator.core.records import plain
from orchestrator.core.types import PluginSource, Run
from orchestrator.rundir import CheckpointFile, Evaluation, RunDir, SweepDir
from orchestrator.rundir.attempts.absent_files import read_absent
from orchestrator.rundir.attempts.attempt import CHECKPOINT
from orchestrator.status.ledger import submitted_plugins

# Episodes for a best policy ("absolute metric"), as a multiple of those of an evaluation in training.
TIMES_FOR_BEST = 10
FILMS = (".mp4", ".gif")
_TAIL_LINES = 10
# Seconds for the process to end by itself after its last answer.
_END_S = 30.0
# Tries to open the newest checkpoint, as training may replace it meanwhile.
_TRIES = 5


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation.

    ``checkpoint``: frames of the checkpoint, ``None`` for the newest. ``best``: the best policy in it,
    instead of the latest. ``episodes`` and ``deterministic``: ``None`` for the run's own evaluation settings,
    with ten times the episodes for a best policy. ``film``: path of an mp4 or gif of the first episode.
    """

    checkpoint: int | None = None
    best: bool = False
    episodes: int | None = None
    deterministic: bool | None = None
    seed: int = 0
    task: PlayedTask = OWN_TASK
    film: Path | None = None


@dataclass(frozen=True)
class EvaluatedPolicy:
    """An evaluated policy; ``seconds`` is the time it played.

    ``known``: the evaluation was on record already. ``unkept``: why it could not be recorded.
    """

    evaluation: Evaluation
    seconds: float
    known: bool = False
    unkept: StorageError | None = None


@dataclass(frozen=True)
class FailedPolicy:
    """A policy that could not be evaluated; ``task``: on which one, as in its record."""

    run_id: str
    task: str
    error: OrchestrateError


def require_film(path: Path) -> None:
    """Raise :class:`OrchestrateError` unless a film can be written there."""
    if path.suffix.lower() not in FILMS:
        raise OrchestrateError(
            f"--render: found {path.name!r}, expected a name that ends in {' or '.join(FILMS)}",
            hint=f"--render {path.with_suffix('.mp4')}",
        )
    if path.is_dir() or not path.parent.is_dir():
        told = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise OrchestrateError(f"--render: cannot write {path}: {told}")


def finished_runs(sweep_dir: SweepDir) -> list[str]:
    """Return the runs of the latest grid that have a result."""
    rows = (row.run_id for row in sweep_dir.read_index() if row.in_grid)
    return [run_id for run_id in rows if sweep_dir.run_to_read(run_id).has_result()]


def require_policies(sweep_dir: SweepDir) -> None:
    """Raise :class:`OrchestrateError` if the trainer of the latest grid cannot evaluate policies.

    A grid has one trainer, so its first run decides.
    """
    first = next((row.run_id for row in sweep_dir.read_index() if row.in_grid), None)
    try:
        trainer = sweep_dir.run_to_read(first).description().trainer if first is not None else None
    except (FileNotFoundError, DamagedFileError):
        return
    if trainer is not None and not get_trainer(trainer).evaluate:
        raise _other_trainer(f"the runs of {sweep_dir.name} are", trainer)


def evaluate(
    sweep_dir: SweepDir,
    run_ids: Sequence[str],
    options: EvaluationOptions,
    tasks: Sequence[PlayedTask] = (OWN_TASK,),
    *,
    again: bool = True,
) -> Iterator[EvaluatedPolicy | FailedPolicy]:
    """Evaluate these runs' policies in the order given, each on every task, and record the results.

    Without ``again`` evaluations on record are not repeated. Raises :class:`OrchestrateError` if no policy at
    all can be evaluated.
    """
    on_record = [] if again else sweep_dir.evaluations.read()
    plugins = submitted_plugins(sweep_dir)
    with closing(_Player()) as player:
        for run_id, task in product(run_ids, tasks):
            run_dir, asked = sweep_dir.run_to_read(run_id), replace(options, task=task)
            try:
                run, checkpoint = _evaluable_run(run_dir), choose_checkpoint(run_dir, options.checkpoint)
                known = _recorded(run_dir, checkpoint, asked, on_record)
                if known is not None:
                    yield EvaluatedPolicy(known, 0.0, known=True)
                    continue
                yield _evaluate(sweep_dir, run, checkpoint, asked, plugins, player)
            except BackendUnavailableError:  # it would fail for every run
                raise
            except OrchestrateError as error:
                yield FailedPolicy(run_id, task.text(""), error)


def task_names(sweep_dir: SweepDir, run_id: str) -> list[str]:
    """Return the names of all tasks that the run's trainer has; empty if it does not list them."""
    trainer = _evaluable_run(sweep_dir.run_to_read(run_id)).trainer
    if not get_trainer(trainer).tasks:
        return []
    plugins = [asdict(plugin) for plugin in submitted_plugins(sweep_dir)]
    with closing(_Player()) as player:
        answer = player.ask({"plugins": plugins, "tasks_of": trainer})
    if "error" in answer:
        raise OrchestrateError(f"the tasks of {trainer}: {answer['error']}", hint=answer["hint"])
    return list(answer["tasks"])


def choose_checkpoint(run_dir: RunDir, frames: int | None) -> CheckpointFile:
    """Return the run's checkpoint of so many frames, its newest if ``None``.

    Raises :class:`NotFoundError` if there is none.
    """
    checkpoints = run_dir.checkpoints()
    chosen = next((checkpoint for checkpoint in checkpoints if frames in (None, checkpoint.frames)), None)
    if chosen is not None:
        return chosen
    if checkpoints:
        there = ", ".join(str(n) for n in sorted({checkpoint.frames for checkpoint in checkpoints}))
        raise NotFoundError(
            f"run {run_dir.run_id} has no checkpoint of {frames} frames (found: {there})",
            hint="training keeps the last two; a finished run has the final one",
        )
    raise _without_checkpoint(run_dir)


def _without_checkpoint(run_dir: RunDir) -> NotFoundError:
    sweep = run_dir.sweep
    absent = read_absent(run_dir.path)
    bring = f"orchestrate sync SOURCE --sweep {sweep} --run {run_dir.run_id[:8]} --only checkpoints"
    if absent.files:
        where = f"is at {absent.where}" if absent.where else "was removed by `orchestrate clean`"
        return NotFoundError(f"run {run_dir.run_id}: its checkpoint {where}", hint=bring)
    if run_dir.has_result():
        return NotFoundError(f"run {run_dir.run_id} is finished, but its checkpoint is not here", hint=bring)
    begun = "has no checkpoint yet" if run_dir.attempts() else "has not begun"
    return NotFoundError(
        f"run {run_dir.run_id} {begun}",
        hint=f"`orchestrate status {sweep}` shows its progress; if it is trained elsewhere: {bring}",
    )


def _evaluable_run(run_dir: RunDir) -> Run:
    try:
        run = run_dir.description()
    except FileNotFoundError:
        hint = f"`orchestrate status {run_dir.sweep}` says why"
        raise NotFoundError(f"run {run_dir.run_id} has not begun", hint=hint) from None
    if not get_trainer(run.trainer).evaluate:
        raise _other_trainer(f"run {run.run_id} is", run.trainer)
    return run


def _other_trainer(which: str, trainer: str) -> OrchestrateError:
    others = ", ".join(name for name in trainer_names() if can_evaluate(name))
    return OrchestrateError(
        f"{which} of the trainer {trainer!r}: only its own program can play its policies",
        hint=f"runs of these trainers can be evaluated: {others}",
    )


def _recorded(
    run_dir: RunDir, checkpoint: CheckpointFile, options: EvaluationOptions, on_record: Iterable[Evaluation]
) -> Evaluation | None:
    """Return the same evaluation on record, as far as its options are known without the trainer."""
    usual = usual_of(run_dir)
    if usual is None or options.film is not None:
        return None
    wanted = (
        run_dir.run_id,
        checkpoint.digest,
        options.best,
        options.task.text(usual.task),
        options.episodes or usual.episodes * (TIMES_FOR_BEST if options.best else 1),
        options.seed,
        usual.deterministic if options.deterministic is None else options.deterministic,
    )
    for known in on_record:
        played = known.task, known.episodes, known.seed, known.deterministic
        if (known.run_id, known.checkpoint, known.best, *played) == wanted:
            return known
    return None


@dataclass(frozen=True)
class TrainingEvaluation:
    """Evaluation settings of a finished run during training.

    ``checkpoint`` is the digest of its final checkpoint, ``None`` if its result has none.
    """

    task: str
    episodes: int
    deterministic: bool
    checkpoint: str | None


def usual_of(run_dir: RunDir) -> TrainingEvaluation | None:
    """Read the evaluation settings from a run's result; ``None`` if they are not in it."""
    try:
        if (result := run_dir.result()) is None:
            return None
        usual = result.fields["evaluation"]
        return TrainingEvaluation(
            task=str(usual["task"]),
            episodes=int(usual["episodes"]),
            deterministic=bool(usual["deterministic"]),
            checkpoint=_final_checkpoint(item.path for item in result.manifest),
        )
    except (DamagedFileError, KeyError, TypeError, ValueError, OverflowError):
        return None


def final_checkpoint(run_dir: RunDir) -> str | None:
    """Return the digest of a finished run's final checkpoint, ``None`` if it is unknown."""
    try:
        return _final_checkpoint(item.path for item in run_dir.manifest())
    except DamagedFileError:
        return None


def _final_checkpoint(paths: Iterable[str]) -> str | None:
    names = (CHECKPOINT.fullmatch(PurePosixPath(path).name) for path in paths)
    last = max((name for name in names if name), key=lambda name: int(name["frames"]), default=None)
    return last["digest"] if last else None


def _evaluate(
    sweep_dir: SweepDir,
    run: Run,
    checkpoint: CheckpointFile,
    options: EvaluationOptions,
    plugins: Sequence[PluginSource],
    player: _Player,
) -> EvaluatedPolicy:
    for _ in range(_TRIES):
        answer = player.ask(_request(run, checkpoint, options, plugins))
        if not answer.get("gone") or options.checkpoint is not None:
            break
        checkpoint = choose_checkpoint(sweep_dir.run_to_read(run.run_id), None)
    if "error" in answer:
        on = f" on {options.task.text('its task')}" if options.task != OWN_TASK else ""
        raise OrchestrateError(f"run {run.run_id[:8]}{on}: {answer['error']}", hint=answer["hint"])
    evaluation = Evaluation(
        run_id=run.run_id,
        frames=answer["frames"],
        best=options.best,
        checkpoint=checkpoint.digest,
        task=options.task.text(answer["task"]),
        episodes=len(answer["returns"]),
        seed=options.seed,
        deterministic=answer["deterministic"],
        returns=tuple(answer["returns"]),
        lengths=tuple(answer["lengths"]),
        figures=answer.get("figures", {}),
        baselines=answer.get("baselines", {}),
        time=time.time(),
    )
    try:
        sweep_dir.evaluations.add(evaluation)
    except StorageError as error:  # the results tree may be another user's
        unkept = StorageError(f"not on record: {error}")
        return EvaluatedPolicy(evaluation, answer["seconds"], unkept=unkept)
    return EvaluatedPolicy(evaluation, answer["seconds"])


def _request(
    run: Run, checkpoint: CheckpointFile, options: EvaluationOptions, plugins: Sequence[PluginSource]
) -> dict[str, Any]:
    return {
        "plugins": [asdict(plugin) for plugin in plugins],
        "run": plain(run),
        "checkpoint": {**asdict(checkpoint), "path": str(checkpoint.path.absolute())},
        "best": options.best,
        "episodes": options.episodes,
        "times": TIMES_FOR_BEST if options.best else 1,
        "deterministic": options.deterministic,
        "seed": options.seed,
        "task": options.task.name,
        "changes": dict(options.task.changes),
        "film": str(options.film.absolute()) if options.film is not None else None,
    }


class _Player:
    """The process in which a trainer plays policies, started with the first request."""

    def __init__(self) -> None:
        self._process: JsonProcess | None = None

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the trainer's answer. Raises :class:`OrchestrateError` if the process ended."""
        process = self._process = self._process or JsonProcess("jobs.evaluate")
        process.send(question)
        try:
            answer: dict[str, Any] = process.receive()
        except EOFError:
            self._process = None
            raise _ended(process) from None
        return answer

    def close(self) -> None:
        """Kill the process, even during an episode."""
        if self._process is not None:
            self._process.close()


def _ended(process: JsonProcess) -> OrchestrateError:
    tail = process.error_lines()[-_TAIL_LINES:]
    code = process.close(_END_S)
    told = "\n  ".join([f"the evaluation process ended with exit code {code}", *tail])
    if any("No module named" in line for line in tail):
        return BackendUnavailableError(told, hint=f"install what training needs: {install_here('train')}")
    return OrchestrateError(told)


@dataclass(frozen=True)
class Summary:
    """Statistics of an evaluation's episodes: mean, interquartile mean with 95 % interval, mean length."""

    mean: float
    iqm: float | None
    low: float | None
    high: float | None
    length: float


def summaries(evaluations: Sequence[Evaluation]) -> list[Summary]:
    """Summarise each evaluation; one with a return that is not finite has no interquartile mean."""
    from orchestrator.analysis.statistics.bootstrap import estimate_of

    usable = [list(one.returns) if all(map(math.isfinite, one.returns)) else [] for one in evaluations]
    estimates = map(estimate_of, usable)
    return [
        Summary(
            mean=sum(evaluation.returns) / len(evaluation.returns),
            iqm=estimate.value if estimate else None,
            low=estimate.low if estimate else None,
            high=estimate.high if estimate else None,
            length=sum(evaluation.lengths) / len(evaluation.lengths),
        )
        for evaluation, estimate in zip(evaluations, estimates, strict=True)
    ]

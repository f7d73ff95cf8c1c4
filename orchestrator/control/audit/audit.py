"""Audit a sweep's first run: straight, straight again, and killed after some of its checkpoints."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.config.code.identity import code_id
from orchestrator.config.program.identity import project_files
from orchestrator.config.trainers import get_trainer
from orchestrator.control.audit import trials
from orchestrator.control.audit.compare import differences, ignored
from orchestrator.control.audit.left_out import left_out, states_at
from orchestrator.control.audit.trials import Plan, Trial
from orchestrator.control.cloud.exchange import Tell
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Sweep
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.audits import EXACT, NOT_DETERMINISTIC, NOT_EXACT, Audit, LeftOut

_MOST_KILLS = 3
_THREE_LINES = (
    "write three lines: `start = run.resume(agent, optimizer, envs, total=N)` before the loop, "
    "`run.log(step, …)` and `run.save(step)` in it (docs/run-protocol.md)"
)


def audit(sweep: Sweep, sweep_dir: SweepDir, seed: int, tell: Tell) -> Audit:
    """Audit the first run of a sweep and put the verdict on record.

    ``seed`` chooses the checkpoints after which it is killed. Raises :class:`OrchestrateError` if the sweep
    is at work, the run fails, or it writes no checkpoint before its end.
    """
    if sweep_dir.path.exists() and poll_sweep(sweep_dir, sweep_dir.read_index()).live:
        raise OrchestrateError(
            f"{sweep.name} is at work, and an audit needs the same cores",
            hint=f"wait for its end, or stop it: orchestrate cancel {sweep.name}",
        )
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="orchestrate-audit-") as folder:
        found = _Audit(trials.one_run(sweep), Path(folder), random.Random(seed), tell).run()
    found = replace(found, time=began, seconds=round(time.time() - began, 1))
    sweep_dir.audits.add(found)
    return found


def audit_of_today(sweep: Sweep, sweep_dir: SweepDir) -> Audit | None:
    """Return the newest audit of the code that would train the sweep today."""
    audits = sweep_dir.audits.read()
    spec = get_trainer(sweep.trainer).with_plugins(sweep.plugins) if audits else None
    if spec is None or not spec.runs_program:
        today = code_id(spec) if spec is not None else ""
        return next((one for one in audits if one.code_id == today), None)
    files = project_files(Path.cwd(), [sweep_dir.results.resolve()])
    ids = ((one, files.id_of(one.point, one.code_files, traced=one.traced)) for one in audits)
    return next((one for one, today in ids if one.code_id == today), None)


class _Audit:
    def __init__(self, sweep: Sweep, folder: Path, chance: random.Random, tell: Tell) -> None:
        self._sweep, self._folder, self._chance, self._tell = sweep, folder, chance, tell

    def run(self) -> Audit:
        straight = self._train("straight", Plan())
        steps = _before_the_end(straight.answers("steps"), straight)
        if not steps and not straight.checkpointed:
            raise OrchestrateError(
                f"the run wrote no checkpoint before its end at {straight.frames:,} frames", hint=_THREE_LINES
            )
        number = self._chance.randint(1, _MOST_KILLS)
        if steps:
            kills = sorted(self._chance.sample(steps, min(number, len(steps))))
            plan = Plan(save=kills, kill=kills, places=straight.answers("places"))
            killed = self._train("killed", plan)
        else:
            killed = self._train("killed", Plan(save=()), watched_kills=number)
        at = {frames: [list(place) for place in states_at(killed.hook, frames)] for frames in killed.kills}
        again = self._train("straight again", Plan(save=killed.kills, at=at))
        return self._judge(straight, again, killed)

    def _train(self, name: str, plan: Plan, *, watched_kills: int = 0) -> Trial:
        folder = self._folder / name.replace(" ", "-")
        return trials.train(
            self._sweep, folder, plan, lambda text: self._tell(f"{name}: {text}"), watched_kills=watched_kills
        )

    def _judge(self, straight: Trial, again: Trial, killed: Trial) -> Audit:
        verdict, left = EXACT, tuple[LeftOut, ...]()
        found = differences(straight.rows, again.rows)
        if found:
            verdict = NOT_DETERMINISTIC
        elif not killed.kills:
            raise OrchestrateError(
                "the run ended before it could be killed", hint="audit a longer run: --set"
            )
        elif found := differences(straight.rows, killed.rows):
            verdict = NOT_EXACT
            kill = trials.covering(killed.kills, found[0].frames)
            left = left_out(again.hook, killed.hook, kill) if kill is not None else ()
        result = straight.result
        return Audit(
            verdict,
            point=self._sweep.runs[0].point,
            frames=straight.frames,
            kills=killed.kills,
            declared=result.exactness or "undeclared",
            code_id=result.code_id or "unknown",
            time=0.0,
            seconds=0.0,
            differences=found,
            left_out=left,
            code_files=result.fields.get("code_files"),
            traced=result.fields.get("code_traced") is True,
            ignored=ignored(straight.rows),
            versions=result.fields.get("versions") or {},
        )


def _before_the_end(steps: Sequence[int], straight: Trial) -> list[int]:
    """Return the frames of checkpoints that something follows, the middle ones if there are many."""
    fit = sorted({step for step in steps if 0 < step < straight.frames})
    middle = fit[len(fit) // 5 : max(len(fit) // 5 + 1, 3 * len(fit) // 4)]
    return middle or fit

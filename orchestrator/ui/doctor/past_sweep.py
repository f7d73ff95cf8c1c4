"""Check whether a sweep has run to its end on the target: nothing else proves that jobs can train."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from orchestrator.config.profiles import Profile, as_typed
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.findings import Finding, not_here, ok, problem
from orchestrator.core.formatting import count
from orchestrator.core.types import RunState
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import submissions

# The name in sweeps/validate.yaml.
SWEEP = "validate"
NAME = "Training in jobs"


def validated(results: Path, profile: Profile) -> Finding:
    """Return a finding about the sweep `validate` on this profile."""
    sweep = SweepDir(results, SWEEP)
    command = f"orchestrate sweep --grid sweeps/{SWEEP}.yaml --on {shlex.quote(as_typed(profile))}"
    again = command if results == Path("results") else f"{command} --results {results}"
    try:
        ledger = submissions(sweep.read_ledger())
        seen = poll_sweep(sweep) if ledger else None
    except OrchestrateError as error:
        return not_here(NAME, str(error), error.hint)
    tokens = {job.token for entry in ledger if entry.target == profile.name for job in entry.jobs}
    runs = [seen.statuses[row.run_id] for row in seen.rows if row.in_grid] if seen is not None else []
    here = [run for run in runs if run.token in tokens]
    if failed := [run for run in here if run.state is RunState.FAILED]:
        found = f"{len(failed)} of {len(runs)} runs of sweep {SWEEP} failed: {failed[0].why}"
        return problem(NAME, found, f"orchestrate logs {SWEEP} {failed[0].run_id[:8]}")
    if any(not run.state.final for run in here):
        return not_here(NAME, f"sweep {SWEEP} is at work", f"orchestrate status {SWEEP} --watch")
    if done := [run for run in here if run.state is RunState.DONE]:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(run.since or 0 for run in done)))
        return ok(NAME, f"{count(len(done), 'run')} of sweep {SWEEP} trained there, the last at {when}")
    if runs:
        return not_here(NAME, f"sweep {SWEEP} ran elsewhere so far", f"rm -r {sweep.path} && {again}")
    return not_here(NAME, "only a sweep can check: nodes, their Python, the results folder", again)

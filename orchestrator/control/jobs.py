"""Jobs of a sweep, for `status --json`."""

from __future__ import annotations

import time
from typing import Any

from orchestrator.rundir.records.ledger_entries import jobs_of
from orchestrator.status.cost import job_state, worked
from orchestrator.status.ledger import job_ids
from orchestrator.status.survey import Survey


def job_facts(seen: Survey) -> dict[str, dict[str, Any]]:
    """Jobs that ever began or that a backend was asked about, by token.

    Each with the backend's id, its state and wording, the runs, and the seconds of its work.
    """
    ids, runs = job_ids(seen.ledger), {job.token: job.run_ids for _, job in jobs_of(seen.ledger)}
    times, logs = worked(seen, seen.logs, time.time()), {log.token: log for log in seen.logs}
    return {
        token: {
            "id": ids.get(token),
            "state": job_state(token, seen, logs.get(token)).value,
            "text": seen.jobs[token].text if token in seen.jobs else "",
            "runs": runs.get(token, []),
            "seconds": times.get(token),
        }
        for token in dict.fromkeys((*seen.jobs, *logs))
    }

"""The results tree on disk: the only package that knows a file name in it."""

from orchestrator.rundir.atomic import check_writable
from orchestrator.rundir.claims import Claim, Lease, lease_seconds
from orchestrator.rundir.finish import attempts_behind, tidy_finished
from orchestrator.rundir.journal import Event, Journal, WorkerLog
from orchestrator.rundir.metrics import (
    MetricsWriter,
    ResumePoint,
    Row,
    depends_on_time,
    merge_attempts,
    read_metrics,
)
from orchestrator.rundir.process import Holder
from orchestrator.rundir.run import AttemptDir, CheckpointFile, RunDir, attempt_ended, sha256
from orchestrator.rundir.tree import DAMAGED, IndexRow, LedgerEntry, SweepDir, sweeps

__all__ = [
    "DAMAGED",
    "AttemptDir",
    "CheckpointFile",
    "Claim",
    "Event",
    "Holder",
    "IndexRow",
    "Journal",
    "Lease",
    "LedgerEntry",
    "MetricsWriter",
    "ResumePoint",
    "Row",
    "RunDir",
    "SweepDir",
    "WorkerLog",
    "attempt_ended",
    "attempts_behind",
    "check_writable",
    "depends_on_time",
    "lease_seconds",
    "merge_attempts",
    "read_metrics",
    "sha256",
    "sweeps",
    "tidy_finished",
]

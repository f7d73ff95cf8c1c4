"""The results tree on disk: the only package that knows a file name in it."""

from orchestrator.rundir.atomic import check_writable
from orchestrator.rundir.claims import Claim, Lease, lease_seconds
from orchestrator.rundir.finish import tidy_finished
from orchestrator.rundir.journal import Event, Journal, WorkerLog
from orchestrator.rundir.metrics import (
    Executed,
    MetricsWriter,
    ResumePoint,
    Row,
    depends_on_time,
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
    "Executed",
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
    "check_writable",
    "depends_on_time",
    "lease_seconds",
    "read_metrics",
    "sha256",
    "sweeps",
    "tidy_finished",
]

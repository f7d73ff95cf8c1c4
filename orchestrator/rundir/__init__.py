"""The results tree on disk: the only package with file names of it."""

from orchestrator.rundir.attempts.attempt import AttemptDir, CheckpointFile, sha256
from orchestrator.rundir.attempts.claims import Claim, Lease, lease_seconds
from orchestrator.rundir.attempts.end import End
from orchestrator.rundir.attempts.holder import Holder
from orchestrator.rundir.attempts.metrics import (
    Executed,
    MetricsWriter,
    ResumePoint,
    Row,
    add_row,
    depends_on_time,
    read_metrics,
    standing,
)
from orchestrator.rundir.cleanup import tidy_finished
from orchestrator.rundir.code import CodeDir
from orchestrator.rundir.evaluations import Evaluation, EvaluationLog
from orchestrator.rundir.files.atomic import check_writable
from orchestrator.rundir.frozen_code import FrozenCode
from orchestrator.rundir.index import IndexRow, results_among
from orchestrator.rundir.records.journal import Event, Journal, WorkerLog
from orchestrator.rundir.records.ledger_entries import LedgerEntry
from orchestrator.rundir.records.result import Result
from orchestrator.rundir.run import RunDir, attempt_ended
from orchestrator.rundir.sweep import SweepDir, sweeps
from orchestrator.rundir.uploads import Uploaded, UploadLog

__all__ = [
    "AttemptDir",
    "CheckpointFile",
    "Claim",
    "CodeDir",
    "End",
    "Evaluation",
    "EvaluationLog",
    "Event",
    "Executed",
    "FrozenCode",
    "Holder",
    "IndexRow",
    "Journal",
    "Lease",
    "LedgerEntry",
    "MetricsWriter",
    "Result",
    "ResumePoint",
    "Row",
    "RunDir",
    "SweepDir",
    "UploadLog",
    "Uploaded",
    "WorkerLog",
    "add_row",
    "attempt_ended",
    "check_writable",
    "depends_on_time",
    "lease_seconds",
    "read_metrics",
    "results_among",
    "sha256",
    "standing",
    "sweeps",
    "tidy_finished",
]

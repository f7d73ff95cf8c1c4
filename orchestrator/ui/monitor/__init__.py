"""Watch a machine and the results on it from afar; see docs/monitor.md."""

from __future__ import annotations

from orchestrator.ui.monitor.connection import ConnectionState, Monitor
from orchestrator.ui.monitor.snapshot import (
    Disk,
    Gpu,
    MachineLoad,
    MonitoredRun,
    MonitoredSweep,
    MonitorSnapshot,
    Quota,
    TensorBoardState,
)

__all__ = [
    "ConnectionState",
    "Disk",
    "Gpu",
    "MachineLoad",
    "Monitor",
    "MonitorSnapshot",
    "MonitoredRun",
    "MonitoredSweep",
    "Quota",
    "TensorBoardState",
]

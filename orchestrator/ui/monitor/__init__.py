"""Watching a machine and the results on it from afar; see docs/monitor.md."""

from __future__ import annotations

from orchestrator.ui.monitor.connection import Monitor, Seen
from orchestrator.ui.monitor.snapshot import Board, Disk, Gpu, Look, Machine, Quota, Run, Sweep

__all__ = ["Board", "Disk", "Gpu", "Look", "Machine", "Monitor", "Quota", "Run", "Seen", "Sweep"]

from __future__ import annotations

from orchestrator.ui.cli import main

main()

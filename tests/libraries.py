"""What PyTorch and OpenGL tell the doctor of a machine where all is well; loading them takes seconds."""

from __future__ import annotations

from orchestrator.doctor.probe import Facts

FACTS: dict[str, Facts] = {
    "torch": {"version": "2.13.0", "cuda": None, "threads": 4},
    "drawing": {"width": 700, "height": 600},
}


def well(name: str) -> Facts:
    """Stands in for the process that loads them, which tests/integration/test_doctor.py starts."""
    return FACTS[name]

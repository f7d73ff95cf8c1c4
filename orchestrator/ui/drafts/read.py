"""Choose the reader for a file that a grid is drafted from."""

from __future__ import annotations

from pathlib import Path

from orchestrator.core.errors import OrchestrateError, PlacedError
from orchestrator.ui.drafts.job_script import JOB_SCRIPTS, draft_of_job_script
from orchestrator.ui.drafts.python_program import draft_of_python
from orchestrator.ui.drafts.sweep_file import draft_of_sweep_file
from orchestrator.ui.drafts.text import Draft

_KINDS = f"a Python program (.py), a job script ({', '.join(JOB_SCRIPTS)}), or a sweep file (.yaml)"


def draft_of(file: Path, spelled: str) -> Draft:
    """Read a file by its kind. ``spelled``: its path as a command names it.

    Raises :class:`OrchestrateError` for a file of another kind or with content that cannot be used.
    """
    if not file.is_file():
        hint = f"runs in a folder are read beside a sweep's: orchestrate collect SWEEP --with {spelled}"
        found = f"--from: found no file {file}, expected {_KINDS}"
        raise OrchestrateError(found, hint=hint if file.is_dir() else None)
    try:
        if file.suffix == ".py":
            return draft_of_python(file, spelled)
        if file.suffix in JOB_SCRIPTS:
            return draft_of_job_script(file, spelled)
        if file.suffix in (".yaml", ".yml"):
            return draft_of_sweep_file(file, spelled)
    except OSError as error:
        raise PlacedError(f"cannot be read: {error.strerror}", file=file) from None
    raise OrchestrateError(f"--from: found {spelled}, expected {_KINDS}")

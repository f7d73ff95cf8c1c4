"""Judge finished runs by the code and the machine of today: whether they would be trained alike here."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config.code.identity import code_id
from orchestrator.config.program.identity import project_files
from orchestrator.config.trainers import TrainerSpec
from orchestrator.core.machine.hardware import cpu_capability
from orchestrator.core.types import Run
from orchestrator.rundir import Result


class Judge:
    """Compares results with the code of a trainer, or of a program in the project around ``start``.

    The folder ``results`` is no part of the project.
    """

    def __init__(self, spec: TrainerSpec, start: Path, results: Path) -> None:
        self._spec, self._start, self._results = spec, start, results.resolve()
        self._trainer_code: str | None = None

    def difference(self, run: Run, result: Result) -> str:
        """Return how the run was trained otherwise than it would be here now; empty if it was not."""
        if not self.is_todays(run, result):
            return "trained by other code"
        was, here = result.host.cpu_capability, cpu_capability()
        if was and here and was != here:
            return f"trained with {was}, and this machine has {here}"
        return ""

    def is_todays(self, run: Run, result: Result) -> bool:
        """Return whether today's code would train the run."""
        if not self._spec.runs_program:
            self._trainer_code = self._trainer_code or code_id(self._spec)
            return set(result.code_ids or [result.code_id]) == {self._trainer_code}
        files = project_files(self._start, [self._results])
        listed, traced = result.fields.get("code_files"), result.fields.get("code_traced") is True
        return result.code_id is not None and files.id_of(run.point, listed, traced=traced) == result.code_id

"""Find resources that the jobs of a plan would request and not use."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.config.profiles import Profile
from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Concern, Plan


def idle_gpus(plan: Plan, profile: Profile) -> Iterator[Concern]:
    """Warn of GPUs in jobs without a run that uses one."""
    asking = {run.run_id for run in plan.sweep.runs if get_trainer(run.trainer).needs_gpu(run)}
    jobs = [job for array in plan.arrays for job in array.jobs if not job.resources.gpus]
    runs = {run_id for job in jobs if asking.isdisjoint(job.run_ids) for run_id in job.run_ids}
    if profile.gpus and runs:
        asked = "a GPU" if profile.gpus == 1 else f"{profile.gpus} GPUs"
        said = "1 run uses no GPU, and its job"
        if len(runs) > 1:
            said = f"{len(runs)} runs use no GPU, and each of their jobs"
        yield Concern(
            f"{said} asks for {asked} ({profile.name})",
            "choose a target without GPUs, or request them for the runs in the grid's `resources`: {gpus: 1}",
        )

"""Check a Slurm cluster for any user: commands, controller, accounting, limits, requeueing."""

from __future__ import annotations

import re
import shutil

from orchestrator.backends.slurm.doctor.cluster_facts import Association, Qos, Site, number
from orchestrator.backends.slurm.parse import array_size, least
from orchestrator.config.backends import SLURM
from orchestrator.config.profiles import Profile
from orchestrator.core.findings import Finding, not_here, ok, problem, warning

_HELPFUL = {
    "sacct": "the end of jobs that left the queue stays unknown",
    "sacctmgr": "limits of your account stay unknown",
    "sinfo": "the resources of nodes stay unknown",
}
_SLOW_S = 5.0
_SHORT_KILL_WAIT_S = 5


def commands(_: Site) -> Finding:
    """Check that Slurm's commands are on PATH."""
    name = "Slurm commands"
    missing = [program for program in SLURM.programs if shutil.which(program) is None]
    if len(missing) == len(SLURM.programs):
        fix = "log in to one, or load what brings sbatch (`module load slurm`)"
        return problem(name, "none on PATH: this is no login node of a Slurm cluster", fix, blocks=True)
    if missing:
        fix = "ask your site where they are; add to PATH"
        return problem(name, f"{', '.join(missing)} not on PATH", fix, blocks=True)
    lacking = [f"no {program}: {why}" for program, why in _HELPFUL.items() if shutil.which(program) is None]
    if lacking:
        return warning(name, "; ".join(lacking), "ask your site where they are; add them to PATH")
    return ok(name, shutil.which("sbatch") or "")


def controller(site: Site) -> Finding:
    """Check that slurmctld answers, by the command that needs nothing else of it."""
    name = "Slurm controller"
    answer, took = site.timed("scontrol", "ping")
    said = " ".join(answer.output.split())
    if answer.code is None or not re.search(r"\bis UP\b", said):
        found = answer.complaint if answer.errors or not said else said
        fix = "try again, and if it stays so tell your site's support"
        if "configuration source" in found:
            fix = "log in to a login node, or set SLURM_CONF to your cluster's slurm.conf"
        return problem(name, found, fix, blocks=True)
    version = _first_line(site.ask("sbatch", "--version").output)
    found = f"answers in {_duration(took)}" + (f" ({version})" if version else "")
    if took > _SLOW_S:
        return warning(name, found, "it is busy: expect submissions and `status` to take as long")
    return ok(name, found)


def accounting(site: Site) -> Finding:
    """Check that sacct answers, by the user's jobs of today."""
    name = "Accounting"
    answer, took = site.timed("sacct", "-n", "-P", "-X", "-u", site.user, "--format=JobID,State")
    if "disabled" in f"{answer.output}{answer.errors}".lower():
        return ok(name, "this site keeps none: the end of jobs is read from the results folder")
    if answer.code != 0:
        return warning(
            name,
            f"sacct: {answer.complaint}",
            "try again later; until then a job that left the queue may stay unknown",
        )
    found = f"sacct answers in {_duration(took)}"
    if took > _SLOW_S:
        return warning(name, found, "`status` takes as long whenever jobs have ended; nothing is lost")
    return ok(name, found)


def limits(site: Site) -> Finding:
    """Report how many jobs can be queued, and the effect on a sweep."""
    name, config = "Limits", site.config
    if not config:
        return not_here(name, "`scontrol show config` does not answer")
    allowed: list[Association | Qos] = [*site.applying, *site.applying_qos]
    own = str(site.profile.max_jobs) if site.profile else ""
    of_site = least(one.max_submit for one in allowed)
    submit = least([own, "" if of_site is None else str(of_site)])
    at_once = least(one.max_jobs for one in allowed)
    size = array_size(config)
    found = f"arrays of up to {size:,} jobs; {_queue(config.get('MaxJobCount', ''), submit, at_once)}"
    if submit == 0 or at_once == 0:
        return problem(name, found, "this account or QOS may run nothing: name another in the profile")
    if submit is not None and submit < size:
        found += f". {_beyond_limit_text(site.profile, submit, can_feed=of_site != 1)}"
    return ok(name, found)


def requeue(site: Site) -> Finding:
    """Report what happens to a job ended by its time limit, a preemption or a dead node."""
    name, config = "Requeueing", site.config
    if not config:
        return not_here(name, "`scontrol show config` does not answer")
    if site.profile is not None and not site.profile.requeue:
        jobs = site.profile.chain
        return ok(name, f"not asked for by the profile; {_chain(jobs)}")
    if cancels := [one.name for one in site.wanted if one["PreemptMode"] == "CANCEL"]:
        return warning(
            name,
            f"preempted jobs of {', '.join(cancels)} are cancelled, not requeued",
            "run the same `orchestrate sweep` again after a preemption: it does what is missing",
        )
    if config.get("JobRequeue") == "0":
        return ok(name, "off unless a job asks for it (JobRequeue=0), and ours ask")
    return ok(name, "jobs that are preempted, or whose node dies, go back into the queue")


def time_to_leave(site: Site) -> Finding:
    """Check the time between a job's signal to end and its kill."""
    name, config = "Time to save", site.config
    if "KillWait" not in config:
        return not_here(name, "`scontrol show config` does not answer")
    wait = number(config["KillWait"])
    before = f"{site.profile.signal} s before its time limit, and " if site.profile else ""
    found = f"a job is warned {before}{wait} s before a preemption or cancellation kills it (KillWait)"
    if wait < _SHORT_KILL_WAIT_S:
        return warning(name, found, "large checkpoints may not be saved in time: save often instead")
    return ok(name, found)


def _queue(holds: str, submit: int | None, at_once: int | None) -> str:
    said = [f"the queue holds {number(holds):,}"] if number(holds) else []
    said += [f"{submit:,} of yours"] if submit is not None else []
    said += [f"{at_once:,} of yours run at once"] if at_once is not None else []
    return ", ".join(said) or "no limit on the queue"


def _beyond_limit_text(profile: Profile | None, jobs: int, *, can_feed: bool) -> str:
    """Return how a sweep with more runs than allowed jobs proceeds; a job that ends still counts itself."""
    if profile is None or profile.pack != 1:
        return f"More runs than that share {jobs:,} jobs" if jobs > 1 else "All runs share one job"
    if profile.feed and can_feed:
        return "With pack: 1 a job that ends submits the next"
    if profile.feed:
        return "A job that ends still counts: run `orchestrate sweep` again for the next, or with --follow"
    return "With pack: 1 and feed: false, run `orchestrate sweep` again for what is left"


def _chain(jobs: int) -> str:
    if jobs > 1:
        return f"chains of {jobs} jobs go on with what one does not finish"
    return "the same `orchestrate sweep` again goes on with what a job does not finish"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:60]


CHECKS = (commands, controller, accounting, limits, requeue, time_to_leave)

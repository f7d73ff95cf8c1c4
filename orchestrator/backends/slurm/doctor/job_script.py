"""Check the script of a profile's jobs: sbatch accepts it, bash reads it, Python is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from orchestrator.backends.script import Setting
from orchestrator.backends.slurm import SlurmBackend
from orchestrator.backends.slurm.commands import advice
from orchestrator.backends.slurm.doctor import request_checks
from orchestrator.backends.slurm.doctor.cluster_facts import Site
from orchestrator.config.profiles import Profile, place_of
from orchestrator.core.findings import PATIENCE_S, Finding, Verdict, not_here, ok, problem, warning
from orchestrator.core.types import Array, Job, Resources
from orchestrator.rundir import FrozenCode, SweepDir

_ASK_SUPPORT = "correct the profile, or ask your site's support what this means"
_START = re.compile(r"to start at (?P<when>\S+)")
_JOB = "0000-0001.0"


def script(site: Site) -> Finding:
    """Check that sbatch accepts the script that a sweep would submit."""
    name, profile = "Script", site.asking
    with tempfile.TemporaryDirectory(prefix="orchestrate-doctor-") as folder:
        path = Path(folder, "job.sh")
        path.write_text(_rendered(site.asking, site.results))
        answer = site.ask("sbatch", "--test-only", str(path))
    if answer.code == 0:
        start = _START.search(answer.errors + answer.output)
        when = f", to start at {start['when']} as it looks now" if start else ""
        return ok(name, f"sbatch accepts it{when}")
    complaint = answer.complaint
    refused = _named_option(complaint)
    if any(check(site).verdict is Verdict.PROBLEM for check in request_checks.CHECKS):
        fix = "solve the problems above first"
    elif refused is not None:
        fix = f"if the site forbids it, add `forbid: [{refused}]` to {place_of(profile)}"
    else:
        fix = advice(complaint) or _ASK_SUPPORT
    return problem(name, f"sbatch refuses it: {complaint}", fix)


def setup(site: Site) -> Finding:
    """Check that bash can read the profile's lines, and run the job's script up to its worker."""
    name, profile = "Setup", site.asking
    read = _bash("-n", lines="\n".join(profile.setup) + "\n")
    if read is None:
        return not_here(name, "bash does not answer")
    if read.returncode != 0:
        return problem(name, read.stderr.removeprefix("bash: "), f"correct `setup` in {place_of(profile)}")
    if not profile.setup and profile.modules is None:
        return ok(name, "none")
    with tempfile.TemporaryDirectory(prefix="orchestrate-doctor-") as folder:
        path, sweep = Path(folder, "job.sh"), _sweep(Path(folder))
        sweep.create()
        path.write_text(_rendered(replace(profile, python=("true",)), Path(folder)))
        if _bash(str(path), output=sweep.worker_output(_JOB)) is None:
            return not_here(name, f"its lines take longer than {PATIENCE_S:g} s here")
        failed = [why for log in sweep.read_journals() if (why := log.setup_failure)]
    if failed:
        return warning(
            name,
            failed[0],
            f"correct `setup` or `modules` in {place_of(profile)}, or submit from a shell that has what they "
            "need (`bash --login`); where it fails on a node, the job ends before its worker begins",
        )
    return ok(name, "its lines work here")


def interpreter(site: Site) -> Finding:
    """Check that the profile's Python is found."""
    name, profile = "Python in jobs", site.asking
    if profile.python is None:
        return ok(name, "the one that submits, at the same path on the nodes")
    program, command = profile.python[0], shlex.join(profile.python)
    if shutil.which(os.path.expandvars(program)):
        return ok(name, command)
    if profile.modules or profile.setup:
        return not_here(name, f"{program} is not on PATH here; `modules` or `setup` may bring it")
    return warning(
        name, f"{program} is not on PATH here", f"correct `python` in {place_of(profile)}, or add setup"
    )


def feeding(site: Site) -> Finding:
    """Check that jobs may submit further jobs, needed where the queue is shorter than the sweep."""
    name, profile = "Jobs submit jobs", site.asking
    if not profile.feed:
        return ok(name, "not wanted by the profile; `orchestrate sweep` again submits what is left")
    closed = [one for one in site.wanted if one["AllocNodes"] not in ("", "ALL")]
    if closed:
        where = f"{closed[0].name} takes jobs from {closed[0]['AllocNodes']} only (AllocNodes)"
        return warning(
            name, where, f"if compute nodes are not among them, set `feed: false` in {place_of(profile)}"
        )
    ask = "srun " + " ".join([*(f"--partition={one.name}" for one in site.wanted[:1]), "sbatch --version"])
    return ok(name, f"any node may submit them; `{ask}` shows whether nodes have sbatch")


CHECKS = (script, setup, interpreter, feeding)


def _rendered(profile: Profile, results: Path) -> str:
    """Return the script of an array of one job with one run, with the profile's settings only."""
    sweep = _sweep(results)
    needs = Resources(profile.cpus_per_task or 1, profile.gpus or 0, profile.job_mem, profile.time)
    job = Job(_JOB, sweep.name, profile.name, ("doctor",), 1, needs)
    cwd = Path.cwd()
    code = FrozenCode("doctor", cwd, (cwd,), cwd, cwd)
    return SlurmBackend(profile).render(Array("0000-0001", (job,), needs), Setting(sweep, code))


def _sweep(results: Path) -> SweepDir:
    return SweepDir(results.absolute(), "doctor")


def _named_option(complaint: str) -> str | None:
    """Return the option that a complaint of the site's own checks names, if the profile may leave it out."""
    named = re.search(r"--(?P<option>[a-z][a-z-]+)", complaint)
    known = {"mem", "mem-per-cpu", "time", "cpus-per-task", "gpus", "nodes", "ntasks", "hint", "gres"}
    return named["option"] if named and named["option"] in known and "nvalid" not in complaint else None


def _bash(
    *arguments: str, lines: str = "", output: Path | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Run bash as a job starts it, and all that it starts; ``None`` if it cannot be started or does not end.

    ``output``: the file of what it prints.
    """
    with open(output or os.devnull, "w+", encoding="utf-8", errors="replace") as printed:
        try:
            return subprocess.run(
                ["bash", *arguments],
                input=lines,
                stdout=printed,
                stderr=printed if output else subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=PATIENCE_S,
                env={**os.environ, "SLURM_ARRAY_TASK_ID": "0"},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None

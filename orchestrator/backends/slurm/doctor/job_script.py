"""Check the script of a profile's jobs: sbatch accepts it, bash reads it, Python is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from orchestrator.backends.script import Setting
from orchestrator.backends.slurm import SlurmBackend
from orchestrator.backends.slurm.commands import advice
from orchestrator.backends.slurm.doctor import request_checks
from orchestrator.backends.slurm.doctor.cluster_facts import Site
from orchestrator.config.profiles import place_of
from orchestrator.core.findings import PATIENCE_S, Finding, Verdict, not_here, ok, problem, warning
from orchestrator.core.types import Array, Job, Resources
from orchestrator.rundir import FrozenCode, SweepDir

_ASK_SUPPORT = "correct the profile, or ask your site's support what this means"
_START = re.compile(r"to start at (?P<when>\S+)")
_SOURCED = re.compile(r"^\s*(?:source|\.)\s+(?P<path>\S+)\s*$")


def script(site: Site) -> Finding:
    """Check that sbatch accepts the script that a sweep would submit."""
    name, profile = "Script", site.asking
    with tempfile.TemporaryDirectory(prefix="orchestrate-doctor-") as folder:
        path = Path(folder, "job.sh")
        path.write_text(_rendered(site))
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
    """Check that bash can read the profile's lines and finds the files they source; none is run."""
    name, profile = "Setup", site.asking
    read = _bash("-n", lines="\n".join(profile.setup) + "\n")
    if read is None:
        return not_here(name, "bash does not answer")
    if read.returncode != 0:
        return problem(name, read.stderr.removeprefix("bash: "), f"correct `setup` in {place_of(profile)}")
    if profile.modules is not None and not _succeeds(_bash("-c", "type module")):
        fix = (
            f"submit from a shell that has it (`bash --login`), or take `modules` out of {place_of(profile)}"
        )
        return warning(name, "the profile names modules, and this shell has no `module`", fix)
    if absent := _absent(profile.setup):
        return warning(name, f"{absent}: no such file here", f"correct `setup` in {place_of(profile)}")
    if not profile.setup:
        return ok(name, "none" if profile.modules is None else "modules only")
    return ok(name, f"bash can read its {len(profile.setup)} line{'' if len(profile.setup) == 1 else 's'}")


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


def _rendered(site: Site) -> str:
    """Return the script of an array of one job with one run, with the profile's settings only."""
    profile, sweep = site.asking, SweepDir(site.results.absolute(), "doctor")
    needs = Resources(profile.cpus_per_task or 1, profile.gpus or 0, profile.job_mem, profile.time)
    job = Job("0000-0001.0", sweep.name, profile.name, ("doctor",), 1, needs)
    cwd = Path.cwd()
    code = FrozenCode("doctor", cwd, (cwd,), cwd, cwd)
    return SlurmBackend(profile).render(Array("0000-0001", (job,), needs), Setting(sweep, code))


def _named_option(complaint: str) -> str | None:
    """Return the option that a complaint of the site's own checks names, if the profile may leave it out."""
    named = re.search(r"--(?P<option>[a-z][a-z-]+)", complaint)
    known = {"mem", "mem-per-cpu", "time", "cpus-per-task", "gpus", "nodes", "ntasks", "hint", "gres"}
    return named["option"] if named and named["option"] in known and "nvalid" not in complaint else None


def _bash(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str] | None:
    """Run bash as a job starts it; ``None`` if it cannot be started."""
    try:
        return subprocess.run(
            ["bash", *arguments],
            input=lines,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _succeeds(done: subprocess.CompletedProcess[str] | None) -> bool:
    return done is not None and done.returncode == 0


def _absent(lines: Iterable[str]) -> str | None:
    """Return the first missing file that a line sources by a path known here."""
    for line in lines:
        found = _SOURCED.match(line)
        path = os.path.expandvars(os.path.expanduser(found["path"])) if found else ""
        if (
            path.startswith("/")
            and "$" not in path
            and not set("'\"`*") & set(path)
            and not os.path.exists(path)
        ):
            return path
    return None

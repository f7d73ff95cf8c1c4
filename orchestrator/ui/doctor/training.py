"""Check what training needs of this machine: PyTorch and its GPU, threads, OpenGL, games."""

from __future__ import annotations

import os
from collections.abc import Mapping

from orchestrator.core.findings import Finding, not_here, ok, problem, warning
from orchestrator.core.machine import hardware
from orchestrator.core.machine.installation import install_here, installed_version
from orchestrator.ui.doctor.torch_probe import Probe

# A worker sets these anew for each of its runs.
_COUNTING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# With these OpenMP pins threads to cores, as soon as PyTorch is loaded.
_PINNING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_IN_USE = "`nvidia-smi` shows its users: wait, or choose another with CUDA_VISIBLE_DEVICES"
# Fixes for PyTorch's errors, by words in them.
_REFUSALS: Mapping[str, str] = {
    "driver on your system is too old": "update NVIDIA's driver, or install a PyTorch for an older CUDA",
    "no kernel image": "install a PyTorch with a CUDA that supports this GPU: a newer one for a new GPU",
    "out of memory": _IN_USE,
    "busy or unavailable": _IN_USE,
}
_NO_ANSWER = "`nvidia-smi` must answer first; a container needs --gpus all (docker) or --nv (apptainer)"


def pytorch(probe: Probe) -> Finding:
    """Check that PyTorch loads and computes on the GPU, by a trial addition."""
    name, version = "PyTorch", installed_version("torch")
    if version is None:
        return not_here(
            name,
            "not installed: this machine can submit, but not train with BenchMARL",
            install_here("train"),
        )
    facts, gpus = probe("torch"), hardware.gpus()
    if "broken" in facts:
        fix = f"python -c 'import torch' says more; often a fresh environment helps: {install_here('train')}"
        return problem(name, f"{version} does not load: {facts['broken']}", fix)
    version, cuda = facts["version"], facts["cuda"]
    slow = (
        f"; precision: bf16 is {times:.0f} times slower than fp32 here"
        if (times := facts.get("bf16"))
        else ""
    )
    if cuda is None:
        if gpus:
            fix = "install a PyTorch that is built for CUDA: pytorch.org has the command for your driver"
            return warning(name, f"{version} is a CPU build: it cannot use the {gpus[0]} here", fix)
        return ok(name, f"{version}, a CPU build, and no GPU here{slow}")
    if "device" in facts:
        memory = facts["memory"] / 1e9
        return ok(name, f"{version} for CUDA {cuda} computes on {facts['device']} ({memory:.0f} GB)")
    if not gpus:
        return ok(name, f"{version} for CUDA {cuda}, and no GPU here{slow}")
    return problem(
        name, f"{version} for CUDA {cuda} cannot use the {gpus[0]}: {facts['error']}", _advice(facts["error"])
    )


def threads(probe: Probe) -> Finding:
    """Check for settings that interfere with the cores given to runs."""
    name, cores, quota = "Threads", hardware.cores(), hardware.cpu_quota()
    if quota is not None and quota < cores:
        runs = hardware.whole_cores()
        found = f"{cores} cores are seen, and a limit (cgroup) allows the time of {quota:g}: "
        return ok(name, f"{found}sweeps here keep {runs} {'core' if runs == 1 else 'cores'} busy")
    if pinning := [variable for variable in _PINNING if os.environ.get(variable)]:
        found = f"{', '.join(pinning)} pins threads, and those of several runs to the same cores"
        return warning(name, found, f"unset {' '.join(pinning)}: each run has cores of its own anyway")
    if os.environ.get("OMP_THREAD_LIMIT"):
        found = "OMP_THREAD_LIMIT limits threads below what a grid's `threads` asks for"
        return warning(name, found, "unset OMP_THREAD_LIMIT: each run has cores of its own anyway")
    own = probe("torch").get("threads")
    alone = [f"PyTorch alone: {own}"] if own else []
    alone += [f"{variable}={os.environ[variable]}" for variable in _COUNTING if os.environ.get(variable)]
    beside = f" ({', '.join(alone)})" if alone else ""
    return ok(name, f"a run takes as many as `threads` of its grid says, or 1{beside}")


def drawing(probe: Probe) -> Finding:
    """Check that a picture of an environment can be drawn without a screen, by drawing one."""
    name, facts = "OpenGL", probe("drawing")
    if "absent" in facts:
        return not_here(
            name, f"{facts['absent']} is not installed: nothing here draws", install_here("train")
        )
    if "found" in facts:
        return warning(name, f"evaluations cannot be rendered here: {facts['found']}", facts["fix"])
    if "broken" in facts:
        fix = "see PyTorch above; without it leave `experiment.render` out, and --render"
        return warning(name, f"evaluations cannot be rendered here: {facts['broken']}", fix)
    return ok(name, f"a picture of {facts['width']} × {facts['height']} pixels was drawn without a screen")


def starcraft(_: Probe) -> Finding:
    """Check that smacv2 finds the game."""
    name, version, game = "StarCraft II", installed_version("smacv2"), hardware.starcraft()
    if version is None:
        found = "smacv2 is not installed: no tasks smacv2/… here"
        return not_here(name, found, "to have them, install github.com/oxwhirl/smacv2 and StarCraft II")
    if game.lack:
        return problem(name, f"smacv2 {version} without the game: {game.lack}", game.fix)
    return ok(name, f"{game.folder}, smacv2 {version}")


def procgen(probe: Probe) -> Finding:
    """Check that Procgen's games can be played, by playing one."""
    name, facts = "Procgen", probe("procgen")
    if "absent" in facts:
        found = f"{facts['absent']} is not installed: no tasks procgen/… here"
        return not_here(name, found, install_here("procgen"))
    if "games" in facts:
        return ok(name, f"{facts['games']} games, EnvPool {installed_version('envpool')}")
    if "found" in facts:
        return problem(name, facts["found"], facts["fix"])
    return problem(name, f"does not load: {facts['broken']}", install_here("procgen"))


CHECKS = (starcraft, pytorch, threads, drawing, procgen)


def _advice(error: str) -> str:
    return next((fix for words, fix in _REFUSALS.items() if words in error), _NO_ANSWER)

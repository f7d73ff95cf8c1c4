"""Training in real processes that end by SIGKILL where a test says, and plain BenchMARL beside it.

``python -m tests.resuming nursery TRAINER`` imports a trainer once, single-threaded, and forks one process
for each attempt it is asked for, as a worker does. ``python -m tests.resuming plain`` is BenchMARL by itself:
it imports nothing of this project.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import pkgutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PLAIN, NURSERY = "plain", "nursery"

Overrides = Mapping[str, Any]


@dataclass(frozen=True)
class Kill:
    """SIGKILL at the ``count``-th time that the process is at ``where`` (see :func:`_places`).

    ``process``: a process that the run's own one forks, such as "actor 1"; by default the run's own.
    """

    where: str
    count: int
    process: str = ""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run in ``folder``. ``leave_out`` an item of the state on resuming."""

    folder: str
    overrides: Overrides
    seed: int = 0
    kill: Kill | None = None
    leave_out: str | None = None
    stop_after: int | None = None
    sweep: str = "tiny"
    env: Mapping[str, str] = field(default_factory=dict)


class Nursery:
    """A warm process that forks attempts."""

    def __init__(self, trainer: str = "benchmarl") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.resuming", NURSERY, trainer],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, attempt: Attempt) -> int:
        """The attempt's exit code, negative for a signal; its words are in ``folder``/attempts/<n>.log."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(attempt)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=600)


def train_plainly(overrides: Overrides, seed: int, folder: Path) -> list[dict[str, float]]:
    """BenchMARL's own run of the same overrides: what it logged, one dict an iteration."""
    request = json.dumps({"overrides": dict(overrides), "seed": seed})
    output = folder / "plain.json"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.resuming", PLAIN, str(output)],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD},
        input=request,
        text=True,
        timeout=600,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text())


def bits(metrics: Mapping[str, float]) -> dict[str, bytes]:
    """Metrics that are a function of the run's identity, bit by bit (so that NaN equals NaN)."""
    from orchestrator.rundir import depends_on_time  # not in the process with plain BenchMARL

    return {
        name: struct.pack("<d", float(value)) for name, value in metrics.items() if not depends_on_time(name)
    }


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two states differ, bit for bit."""
    import torch

    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape and _same_bytes(one, other)
        return [] if same else [path]
    if isinstance(one, dict) and isinstance(other, dict):
        if list(map(str, one)) != list(map(str, other)):
            return [f"{path} keys"]
        return [found for key in one for found in differences(one[key], other[key], f"{path}/{key}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return [f"{path} length"]
        pairs = enumerate(zip(one, other, strict=True))
        return [found for number, pair in pairs for found in differences(*pair, f"{path}/{number}")]
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return [] if one == other or both_nan else [path]


def _same_bytes(one: Any, other: Any) -> bool:
    return one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()


# Inside the processes


def _nursery(trainer: str) -> None:
    from orchestrator.config.trainers import get_trainer

    for module in get_trainer(trainer).preload:
        import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        request["kill"] = request["kill"] and Kill(**request["kill"])
        pid = os.fork()
        if pid == 0:
            _live(Attempt(**request), trainer)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _live(attempt: Attempt, trainer: str) -> None:
    code = 1
    try:
        os.environ.update(attempt.env)
        if attempt.overrides.get("experiment.parallel_collection"):
            _fork_collectors(trainer)
        code = _train(attempt, trainer)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _fork_collectors(trainer: str) -> None:
    """Import the trainer once for all processes that collect; TorchRL's own choice has each import it."""
    from orchestrator.config.trainers import get_trainer

    multiprocessing.set_start_method("forkserver", force=True)
    multiprocessing.set_forkserver_preload([*get_trainer(trainer).preload, "pettingzoo"])


def _train(attempt: Attempt, trainer: str) -> int:
    from jobs.training.context import InterruptedRun, RunContext
    from orchestrator.config.trainers import get_trainer
    from orchestrator.core.types import RunState
    from orchestrator.rundir import Claim, End, Lease, RunDir

    spec = get_trainer(trainer)
    run = spec.identify(attempt.overrides, attempt.seed, 1)
    run_dir = RunDir(Path(attempt.folder))
    run_dir.describe(run)
    taken = run_dir.take(Claim.fresh("test"))
    assert taken is not None, "the run is taken"
    log = os.open(taken.log, os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    nobody = os.open(os.devnull, os.O_WRONLY)
    context = RunContext(attempt.sweep, run, run_dir, taken, Lease(taken.claim_path, 1e9), nobody)
    if trainer == "benchmarl":
        _watch(attempt, context)
    if attempt.kill is not None:
        _arm(attempt.kill, trainer, attempt.overrides)
    try:
        outcome = pkgutil.resolve_name(spec.train)(context)
    except InterruptedRun:
        taken.write_end(End(RunState.INTERRUPTED, checkpointed=context.checkpointed_frames))
        return 75
    summary = {
        "exactness": outcome.exactness,
        "files": [str(path) for path, _ in outcome.files],
        **outcome.extra,
    }
    (run_dir.path / "outcome.json").write_text(json.dumps(summary))
    return 0


def _watch(attempt: Attempt, context: Any) -> None:
    """Write the whole state down when training ends; kill, stop or forget where the test says."""
    import random

    import numpy
    import torch

    from jobs.trainers.benchmarl.engine import experiment, state, tensors

    complete = state.save_state

    def end_iteration(self: Any, row: Any) -> None:
        if attempt.sweep == "draws":  # nothing else in these runs asks these generators
            random.random()
            numpy.random.random()
        if self.finished:
            held = [buffer.storage.get(slice(None)) for buffer in self.replay_buffers.values()]
            content = [tensors.from_tensordict(items) for items in held]
            torch.save({**complete(self, state.ITEMS), "held": content}, context.run_dir.path / "state.pt")
        if attempt.stop_after == self.n_iters_performed:
            context._stop_deadline = math.inf
        original(self, row)

    original = experiment.ResumableExperiment.end_iteration
    experiment.ResumableExperiment.end_iteration = end_iteration
    if attempt.leave_out is not None:
        names = [item.name for item in state.ITEMS]
        assert attempt.leave_out in names, names
        load = state.load_state

        def load_state(trained: Any, saved: Any, items: Any) -> None:
            load(trained, saved, [item for item in items if item.name != attempt.leave_out])

        experiment.load_state = load_state


def _places(trainer: str, overrides: Overrides) -> dict[str, tuple[Any, str]]:
    """The functions at whose calls an attempt can be killed."""
    files = {"before rename": (os, "replace"), "after rename": (os, "replace"), "flush": (os, "fsync")}
    if trainer != "benchmarl":
        from jobs.trainers.actor_critic import learner
        from jobs.trainers.actor_critic.environments.bucket_brigade import BucketBrigade
        from jobs.trainers.actor_critic.environments.gymnasium_envs import Gymnasium
        from jobs.trainers.actor_critic.environments.procgen import Procgen
        from jobs.trainers.actor_critic.update import Update

        played = {"bucket_brigade": BucketBrigade, "gymnasium": Gymnasium, "procgen": Procgen}

        return {
            **files,
            "collecting": (played[overrides["task"].partition("/")[0]], "step"),
            "training": (Update, "descend"),
            "evaluation": (learner, "play"),
        }
    from benchmarl.experiment import Experiment
    from benchmarl.experiment.logger import Logger
    from torchrl.envs import EnvBase

    return {
        **files,
        "collecting": (EnvBase, "step"),
        "training": (Experiment, "_optimizer_loop"),
        "evaluation": (EnvBase, "rollout"),
        "after evaluation": (Logger, "log_evaluation"),
    }


def _arm(kill: Kill, trainer: str, overrides: Overrides) -> None:
    from jobs.trainers.actor_critic.processes.children import Children

    owner, name = _places(trainer, overrides)[kill.where]
    original: Callable[..., Any] = getattr(owner, name)
    left, armed = kill.count, not kill.process

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= armed
        if left or kill.where.startswith("after"):
            result = original(*args, **kwargs)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)
    if trainer == "benchmarl":
        return
    fork = Children.fork

    def arming(self: Any, name: str, work: Callable[[], int], *more: Any) -> None:
        def armed_work() -> int:
            nonlocal armed
            armed = name == kill.process
            return work()

        fork(self, name, armed_work, *more)

    Children.fork = arming  # type: ignore[method-assign]


def _plain(output: str) -> None:
    """BenchMARL's own way from overrides to a trained policy, with its logger's values kept."""
    import tempfile

    import benchmarl
    from benchmarl.experiment.logger import Logger
    from benchmarl.hydra_config import load_experiment_from_hydra
    from hydra import compose, initialize_config_dir

    request = json.load(sys.stdin)
    logged: list[dict[str, float]] = [{}]

    def log(self: Logger, dict_to_log: dict[str, Any], step: int | None = None) -> None:
        logged[-1].update({name: float(value) for name, value in dict_to_log.items()})

    Logger.log = log
    Logger.commit = lambda self: logged.append({})
    conf = Path(benchmarl.__file__).parent / "conf"
    with tempfile.TemporaryDirectory() as scratch, initialize_config_dir(str(conf), version_base=None):
        words = {**request["overrides"], "experiment.save_folder": scratch, "experiment.render": False}
        words |= {"seed": request["seed"], "experiment.loggers": ["csv"], "experiment.create_json": False}
        words["experiment.checkpoint_interval"] = 0
        arguments = [f"{key}={json.dumps(value)}" for key, value in words.items()]
        config = compose("config", overrides=arguments, return_hydra_config=True)
        task = config.hydra.runtime.choices.task
        load_experiment_from_hydra(config, task_name=task).run()
    foreign = [name for name in sys.modules if name.split(".")[0] in ("jobs", "orchestrator")]
    assert not foreign, foreign
    Path(output).write_text(json.dumps(logged[:-1]))


if __name__ == "__main__":
    if sys.argv[1] == NURSERY:
        _nursery(sys.argv[2])
    else:
        _plain(sys.argv[2])
